//! Constraints on the next token, for structured output.

use std::time::{Duration, Instant};

/// Restricts the tokens of one choice, for example to a grammar.
///
/// A scheduler calls [`allowed`](Self::allowed) once per sampled token, on another thread while the
/// backend computes. It calls [`accept`](Self::accept) for each token that does not end the
/// generation, forced ones included. A panic fails only the request.
pub trait Constraint: Send {
    /// The tokens that may come next. Include end-of-generation tokens where the output may end.
    ///
    /// # Errors
    ///
    /// If the constraint cannot be evaluated. The request fails, unless the constraint
    /// [gave up](Self::gave_up).
    fn allowed(&mut self) -> Result<TokenMask, ConstraintError>;

    /// Adds a token to the output.
    ///
    /// # Errors
    ///
    /// If the token is not allowed. The request fails.
    fn accept(&mut self, id: u32) -> Result<(), ConstraintError>;

    /// Returns true if the output is complete and no token may follow. The choice ends with
    /// [`StopReason::Constraint`](crate::StopReason::Constraint).
    fn is_finished(&self) -> bool;

    /// Returns true if the constraint failed because it is too expensive to evaluate any further. A
    /// choice that has tokens then ends with
    /// [`StopReason::ConstraintLimit`](crate::StopReason::ConstraintLimit) instead of failing its
    /// request.
    fn gave_up(&self) -> bool {
        false
    }

    /// A constraint in the same state, for another choice of the same request.
    fn fork(&self) -> Box<dyn Constraint>;

    /// The only tokens that may come next, in order; empty if there is a choice. They are not
    /// sampled, and all of them are computed in one step. Each is accepted afterwards.
    fn forced(&mut self) -> Vec<u32> {
        Vec::new()
    }
}

/// A constraint that measures the time of its calls.
pub(super) struct TimedConstraint {
    constraint: Box<dyn Constraint>,
    token_time: Duration,
}

impl TimedConstraint {
    pub(super) fn new(constraint: Box<dyn Constraint>) -> Self {
        Self { constraint, token_time: Duration::ZERO }
    }

    /// The time that the newest token took: finding it, accepting it, and accepting those that
    /// were forced after it.
    pub(super) fn token_time(&self) -> Duration {
        self.token_time
    }

    /// [`Constraint::allowed`], with which the time of a token begins.
    pub(super) fn allowed(&mut self) -> Result<TokenMask, ConstraintError> {
        self.token_time = Duration::ZERO;
        self.timed(|constraint| constraint.allowed())
    }

    pub(super) fn accept(&mut self, id: u32) -> Result<(), ConstraintError> {
        self.timed(|constraint| constraint.accept(id))
    }

    pub(super) fn forced(&mut self) -> Vec<u32> {
        self.timed(|constraint| constraint.forced())
    }

    pub(super) fn is_finished(&self) -> bool {
        self.constraint.is_finished()
    }

    pub(super) fn gave_up(&self) -> bool {
        self.constraint.gave_up()
    }

    fn timed<T>(&mut self, call: impl FnOnce(&mut dyn Constraint) -> T) -> T {
        let start = Instant::now();
        let value = call(self.constraint.as_mut());
        self.token_time += start.elapsed();
        value
    }
}

/// A constraint failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the output cannot be constrained: {0}")]
pub struct ConstraintError(pub String);

/// A set of tokens: one bit per id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenMask {
    words: Vec<u32>,
}

impl TokenMask {
    /// The empty set, with room for ids below `vocab_size`.
    pub fn new(vocab_size: usize) -> Self {
        Self { words: vec![0; vocab_size.div_ceil(32)] }
    }

    /// A set from its words: id `i` is bit `i % 32`, the least significant first, of word `i / 32`.
    /// Ids beyond the words are not in the set.
    pub fn from_words(words: Vec<u32>) -> Self {
        Self { words }
    }

    /// The words.
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// Adds a token. An id beyond the room is ignored.
    pub fn allow(&mut self, id: u32) {
        if let Some(word) = self.words.get_mut(id as usize / 32) {
            *word |= 1 << (id % 32);
        }
    }

    /// Returns true if the token is in the set.
    pub fn allows(&self, id: u32) -> bool {
        self.words.get(id as usize / 32).is_some_and(|word| word >> (id % 32) & 1 == 1)
    }

    /// Sets the logits of all other tokens to −∞.
    pub(crate) fn apply(&self, logits: &mut [f32]) {
        let words = self.words.iter().copied().chain(std::iter::repeat(0));
        for (logits, word) in logits.chunks_mut(32).zip(words) {
            if word == u32::MAX {
                continue;
            }
            for (bit, logit) in logits.iter_mut().enumerate() {
                if word >> bit & 1 == 0 {
                    *logit = f32::NEG_INFINITY;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_tokens_and_tokens_beyond_the_words_are_ruled_out() {
        let mut mask = TokenMask::new(40);
        for id in [0, 31, 33, 1000] {
            mask.allow(id);
        }
        assert_eq!(mask, TokenMask::from_words(vec![0x8000_0001, 0b10]));
        let mut logits: Vec<f32> = (0..70).map(|id| id as f32).collect();
        mask.apply(&mut logits);
        let left: Vec<u32> = (0..70).filter(|id| logits[*id as usize].is_finite()).collect();
        assert_eq!(left, [0, 31, 33]);
        assert!((0..70).all(|id| mask.allows(id) == left.contains(&id)));

        let mut logits = [1.0; 32];
        TokenMask::from_words(vec![u32::MAX]).apply(&mut logits);
        assert!(logits.iter().all(|logit| logit.is_finite()));
    }
}
