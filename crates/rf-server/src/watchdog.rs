//! Finds a device that has stopped working.
//!
//! A kernel that hangs, or a driver that lost its card, never ends a step: the thread of the engine
//! waits for ever, and no request gets another token. A device that is lost fails in every step,
//! which happens after a suspend. Only a new process helps. So the server tells its health, cuts
//! running requests off and ends with an error, and a supervisor such as systemd starts it again.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::generator::Generator;
use crate::sleep_clock::SleepClock;
use crate::state::App;
use crate::step_timeout::StepTimeout;

/// The file with the time since the start of the machine, on Linux.
const UPTIME: &str = "/proc/uptime";
/// The time between two looks. A limit may be exceeded by it.
const PERIOD: Duration = Duration::from_secs(1);
/// The time in which clients and load balancers learn of the end.
const NOTICE: Duration = Duration::from_secs(2);

/// Steps after which a device that fails is lost: one may fail for another reason.
const FAILED_STEPS: u32 = 2;

/// Completes with an error when a step takes too long, or a device is lost.
pub(crate) async fn watch(app: &Arc<App>) -> Error {
    let period = match app.options().step_timeout {
        StepTimeout::After(limit) => PERIOD.min(limit),
        StepTimeout::Auto | StepTimeout::Never => PERIOD,
    };
    let clock = SleepClock::start(Path::new(UPTIME));
    let error = loop {
        tokio::time::sleep(period).await;
        let mut generators = app.catalog().list().into_iter().filter_map(|model| model.generator());
        let failed = |model: Arc<Generator>| hung(app, &model).or_else(|| lost(&model, &clock));
        if let Some(error) = generators.find_map(failed) {
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

/// The error of a model whose device fails. After a suspend the first failure is enough.
fn lost(model: &Generator, clock: &SleepClock) -> Option<Error> {
    let failure = model.handle().device_failure()?;
    let has_slept = clock.has_slept();
    (has_slept || failure.steps >= FAILED_STEPS).then(|| Error::DeviceLost {
        model: model.id().to_owned(),
        reason: failure.error,
        has_slept,
    })
}
