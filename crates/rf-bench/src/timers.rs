//! The overhead of timers and spans.

use std::hint::black_box;
use std::time::{Duration, Instant};

use rf_profile::{SpanRecorder, Timings};
use tracing_subscriber::layer::SubscriberExt;

use crate::{Clock, Prepared};

/// Timers in a run, enough to make the overhead of the surrounding clock negligible.
pub const COUNT: u32 = 1000;

/// A timer whose overhead is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// A scope of `Timings`.
    Scoped,
    /// A `tracing` span that `SpanRecorder` records.
    Recorded,
    /// A disabled `tracing` span, the default in the engine.
    Off,
}

impl Timer {
    /// Every timer.
    pub const ALL: [Self; 3] = [Self::Scoped, Self::Recorded, Self::Off];

    /// The name in reports and baselines, stable across versions.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scoped => "launch/timer/scoped",
            Self::Recorded => "launch/timer/span-recorded",
            Self::Off => "launch/timer/span-off",
        }
    }

    /// Prepares the timer as a workload. The time of a run is the mean of [`COUNT`] timers.
    pub(crate) fn prepare(self) -> Prepared {
        Prepared::new(Clock::Host, move || Ok(self.run() / COUNT))
    }

    /// Measures the time of [`COUNT`] timers around an empty body.
    pub fn run(self) -> Duration {
        match self {
            Self::Scoped => {
                let timings = Timings::new();
                let start = Instant::now();
                for _ in 0..COUNT {
                    let _scope = timings.scope("span");
                }
                let elapsed = start.elapsed();
                black_box(timings.summaries());
                elapsed
            }
            Self::Recorded => {
                let (recorder, log) = SpanRecorder::new();
                let subscriber = tracing_subscriber::registry().with(recorder);
                let elapsed = tracing::subscriber::with_default(subscriber, spans);
                black_box(log.spans());
                elapsed
            }
            Self::Off => spans(),
        }
    }
}

/// Measures the time of [`COUNT`] spans under the current subscriber.
fn spans() -> Duration {
    let start = Instant::now();
    for tokens in 0..COUNT {
        let _span = tracing::debug_span!("batch", tokens = black_box(tokens)).entered();
    }
    start.elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_timer_takes_some_time() {
        for timer in [Timer::Scoped, Timer::Recorded] {
            assert!(timer.run() > Duration::ZERO, "{timer:?}");
        }
    }
}
