//! Drafts from the text itself: what followed the last tokens when they came before.

use std::collections::HashMap;

/// Tokens that must repeat for a draft. Two repeat in any text.
const MIN_MATCH: usize = 3;

/// A longer match says no more about the tokens that follow.
const MAX_MATCH: usize = 32;

/// Earlier places that are compared, the latest first.
const MAX_PLACES: usize = 16;

/// The tokens of a sequence, with an index of its n-grams.
#[derive(Debug, Default)]
pub(super) struct NgramIndex {
    tokens: Vec<u32>,
    /// The latest end of each n-gram: the position of the token after it.
    latest: HashMap<[u32; MIN_MATCH], usize>,
    /// For the n-gram that ends with each token, its end before that; 0 if there is none.
    earlier: Vec<usize>,
}

/// A place where the last tokens came before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Match {
    /// The position of the token after it.
    end: usize,
    /// The number of tokens that are the same, at most [`MAX_MATCH`].
    pub(super) len: usize,
}

impl NgramIndex {
    /// Forgets all tokens.
    pub(super) fn clear(&mut self) {
        self.tokens.clear();
        self.latest.clear();
        self.earlier.clear();
    }

    /// Appends a token.
    pub(super) fn push(&mut self, id: u32) {
        self.tokens.push(id);
        let ngram = self.tokens.last_chunk::<MIN_MATCH>();
        let earlier = ngram.and_then(|ngram| self.latest.insert(*ngram, self.tokens.len()));
        self.earlier.push(earlier.unwrap_or(0));
    }

    /// The place with the longest match, of equal ones the latest.
    pub(super) fn longest_match(&self) -> Option<Match> {
        let mut best: Option<Match> = None;
        let mut end = self.earlier.last().copied().unwrap_or(0);
        for _ in 0..MAX_PLACES {
            if end == 0 {
                break;
            }
            let pairs = self.tokens[..end].iter().rev().zip(self.tokens.iter().rev());
            let len = pairs.take(MAX_MATCH).take_while(|(a, b)| a == b).count();
            if best.is_none_or(|best| len > best.len) {
                best = Some(Match { end, len });
            }
            if len == MAX_MATCH {
                break;
            }
            end = self.earlier[end - 1];
        }
        best
    }

    /// The tokens after a match. A match that overlaps the end of the text is a period, which the
    /// draft continues.
    pub(super) fn draft(&self, found: Match, len: usize) -> Vec<u32> {
        let mut draft: Vec<u32> = Vec::with_capacity(len);
        for position in found.end..found.end + len {
            let id = match self.tokens.get(position) {
                Some(id) => *id,
                None => draft[position - self.tokens.len()],
            };
            draft.push(id);
        }
        draft
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(tokens: &[u32]) -> NgramIndex {
        let mut index = NgramIndex::default();
        for id in tokens {
            index.push(*id);
        }
        index
    }

    /// The length of the match and the draft.
    fn draft(tokens: &[u32], len: usize) -> Option<(usize, Vec<u32>)> {
        let index = index(tokens);
        index.longest_match().map(|found| (found.len, index.draft(found, len)))
    }

    #[test]
    fn a_draft_is_what_followed_the_longest_match() {
        assert_eq!(draft(&[], 4), None);
        assert_eq!(draft(&[1, 2, 1, 2], 4), None, "two tokens are no match");
        assert_eq!(draft(&[1, 2, 3, 4, 5, 1, 2, 3], 2), Some((3, vec![4, 5])));
        // Three tokens match at both places and a fourth at the first one only.
        let tokens = [9, 1, 2, 3, 4, 8, 1, 2, 3, 5, 9, 1, 2, 3];
        assert_eq!(draft(&tokens, 2), Some((4, vec![4, 8])));
        // Of equal matches the latest counts.
        let tokens = [7, 1, 2, 3, 4, 8, 1, 2, 3, 5, 9, 1, 2, 3];
        assert_eq!(draft(&tokens, 2), Some((3, vec![5, 9])));
    }

    #[test]
    fn a_period_continues_past_the_end() {
        assert_eq!(draft(&[5, 6, 5, 6, 5, 6], 5), Some((4, vec![5, 6, 5, 6, 5])));
        assert_eq!(draft(&[4; 6], 9), Some((5, vec![4; 9])));
    }

    #[test]
    fn a_cleared_index_knows_nothing() {
        let mut index = index(&[1, 2, 3, 1, 2, 3]);
        assert!(index.longest_match().is_some());
        index.clear();
        for id in [1, 2, 3] {
            index.push(id);
        }
        assert_eq!(index.longest_match(), None);
    }
}
