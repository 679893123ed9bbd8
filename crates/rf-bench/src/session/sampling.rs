//! Number of rounds, runs and samples of a benchmark.

use std::time::{Duration, Instant};

use crate::{Error, Interrupt};

/// Time for each benchmark in each round over all benchmarks.
///
/// Clock frequencies and the load of other processes change more slowly than one benchmark runs.
/// With several rounds such drift is a difference between rounds, which counts as noise and not as
/// a change of the code.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sampling {
    /// Rounds over all benchmarks.
    pub(super) rounds: usize,
    /// Time limit for all rounds; the remaining rounds are dropped when it is spent.
    pub(super) budget: Option<Duration>,
    /// Time for the samples of a benchmark in a round.
    time: Duration,
    /// Time for the runs before the samples, which are discarded.
    warm_up: Duration,
    /// Smallest number of samples, taken even when `time` is spent.
    min_samples: usize,
}

/// Runs shorter than this share a sample, which is their mean. That reduces the effect of timer
/// overhead and resolution.
const SHORT: Duration = Duration::from_micros(50);

/// Time limit for the rounds of `--quick`. The rest of its minute is for the roofline limits and
/// model loading, on a slow or busy machine too.
const QUICK_BUDGET: Duration = Duration::from_secs(42);

/// Largest number of samples in a round, enough for a 99th percentile.
const MAX_SAMPLES: usize = 200;

impl Sampling {
    /// The sampling of a quick or a whole run, with a number of rounds other than the default.
    pub(super) fn new(quick: bool, rounds: Option<usize>) -> Self {
        let (default, ms, min_samples) = if quick { (3, 60, 2) } else { (5, 200, 3) };
        Self {
            rounds: rounds.unwrap_or(default),
            budget: (quick && rounds.is_none()).then_some(QUICK_BUDGET),
            time: Duration::from_millis(ms),
            warm_up: Duration::from_millis(ms / 4),
            min_samples,
        }
    }

    /// Takes samples until the time is spent or Ctrl-C is pressed, and returns them in seconds.
    /// `run` returns the time of one run.
    pub(super) fn take(
        &self,
        interrupt: &Interrupt,
        mut run: impl FnMut() -> Result<Duration, Error>,
    ) -> Result<Vec<f64>, Error> {
        let start = Instant::now();
        let mut last = run()?;
        while start.elapsed() < self.warm_up && !interrupt.is_requested() {
            last = run()?;
        }
        let per_sample = SHORT.as_nanos().div_ceil(last.as_nanos().max(1)).min(1000) as u32;
        let mut samples = Vec::new();
        let start = Instant::now();
        while !interrupt.is_requested() {
            let mut sum = Duration::ZERO;
            for _ in 0..per_sample {
                sum += run()?;
            }
            samples.push(sum.as_secs_f64() / f64::from(per_sample));
            let enough = samples.len() >= self.min_samples && start.elapsed() >= self.time;
            if enough || samples.len() >= MAX_SAMPLES {
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
            min_samples: 3,
        }
    }

    #[test]
    fn the_first_run_is_discarded_and_short_runs_share_a_sample() {
        let interrupt = Interrupt::default();
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
    fn an_error_of_a_run_is_returned() {
        let failing =
            sampling().take(&Interrupt::default(), || Err(Error::Unsupported("no".into())));
        assert_eq!(failing.unwrap_err().to_string(), "no");
    }
}
