//! The samples of a benchmark.

use super::inference::{MetricOutcome, Sampled};
use crate::Clock;
use crate::results::PhaseTime;

/// The samples of a benchmark so far.
#[derive(Debug, Default)]
pub(super) struct Samples {
    pub(super) rounds: Vec<Round>,
    /// The reason why the benchmark is not supported.
    pub(super) skipped: Option<String>,
    /// Outcome of the first round, for its cost and metadata.
    pub(super) first: Option<Sampled>,
    /// Phases of the median sample of each round.
    pub(super) phases: Vec<Vec<PhaseTime>>,
    pub(super) clock: Option<Clock>,
}

/// The samples of a benchmark in one round.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Round {
    pub(super) samples: Vec<f64>,
    /// Fraction of the time in which threads had no CPU; 0 for times of a device clock.
    pub(super) contention: f64,
}

impl Samples {
    /// Adds the outcome of a metric of the model.
    pub(super) fn add(&mut self, outcome: MetricOutcome, contention: f64) {
        match outcome {
            MetricOutcome::Sampled(sampled) => {
                let samples = sampled.samples.clone();
                self.rounds.push(Round { samples, contention });
                self.phases.push(sampled.phases.clone());
                self.first.get_or_insert(sampled);
            }
            MetricOutcome::Skipped(why) => self.skipped = Some(why),
        }
    }
}
