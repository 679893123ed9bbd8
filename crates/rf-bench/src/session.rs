//! A run: rounds of measurements over the benchmarks of a plan.

mod evaluation;
mod first_token;
mod inference;
mod rounds;
mod samples;
mod sampling;

use rf_profile::baseline::Timestamp;

pub use self::rounds::MeasurementSession;
use self::rounds::Sampler;
use crate::results::{FORMAT, Run, VERSION};
use crate::{Error, Interrupt, MeasurementProgress, machine};

/// The result of a session.
#[derive(Debug)]
pub struct Measurement {
    /// The results.
    pub run: Run,
    /// Rounds over the benchmarks. An interrupt may have ended the last one early.
    pub rounds: usize,
    /// Rounds that the time budget left out.
    pub omitted_rounds: usize,
    /// The error that ended the measurement early. The run has the samples before it.
    pub failure: Option<Error>,
}

/// Measures every benchmark of the plan once per round. An interrupt ends the measurement after the
/// current run.
pub fn measure(
    session: &MeasurementSession<'_>,
    interrupt: &Interrupt,
    progress: &mut dyn FnMut(MeasurementProgress<'_>),
) -> Measurement {
    let mut run = empty_run(session);
    let mut sampler = Sampler::new(session, interrupt);
    let failure = sampler.run(progress).err();
    for (benchmark, samples) in session.plan.benchmarks.iter().zip(&sampler.samples) {
        evaluation::add(&mut run, benchmark, samples);
    }
    run.monitor = evaluation::watches(&sampler.watched);
    let Sampler { rounds, omitted_rounds, .. } = sampler;
    Measurement { run, rounds, omitted_rounds, failure }
}

fn empty_run(session: &MeasurementSession<'_>) -> Run {
    Run {
        format: FORMAT.to_owned(),
        version: VERSION,
        timestamp: Timestamp::now(),
        build: machine::build(session.root, session.target),
        device: session.target.device(),
        backend: session.target.backend().description(),
        model: session.model.map(|model| model.id.clone()),
        quick: session.quick,
        hardware: session.hardware.clone(),
        limits: session.limits.clone(),
        results: Vec::new(),
        skipped: Vec::new(),
        missing: Vec::new(),
        monitor: Vec::new(),
    }
}
