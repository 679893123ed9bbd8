//! Repetition, presence and frequency penalties over a window of the latest tokens.

use std::collections::{HashMap, VecDeque};

use super::config::SamplerConfig;

/// The window and how often each token occurs in it.
#[derive(Debug, Clone)]
pub(super) struct Penalties {
    repeat: f32,
    presence: f32,
    frequency: f32,
    last_n: Option<usize>,
    /// Oldest first; stays empty when the window is the whole sequence, where nothing ever leaves
    /// it.
    window: VecDeque<u32>,
    counts: HashMap<u32, u32>,
}

impl Penalties {
    pub(super) fn new(config: &SamplerConfig) -> Self {
        Self {
            repeat: config.repeat_penalty,
            presence: config.presence_penalty,
            frequency: config.frequency_penalty,
            last_n: config.repeat_last_n,
            window: VecDeque::new(),
            counts: HashMap::new(),
        }
    }

    /// Returns true if [`apply`](Self::apply) can ever change a logit.
    pub(super) fn is_active(&self) -> bool {
        #[expect(clippy::float_cmp, reason = "the exact values that change nothing")]
        let neutral = self.repeat == 1.0 && self.presence == 0.0 && self.frequency == 0.0;
        !neutral && self.last_n != Some(0)
    }

    pub(super) fn accept(&mut self, id: u32) {
        if !self.is_active() {
            return;
        }
        *self.counts.entry(id).or_insert(0) += 1;
        let Some(last_n) = self.last_n else { return };
        self.window.push_back(id);
        if self.window.len() > last_n {
            let oldest = self.window.pop_front();
            self.forget(oldest);
        }
    }

    /// For each token seen `count` times in the window, with llama.cpp's formula:
    /// `logit ← (logit > 0 ? logit / repeat : logit · repeat) − count · frequency − presence`.
    pub(super) fn apply(&self, logits: &mut [f32]) {
        for &id in self.counts.keys() {
            if let Some(logit) = logits.get_mut(id as usize) {
                *logit = self.adjusted(id, *logit);
            }
        }
    }

    /// The logit of one token, as [`apply`](Self::apply) changes it.
    pub(super) fn adjusted(&self, id: u32, logit: f32) -> f32 {
        let Some(&count) = self.counts.get(&id) else { return logit };
        // Dividing a negative logit would reward the repetition.
        let scaled = if logit > 0.0 { logit / self.repeat } else { logit * self.repeat };
        scaled - count as f32 * self.frequency - self.presence
    }

    fn forget(&mut self, id: Option<u32>) {
        let Some(id) = id else { return };
        if let Some(count) = self.counts.get_mut(&id) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(config: &SamplerConfig, accepted: &[u32], logits: &[f32]) -> Vec<f32> {
        let mut penalties = Penalties::new(config);
        for &id in accepted {
            penalties.accept(id);
        }
        let mut logits = logits.to_vec();
        penalties.apply(&mut logits);
        logits
    }

    #[test]
    fn repeat_divides_positive_and_multiplies_negative_logits() {
        let config = SamplerConfig { repeat_penalty: 2.0, ..SamplerConfig::default() };
        let logits = applied(&config, &[0, 1, 1], &[4.0, -4.0, 4.0, -4.0]);
        assert_eq!(logits, [2.0, -8.0, 4.0, -4.0]);
    }

    #[test]
    fn frequency_counts_occurrences_and_presence_does_not() {
        let config = SamplerConfig {
            frequency_penalty: 0.5,
            presence_penalty: 0.25,
            ..SamplerConfig::default()
        };
        assert_eq!(applied(&config, &[1, 1, 1, 2], &[1.0; 4]), [1.0, -0.75, 0.25, 1.0]);
    }

    #[test]
    fn repeat_comes_before_the_subtraction() {
        let config = SamplerConfig {
            repeat_penalty: 2.0,
            presence_penalty: 1.0,
            ..SamplerConfig::default()
        };
        assert_eq!(applied(&config, &[0], &[4.0]), [1.0]); // 4 / 2 - 1, not (4 - 1) / 2
    }

    #[test]
    fn tokens_leave_the_window() {
        let config = SamplerConfig {
            presence_penalty: 1.0,
            repeat_last_n: Some(2),
            ..SamplerConfig::default()
        };
        assert_eq!(applied(&config, &[0, 1, 2], &[0.0; 3]), [0.0, -1.0, -1.0]);
        // The first 0 leaves, the second stays.
        assert_eq!(applied(&config, &[0, 1, 0], &[0.0; 3]), [-1.0, -1.0, 0.0]);
    }

    #[test]
    fn no_limit_looks_at_the_whole_sequence() {
        let config = SamplerConfig {
            presence_penalty: 1.0,
            repeat_last_n: None,
            ..SamplerConfig::default()
        };
        let accepted: Vec<u32> = (0..1000).collect();
        assert_eq!(applied(&config, &accepted, &[0.0; 1000]), [-1.0; 1000]);
    }

    #[test]
    fn window_of_zero_and_neutral_values_are_inactive() {
        let off = SamplerConfig {
            repeat_penalty: 3.0,
            repeat_last_n: Some(0),
            ..SamplerConfig::default()
        };
        assert!(!Penalties::new(&off).is_active());
        assert_eq!(applied(&off, &[0, 0], &[1.0]), [1.0]);
        assert!(!Penalties::new(&SamplerConfig::default()).is_active());
    }

    #[test]
    fn ids_beyond_the_vocabulary_are_ignored() {
        let config = SamplerConfig { repeat_penalty: 2.0, ..SamplerConfig::default() };
        assert_eq!(applied(&config, &[7, u32::MAX], &[1.0, 1.0]), [1.0, 1.0]);
    }

    #[test]
    fn the_window_stays_small_once_it_is_full() {
        let config = SamplerConfig { presence_penalty: 1.0, ..SamplerConfig::default() };
        let mut penalties = Penalties::new(&config);
        (0..100_000).for_each(|id| penalties.accept(id % 997));
        assert_eq!(penalties.window.len(), 64);
        // Removed entries leave room that a hash map may double once or twice, by its random hash.
        assert!(penalties.window.capacity() <= 256 && penalties.counts.capacity() <= 512);
        assert_eq!(penalties.counts.values().sum::<u32>(), 64);
    }
}
