//! Finds a device that has stopped answering.
//!
//! A kernel that hangs, or a driver that lost its card, never ends a step: the thread of the engine
//! waits for ever, and no request gets another token. Only a new process helps. So the server tells
//! its health, cuts running requests off and ends with an error, and a supervisor such as systemd
//! starts it again.

use std::sync::Arc;
use std::time::Duration;

use rocmforge::engine::scheduler::WorkTime;

use crate::error::Error;
use crate::generator::Generator;
use crate::state::App;

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
    fn limit(self, on_gpu: bool, time: WorkTime) -> Option<Duration> {
        match self {
            Self::Auto if on_gpu => {
                Some(time.longest.map_or(FIRST, |longest| LEAST.max(longest * USUAL_TIMES)))
            }
            Self::After(limit) => Some(limit),
            Self::Auto | Self::Never => None,
        }
    }
}

/// The time between two looks. A limit may be exceeded by it.
const PERIOD: Duration = Duration::from_secs(1);
/// The time in which clients and load balancers learn of the end.
const NOTICE: Duration = Duration::from_secs(2);

/// Completes with an error when a step takes too long.
pub(crate) async fn watch(app: &Arc<App>) -> Error {
    let period = match app.options().step_timeout {
        StepTimeout::Never => return std::future::pending().await,
        StepTimeout::After(limit) => PERIOD.min(limit),
        StepTimeout::Auto => PERIOD,
    };
    let error = loop {
        tokio::time::sleep(period).await;
        let mut generators = app.catalog().list().into_iter().filter_map(|model| model.generator());
        if let Some(error) = generators.find_map(|model| hung(app, &model)) {
            break error;
        }
    };
    tracing::error!(%error, "the server ends");
    app.set_hung();
    app.cut_off();
    tokio::time::sleep(NOTICE).await;
    error
}

/// The error of a model whose step takes too long.
fn hung(app: &App, model: &Generator) -> Option<Error> {
    let time = model.handle().work_time();
    let on_gpu = model.loaded_model().layers().gpu.is_some();
    let limit = app.options().step_timeout.limit(on_gpu, time)?;
    let current = time.current.filter(|current| *current > limit)?;
    Some(Error::Hung { model: model.id().to_owned(), seconds: current.as_secs() })
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
