//! The limit of the time of a step.

use std::time::Duration;

use rocmforge::engine::scheduler::WorkTime;

/// How long a step may take before the server ends, because the device no longer answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StepTimeout {
    /// 10 times as long as the longest step so far, and at least 30 seconds; 5 minutes before the
    /// first step has ended. Only for models that a GPU computes: a CPU may be slow, but never
    /// hangs.
    #[default]
    Auto,
    /// This long, whatever computes the model.
    After(Duration),
    /// For ever.
    Never,
}

const USUAL_TIMES: u32 = 10;
const LEAST: Duration = Duration::from_secs(30);
const FIRST: Duration = Duration::from_mins(5);

impl StepTimeout {
    /// The limit for a step of a model; `None` if there is none.
    pub(crate) fn limit(self, on_gpu: bool, time: WorkTime) -> Option<Duration> {
        match self {
            Self::Auto if on_gpu => {
                Some(time.longest.map_or(FIRST, |longest| LEAST.max(longest * USUAL_TIMES)))
            }
            Self::After(limit) => Some(limit),
            Self::Auto | Self::Never => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_follows_from_the_longest_step() {
        let seconds = Duration::from_secs;
        let time = |longest: Option<u64>| {
            let mut time = WorkTime::default();
            time.longest = longest.map(seconds);
            time
        };
        for (timeout, on_gpu, longest, expected) in [
            (StepTimeout::Auto, true, None, Some(300)),
            (StepTimeout::Auto, true, Some(1), Some(30)),
            (StepTimeout::Auto, true, Some(20), Some(200)),
            (StepTimeout::Auto, false, Some(20), None),
            (StepTimeout::After(seconds(7)), false, Some(20), Some(7)),
            (StepTimeout::After(seconds(7)), true, None, Some(7)),
            (StepTimeout::Never, true, Some(1), None),
        ] {
            let limit = timeout.limit(on_gpu, time(longest));
            assert_eq!(limit, expected.map(seconds), "{timeout:?} {on_gpu} {longest:?}");
        }
    }
}
