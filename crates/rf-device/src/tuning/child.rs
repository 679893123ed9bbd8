//! The work of the child process: makes the trials and writes a line before and after each.

use std::io::Write;

use rf_graph::BackendError;
use rf_hip::{Platform, Runtime};
use rf_kernels::tune::{Subject, TrialVerdict, trials};
use rf_kernels::{GpuBackend, GpuOptions};

use super::digest_text;
use super::run::{TrialEnd, TrialName, TunePlan, TuneSubject, TuningMessage};
use crate::error::sentence;
use crate::lines::write_line;

/// Makes the trials of a plan but the first `skip` on the GPU with that ordinal.
///
/// # Errors
///
/// If the GPU cannot be opened, or writing fails.
pub fn answer(
    (platform, ordinal): (Platform, usize),
    plan: &TunePlan,
    skip: usize,
    mut out: impl Write,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let options = GpuOptions::default().with_ordinal(ordinal);
    let backend = GpuBackend::on(&Runtime::load_platform(platform)?, options)?;
    let subjects: Vec<Subject> = plan.subjects.iter().filter_map(TuneSubject::subject).collect();
    let named = trials(&backend, &subjects).into_iter().map(|trial| {
        let code = backend.code_digest(trial.knob(), trial.format()).unwrap_or_default();
        let name = TrialName {
            knob: trial.knob().name().to_owned(),
            format: trial.format().name().to_owned(),
            value: trial.value(),
            code: digest_text(code),
        };
        (name, trial)
    });
    let failed = |name: &TrialName| {
        plan.failures.iter().any(|failure| {
            (&failure.knob, &failure.format, &failure.code, failure.value)
                == (&name.knob, &name.format, &name.code, name.value)
        })
    };
    let is_wanted = |name: &TrialName| plan.selects(&name.knob, &name.format) && !failed(name);
    let trials: Vec<_> = named.filter(|(name, _)| is_wanted(name)).collect();
    write_line(&mut out, &TuningMessage::Open(trials.len()))?;
    for (name, trial) in trials.into_iter().skip(skip) {
        write_line(&mut out, &TuningMessage::Begin(name))?;
        let result = trial.run(&backend, plan.block);
        let is_lost = result.as_ref().is_err_and(BackendError::is_of_device);
        let end = match result {
            Ok(TrialVerdict::Measured(comparison)) => comparison.into(),
            Ok(TrialVerdict::Wrong { nmse, allowed }) => {
                TrialEnd::Failed(format!("wrong results: NMSE {nmse:.1e}, allowed {allowed:.1e}"))
            }
            Ok(_) => TrialEnd::NotMeasured("it did not run".to_owned()),
            Err(error) if is_lost => TrialEnd::Failed(sentence(&error)),
            Err(error) => TrialEnd::NotMeasured(sentence(&error)),
        };
        write_line(&mut out, &TuningMessage::End(end))?;
        if is_lost {
            break;
        }
    }
    Ok(())
}
