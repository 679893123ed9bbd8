//! A timer for cases that reads the executor's profile.

use std::time::Duration;

use rf_graph::{Backend, BackendError, Executor, Output, Peak, Program, Telemetry};

use super::definition::Case;
use super::schedule::CaseBatch;
use super::speed;

/// A compiled case with a full cache, ready to run its timed batch.
pub struct Timer {
    executor: Box<dyn Executor>,
    batch: CaseBatch,
    op: String,
    /// The op's total time at the last call of [`Timer::op_time`].
    before: Duration,
}

impl Timer {
    /// Compiles a program of the case, and runs all batches but the timed one.
    ///
    /// # Errors
    ///
    /// The error of the backend.
    pub fn new(backend: &dyn Backend, case: &Case, program: Program) -> Result<Self, BackendError> {
        let mut executor = backend.compile(program, &mut |_| ())?;
        let fill = &case.batches()[..case.batches().len() - 1];
        for batch in fill {
            batch.with_output_rows(&[], |batch| executor.forward(batch, Output::rows(&mut [])))?;
            executor.wait()?;
        }
        let (batch, op) = (case.timed_batch().clone(), case.op().to_owned());
        Ok(Self { executor, batch, op, before: Duration::ZERO })
    }

    /// Starts the executor's profile. False if the backend has none.
    pub fn profile(&mut self) -> bool {
        self.before = Duration::ZERO;
        self.executor.telemetry().map(|telemetry| telemetry.profile(true)).is_some()
    }

    /// Runs the timed batch, without output.
    ///
    /// # Errors
    ///
    /// The error of the backend.
    pub fn step(&mut self) -> Result<(), BackendError> {
        self.batch
            .with_output_rows(&[], |batch| self.executor.forward(batch, Output::rows(&mut [])))?;
        self.executor.wait()
    }

    /// Runs the timed batch and returns the time of all copies of the op, by the executor's
    /// profile. Zero before [`Self::profile`].
    ///
    /// # Errors
    ///
    /// The error of the backend.
    pub fn op_time(&mut self) -> Result<Duration, BackendError> {
        self.step()?;
        let summaries = self.executor.telemetry().map_or_else(Vec::new, Telemetry::summaries);
        let ops = summaries.iter().filter_map(|summary| summary.ops.get(self.op.as_str()).copied());
        let after: Duration = ops.map(|op| op.time).sum();
        let time = after.saturating_sub(self.before);
        self.before = after;
        Ok(time)
    }
}

/// Measures the arithmetic throughput of a backend: the best run of each compute-bound matmul. For
/// backends whose arithmetic units cannot be measured directly.
///
/// A matmul that the backend does not support, or that does not fit in memory, is left out.
///
/// # Errors
///
/// [`BackendError::Device`] if the device fails.
pub fn measure_peak(backend: &dyn Backend) -> Result<Peak, BackendError> {
    let [f32, int8] = speed::compute_bound().map(|case| operations_per_s(backend, &case));
    Ok(Peak { f32_operations_per_s: f32?, int8_operations_per_s: int8? })
}

fn operations_per_s(backend: &dyn Backend, case: &Case) -> Result<Option<f64>, BackendError> {
    const RUNS: usize = 8;
    let program = case.timed_program(1);
    let mut timer = match Timer::new(backend, case, program) {
        Ok(timer) => timer,
        Err(BackendError::Unsupported { .. } | BackendError::OutOfMemory { .. }) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    if !timer.profile() {
        return Ok(None);
    }
    let mut best: Option<Duration> = None;
    for _ in 0..RUNS {
        let time = timer.op_time()?;
        if !time.is_zero() {
            best = Some(best.map_or(time, |best| best.min(time)));
        }
    }
    Ok(best.map(|best| case.cost().operations() as f64 / best.as_secs_f64()))
}
