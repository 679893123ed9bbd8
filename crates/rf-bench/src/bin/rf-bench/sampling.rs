//! How often something is run, and what a sample is.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::{interrupt::Interrupt, options::Options};

/// Time for each benchmark, in each of some rounds over all of them.
///
/// Rounds, because clocks and neighbours change more slowly than one benchmark takes: what drifts shows as a difference
/// between rounds, and so as noise rather than as a change of the code.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sampling {
    /// Over all benchmarks.
    pub(crate) rounds: usize,
    /// Time for all rounds together: where it does not last, there are fewer of them.
    pub(crate) budget: Option<Duration>,
    /// For the samples of a benchmark in a round.
    time: Duration,
    /// For the runs before, which are not kept.
    warm_up: Duration,
    /// Even where `time` is over.
    least_samples: usize,
}

/// Runs shorter than this share a sample, which is their mean: clocks and timers disturb less so.
const SHORT: Duration = Duration::from_micros(50);

/// With it `--quick` keeps its word, a minute, on a machine that is slow or busy: limits, loading, and another look at
/// what changed come on top.
const QUICK_BUDGET: Duration = Duration::from_secs(42);

/// Enough for a 99th percentile in each round.
const MOST_SAMPLES: usize = 200;

impl Sampling {
    pub(crate) fn of(options: &Options) -> Self {
        let (rounds, ms, least_samples) = if options.quick { (3, 60, 2) } else { (5, 200, 3) };
        Self {
            rounds: options.rounds.unwrap_or(rounds),
            budget: (options.quick && options.rounds.is_none()).then_some(QUICK_BUDGET),
            time: Duration::from_millis(ms),
            warm_up: Duration::from_millis(ms / 4),
            least_samples,
        }
    }

    /// Runs something until its time is over, or Ctrl-C, and gives the samples in seconds. `run` gives the time of one
    /// run.
    pub(crate) fn take(
        &self,
        interrupt: &Interrupt,
        mut run: impl FnMut() -> Result<Duration>,
    ) -> Result<Vec<f64>> {
        let start = Instant::now();
        let mut last = run()?;
        while start.elapsed() < self.warm_up && !interrupt.requested() {
            last = run()?;
        }
        let per_sample = SHORT.as_nanos().div_ceil(last.as_nanos().max(1)).min(1000) as u32;
        let mut samples = Vec::new();
        let start = Instant::now();
        while !interrupt.requested() {
            let mut sum = Duration::ZERO;
            for _ in 0..per_sample {
                sum += run()?;
            }
            samples.push(sum.as_secs_f64() / f64::from(per_sample));
            let enough = samples.len() >= self.least_samples && start.elapsed() >= self.time;
            if enough || samples.len() >= MOST_SAMPLES {
                break;
            }
        }
        Ok(samples)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampling() -> Sampling {
        Sampling {
            rounds: 1,
            budget: None,
            time: Duration::ZERO,
            warm_up: Duration::ZERO,
            least_samples: 3,
        }
    }

    #[test]
    fn the_first_run_is_left_out_and_short_runs_share_a_sample() {
        let interrupt = Interrupt::never();
        let mut runs = 0;
        let mut run = |time: Duration| {
            sampling().take(&interrupt, || {
                runs += 1;
                Ok(if runs == 1 { 2 * time } else { time })
            })
        };
        assert_eq!(run(Duration::from_millis(1)).unwrap(), [0.001; 3]);
        assert_eq!(runs, 4);
        runs = 0;
        let samples = sampling().take(&interrupt, || {
            runs += 1;
            Ok(Duration::from_micros(25))
        });
        assert_eq!(samples.unwrap().len(), 3);
        assert_eq!(runs, 1 + 3 * 2);
    }

    #[test]
    fn what_fails_is_not_measured() {
        let failing = sampling().take(&Interrupt::never(), || anyhow::bail!("no"));
        assert_eq!(failing.unwrap_err().to_string(), "no");
    }
}
