//! The positions at which a sequence of a recurrent model keeps its states in the prefix cache, so
//! that later sequences can begin there.
//!
//! A state is large, so few positions keep theirs: the last page boundary of the prompt, from which
//! the next turn of a conversation continues; the boundary where the prompt leaves a text that was
//! computed before, which is often the end of a system prompt; a few between them, every 1024
//! tokens; and the last boundary of the answer.
//!
//! A checkpoint costs nothing until the sequence continues and copies the page.
//! [`EngineOptions::checkpoints`](crate::EngineOptions::checkpoints) pages are for them. The least
//! recently used one is evicted to the tiers outside of the device, as pages of tokens are
//! (`engine/tiers`). A prompt whose nearest states are there gets a page for them, if one is
//! available.

/// Tokens between checkpoints within a prompt.
const DISTANCE_TOKENS: usize = 1024;

/// The checkpoints of a sequence.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checkpoints {
    page_tokens: usize,
    /// Positions in the prompt, ascending.
    positions: Vec<usize>,
    /// Tokens of the prompt.
    prompt_tokens: usize,
    /// The last checkpoint in the answer.
    in_answer: Option<usize>,
}

/// The decision whether the states after a batch are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checkpoint {
    /// They are not kept.
    No,
    /// They are kept, instead of those after `replaced` tokens, if given.
    Keep {
        /// Tokens of the earlier checkpoint.
        replaced: Option<usize>,
    },
}

impl Checkpoints {
    /// The checkpoints of a prompt of which `known_tokens` were computed for another sequence.
    pub(crate) fn new(page_tokens: usize, prompt_tokens: usize, known_tokens: usize) -> Self {
        let aligned = |position: usize| position / page_tokens * page_tokens;
        // The last token of a prompt is always computed.
        let last = aligned(prompt_tokens.saturating_sub(1));
        let mut positions: Vec<usize> =
            (1..=last / DISTANCE_TOKENS).map(|i| aligned(i * DISTANCE_TOKENS)).collect();
        positions.extend([aligned(known_tokens).min(last), last]);
        positions.retain(|position| *position > 0);
        positions.sort_unstable();
        positions.dedup();
        Self { page_tokens, positions, prompt_tokens, in_answer: None }
    }

    /// Tokens up to the next checkpoint, which a batch must not pass: one of the prompt, then each
    /// page boundary.
    pub(crate) fn tokens_left(&self, len_tokens: usize) -> usize {
        let next = self.positions.iter().find(|position| **position > len_tokens);
        match next {
            Some(position) => position - len_tokens,
            None if self.page_tokens == 0 => usize::MAX,
            None => self.page_tokens - len_tokens % self.page_tokens,
        }
    }

    /// Tokens up to the last checkpoint in the answer.
    pub(crate) fn in_answer(&self) -> Option<usize> {
        self.in_answer
    }

    /// Decides whether the states after `len_tokens` tokens are kept.
    pub(crate) fn at(&mut self, len_tokens: usize) -> Checkpoint {
        if self.positions.contains(&len_tokens) {
            return Checkpoint::Keep { replaced: None };
        }
        let is_boundary = self.page_tokens > 0 && len_tokens.is_multiple_of(self.page_tokens);
        if len_tokens < self.prompt_tokens || !is_boundary {
            return Checkpoint::No;
        }
        Checkpoint::Keep { replaced: self.in_answer.replace(len_tokens) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_is_kept_at_its_end_where_it_leaves_known_text_and_in_between() {
        let positions = |prompt, known| Checkpoints::new(32, prompt, known).positions;
        assert_eq!(positions(20, 0), [0_usize; 0]);
        assert_eq!(positions(32, 32), [0_usize; 0]);
        assert_eq!(positions(33, 0), [32]);
        assert_eq!(positions(200, 70), [64, 192]);
        assert_eq!(positions(3000, 1024), [1024, 2048, 2976]);
        let checkpoints = Checkpoints::new(32, 200, 70);
        let left = [0, 63, 64, 191, 192].map(|len| checkpoints.tokens_left(len));
        assert_eq!(left, [64, 1, 128, 1, 32]);
        assert_eq!(Checkpoints::default().tokens_left(7), usize::MAX);
    }

    #[test]
    fn an_answer_is_kept_at_its_last_page() {
        let mut checkpoints = Checkpoints::new(16, 40, 0);
        let kept = [16, 32, 40, 48, 50, 64, 80].map(|len| checkpoints.at(len));
        let keep = |replaced| Checkpoint::Keep { replaced };
        let expected = [
            Checkpoint::No,
            keep(None),
            Checkpoint::No,
            keep(None),
            Checkpoint::No,
            keep(Some(48)),
            keep(Some(64)),
        ];
        assert_eq!(kept, expected);
        assert_eq!(Checkpoints::default().at(64), Checkpoint::No);
    }
}
