//! The time of reading pages back, compared with that of computing their tokens.

use std::time::{Duration, Instant};

/// The weight of a new measurement in a mean.
const NEWEST: f64 = 0.25;
/// Batches of fewer tokens say nothing about prompts.
const PROMPT_TOKENS: usize = 16;
/// After this time, slow reading is tried again.
const VALID: Duration = Duration::from_mins(1);

/// Means of measured times, in seconds.
#[derive(Debug)]
pub(super) struct ImportCost {
    measures: bool,
    per_page: Option<f64>,
    per_token: Option<f64>,
    /// The time at which pages were last read back.
    imported: Option<Instant>,
}

impl ImportCost {
    /// `measures` is false if reading is to be taken for faster always.
    pub(super) const fn new(measures: bool) -> Self {
        Self { measures, per_page: None, per_token: None, imported: None }
    }

    pub(super) fn note_imports(&mut self, pages: usize, time: Duration) {
        if pages > 0 {
            note(&mut self.per_page, time.as_secs_f64() / pages as f64);
            self.imported = Some(Instant::now());
        }
    }

    pub(super) fn note_computed(&mut self, tokens: usize, time: Duration) {
        if tokens >= PROMPT_TOKENS {
            note(&mut self.per_token, time.as_secs_f64() / tokens as f64);
        }
    }

    /// Returns true if reading pages takes less time than computing tokens, or one of the times is
    /// not known.
    pub(super) fn is_faster(&self, pages: usize, tokens: usize) -> bool {
        let is_known = self.imported.is_some_and(|imported| imported.elapsed() < VALID);
        match (self.per_page, self.per_token) {
            (Some(per_page), Some(per_token)) if self.measures && is_known => {
                per_page * pages as f64 <= per_token * tokens as f64
            }
            _ => true,
        }
    }
}

fn note(mean: &mut Option<f64>, newest: f64) {
    *mean = Some(mean.map_or(newest, |mean| mean + NEWEST * (newest - mean)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_is_compared_with_computing_once_both_were_measured() {
        let mut cost = ImportCost::new(true);
        assert!(cost.is_faster(1000, 1));
        cost.note_computed(100, Duration::from_millis(100));
        assert!(cost.is_faster(1000, 1));
        cost.note_imports(10, Duration::from_millis(100));
        assert!(cost.is_faster(2, 32) && !cost.is_faster(4, 32));
        // A decode step is no prompt.
        cost.note_computed(1, Duration::from_secs(1));
        assert!(!cost.is_faster(4, 32));
        cost.note_imports(10, Duration::from_millis(10));
        assert!(cost.is_faster(4, 32));

        let mut always = ImportCost::new(false);
        always.note_computed(100, Duration::from_millis(1));
        always.note_imports(1, Duration::from_secs(1));
        assert!(always.is_faster(1000, 1));
    }
}
