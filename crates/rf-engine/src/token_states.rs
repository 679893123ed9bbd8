//! The model's states of the newest tokens of a sequence, which its MTP block reads.

/// The states after the output norm of successive tokens, `[tokens, hidden_size]`: those of the
/// last batch and of the token before it. A draft of which some tokens are rejected is cut there,
/// and the block continues from the last remaining token.
#[derive(Clone, Debug, Default)]
pub(crate) struct TokenStates {
    /// The position of the first row.
    first: usize,
    width: usize,
    rows: Vec<f32>,
}

impl TokenStates {
    /// The state of the token at a position, if it is known.
    pub(crate) fn at(&self, position: usize) -> Option<&[f32]> {
        let start = position.checked_sub(self.first)?.checked_mul(self.width)?;
        self.rows.get(start..start + self.width).filter(|row| !row.is_empty())
    }

    /// Appends the states of the tokens before `count` successive ones, of which the first is at
    /// `position`, to `out`. An unknown state, and the one before the first token, are zeros.
    pub(crate) fn push_before(
        &self,
        position: usize,
        count: usize,
        width: usize,
        out: &mut Vec<f32>,
    ) {
        for position in position..position + count {
            match position.checked_sub(1).and_then(|before| self.at(before)) {
                Some(row) => out.extend_from_slice(row),
                None => out.resize(out.len() + width, 0.0),
            }
        }
    }

    /// Replaces the states by those of a batch, whose first token is at `position`, and of the
    /// token before it.
    pub(crate) fn set(&mut self, position: usize, width: usize, states: &[f32]) {
        let before = position.checked_sub(1).and_then(|before| self.at(before));
        let mut rows = Vec::with_capacity(width + states.len());
        rows.extend_from_slice(before.unwrap_or_default());
        let first = position - rows.len() / width;
        rows.extend_from_slice(states);
        *self = Self { first, width, rows };
    }

    /// Drops the states of the tokens from `len_tokens` on.
    pub(crate) fn truncate(&mut self, len_tokens: usize) {
        self.rows.truncate(len_tokens.saturating_sub(self.first) * self.width);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn before(states: &TokenStates, position: usize, count: usize) -> Vec<f32> {
        let mut out = Vec::new();
        states.push_before(position, count, 2, &mut out);
        out
    }

    #[test]
    fn the_states_of_a_batch_and_of_the_token_before_it_are_known() {
        let mut states = TokenStates::default();
        assert_eq!(before(&states, 0, 2), [0.0; 4]);
        states.set(0, 2, &[1.0, 2.0, 3.0, 4.0]);
        assert_eq!(before(&states, 0, 4), [0.0, 0.0, 1.0, 2.0, 3.0, 4.0, 0.0, 0.0]);
        states.set(2, 2, &[5.0, 6.0, 7.0, 8.0]);
        assert_eq!(before(&states, 1, 4), [0.0, 0.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        // Of a draft, a token is left.
        states.truncate(3);
        assert_eq!(before(&states, 2, 3), [3.0, 4.0, 5.0, 6.0, 0.0, 0.0]);
        // The sequence returns to its states before the draft, and computes it again.
        states.set(2, 2, &[5.0, 6.0]);
        assert_eq!(before(&states, 2, 2), [3.0, 4.0, 5.0, 6.0]);
        states.truncate(1);
        assert_eq!(before(&states, 1, 1), [0.0; 2]);
        states.set(1, 2, &[9.0, 9.0]);
        assert_eq!(before(&states, 1, 2), [0.0, 0.0, 9.0, 9.0]);
    }
}
