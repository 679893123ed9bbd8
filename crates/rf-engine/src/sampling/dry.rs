//! DRY ("don't repeat yourself"): makes tokens less likely that would continue a repetition.
//!
//! The method is p-e-w's (text-generation-webui, 2024). If the last `n` tokens occurred before, the
//! token that followed them gets the penalty `multiplier · base^(n − allowed_length)`, where
//! `n ≥ allowed_length` is the longest such match. Matches do not cross sequence breakers.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::setters::setters;

/// Parameters of DRY. The defaults are those of llama.cpp.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct DryConfig {
    /// The penalty of the shortest match; 0 turns DRY off. Default 0.
    pub multiplier: f32,
    /// The factor per further token of the match, above 1. Default 1.75.
    pub base: f32,
    /// The length of matches from which on they are penalised. Default 2.
    pub allowed_length: usize,
    /// How many of the latest tokens are searched; `None` searches all. Default 64.
    pub last_n: Option<usize>,
    /// Tokens that end a match, such as those that contain one of
    /// [`DEFAULT_BREAKERS`](Self::DEFAULT_BREAKERS). See
    /// [`Model::tokens_containing`](crate::Model::tokens_containing). Default empty, because they
    /// depend on the model.
    pub breakers: Vec<u32>,
}

impl DryConfig {
    /// llama.cpp's default texts of breakers.
    pub const DEFAULT_BREAKERS: [&str; 4] = ["\n", ":", "\"", "*"];

    setters! {
        with_multiplier(multiplier: f32);
        with_base(base: f32);
        with_allowed_length(allowed_length: usize);
        with_last_n(last_n: impl Into<Option<usize>>);
        with_breakers(breakers: Vec<u32>);
    }
}

impl Default for DryConfig {
    fn default() -> Self {
        let (multiplier, base, allowed_length, last_n) = (0.0, 1.75, 2, Some(64));
        Self { multiplier, base, allowed_length, last_n, breakers: Vec::new() }
    }
}

/// The tokens so far, and the penalties of the next one.
#[derive(Debug, Clone)]
pub(super) struct Dry {
    config: DryConfig,
    breakers: HashSet<u32>,
    tokens: VecDeque<u32>,
}

impl Dry {
    pub(super) fn new(config: &DryConfig) -> Self {
        let breakers = config.breakers.iter().copied().collect();
        Self { config: config.clone(), breakers, tokens: VecDeque::new() }
    }

    pub(super) fn is_active(&self) -> bool {
        self.config.multiplier > 0.0 && self.config.base >= 1.0 && self.config.last_n != Some(0)
    }

    pub(super) fn accept(&mut self, id: u32) {
        if !self.is_active() {
            return;
        }
        self.tokens.push_back(id);
        if self.config.last_n.is_some_and(|last_n| self.tokens.len() > last_n) {
            self.tokens.pop_front();
        }
    }

    /// The values to subtract from the logits of tokens, by id.
    pub(super) fn penalties(&mut self) -> HashMap<u32, f32> {
        // The exponent beyond which the power is infinite.
        let most = if self.config.base > 1.000_001 {
            (f32::MAX.ln() / self.config.base.ln()) as usize
        } else {
            usize::MAX
        };
        let allowed = self.config.allowed_length;
        let lengths = self.matches();
        let penalty = |length: usize| {
            let exponent = (length - allowed).min(most);
            self.config.multiplier * self.config.base.powi(exponent.min(1 << 20) as i32)
        };
        lengths.into_iter().map(|(id, length)| (id, penalty(length))).collect()
    }

    /// The longest match that each token would continue.
    fn matches(&mut self) -> HashMap<u32, usize> {
        let mut longest = HashMap::new();
        let tokens = self.tokens.make_contiguous();
        let count = tokens.len();
        // Tokens since the last breaker: no match is longer.
        let since =
            tokens.iter().rev().take_while(|id| !self.breakers.contains(id)).count().min(count);
        if since < self.config.allowed_length.max(1) {
            return longest;
        }
        for (end, length) in suffix_matches(tokens).into_iter().enumerate() {
            let length = length.min(since);
            // The token after the match at `..=end`.
            let Some(&next) = tokens.get(end + 1) else { continue };
            if length >= self.config.allowed_length && !self.breakers.contains(&next) {
                let known = longest.entry(next).or_insert(0);
                *known = length.max(*known);
            }
        }
        longest
    }
}

/// For each index, how many tokens up to it equal those at the end: the Z function of the reversed
/// tokens, in linear time.
fn suffix_matches(tokens: &[u32]) -> Vec<usize> {
    let count = tokens.len();
    let token = |index: usize| tokens[count - 1 - index];
    let mut lengths = vec![0; count];
    // The reversed tokens at `left..right` equal those at the start.
    let (mut left, mut right) = (0, 0);
    for start in 1..count {
        let mut length = 0;
        if start < right {
            length = lengths[count - 1 - (start - left)].min(right - start);
        }
        while start + length < count && token(length) == token(start + length) {
            length += 1;
        }
        if start + length > right {
            (left, right) = (start, start + length);
        }
        lengths[count - 1 - start] = length;
    }
    lengths
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn penalties(config: &DryConfig, tokens: &[u32]) -> Vec<(u32, f32)> {
        let mut dry = Dry::new(config);
        for &id in tokens {
            dry.accept(id);
        }
        let mut penalties: Vec<_> = dry.penalties().into_iter().collect();
        penalties.sort_by_key(|(id, _)| *id);
        penalties
    }

    fn config() -> DryConfig {
        DryConfig { multiplier: 0.8, ..DryConfig::default() }
    }

    #[test]
    fn a_repetition_is_penalised_by_its_length() {
        // 1 2 3 4 … 1 2 3: the match has 3 tokens, and 4 would continue it.
        let tokens = [1, 2, 3, 4, 9, 8, 1, 2, 3];
        assert_eq!(penalties(&config(), &tokens), [(4, 0.8 * 1.75)]);
        // Two tokens are the shortest match.
        assert_eq!(penalties(&config(), &[1, 2, 3, 1, 2]), [(3, 0.8)]);
        assert_eq!(penalties(&config(), &[2, 3, 1, 2]), []);
        // The longest of several matches counts: `2 5 7 1 2`, not `1 2`.
        let tokens = [1, 2, 5, 7, 1, 2, 5, 8, 2, 5, 7, 1, 2];
        assert_eq!(penalties(&config(), &tokens), [(5, 0.8 * 1.75_f32.powi(3))]);
    }

    #[test]
    fn breakers_end_matches_and_are_never_penalised() {
        let broken = |breakers: &[u32]| DryConfig { breakers: breakers.to_vec(), ..config() };
        let tokens = [1, 2, 3, 4, 1, 2, 3];
        assert_eq!(penalties(&broken(&[1]), &tokens), [(4, 0.8)]);
        assert_eq!(penalties(&broken(&[2]), &tokens), []);
        assert_eq!(penalties(&broken(&[3]), &tokens), []);
        assert_eq!(penalties(&broken(&[4]), &tokens), []);
    }

    #[test]
    fn only_the_latest_tokens_are_searched() {
        let tokens = [1, 2, 3, 9, 8, 7, 1, 2];
        let last = |last_n| DryConfig { last_n, ..config() };
        assert_eq!(penalties(&last(None), &tokens), [(3, 0.8)]);
        assert_eq!(penalties(&last(Some(8)), &tokens), [(3, 0.8)]);
        assert_eq!(penalties(&last(Some(7)), &tokens), []);
        assert!(!Dry::new(&last(Some(0))).is_active());
    }

    #[test]
    fn a_very_long_repetition_has_a_finite_penalty() {
        let config = DryConfig { last_n: None, ..config() };
        let penalties = penalties(&config, &vec![7; 5000]);
        assert!(matches!(penalties[..], [(7, penalty)] if penalty.is_finite() && penalty > 1e30));
    }

    proptest! {
        #[test]
        fn matches_are_those_of_a_naive_search(
            tokens in prop::collection::vec(0_u32..3, 0..40),
            breakers in prop::collection::vec(0_u32..3, 0..2),
            allowed_length in 1_usize..4,
        ) {
            let config = DryConfig { breakers: breakers.clone(), allowed_length, last_n: None, ..config() };
            let mut dry = Dry::new(&config);
            for &id in &tokens {
                dry.accept(id);
            }
            let mut expected: HashMap<u32, usize> = HashMap::new();
            for next in 1..tokens.len() {
                let length = (0..next).take_while(|back| {
                    let id = tokens[next - 1 - back];
                    id == tokens[tokens.len() - 1 - back] && !breakers.contains(&id)
                }).count();
                if length >= allowed_length && !breakers.contains(&tokens[next]) {
                    let known = expected.entry(tokens[next]).or_insert(0);
                    *known = length.max(*known);
                }
            }
            prop_assert_eq!(dry.matches(), expected);
        }
    }
}
