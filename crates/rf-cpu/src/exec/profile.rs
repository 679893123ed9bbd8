//! Times of steps, taken by the first member of the team: after each barrier all have finished a step.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rf_graph::{BackendExecutionSummary, Op};

/// Sums over all batches since it was made.
pub(super) struct Profile {
    /// Nanoseconds by step.
    steps_ns: Vec<AtomicU64>,
    time_ns: AtomicU64,
    batches: AtomicU64,
    tokens: AtomicU64,
    input_bytes: AtomicU64,
}

/// The time of one batch is being taken.
pub(super) struct BatchClock<'a> {
    profile: &'a Profile,
    started: Instant,
}

/// Where the times of steps go.
#[derive(Clone, Copy)]
pub(super) struct StepTimes<'a>(&'a [AtomicU64]);

/// Takes the time between laps.
pub(super) struct Stopwatch<'a> {
    steps_ns: &'a [AtomicU64],
    last: Instant,
}

impl Profile {
    pub(super) fn new(steps: usize) -> Self {
        Self {
            steps_ns: (0..steps).map(|_| AtomicU64::new(0)).collect(),
            time_ns: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            tokens: AtomicU64::new(0),
            input_bytes: AtomicU64::new(0),
        }
    }

    pub(super) fn start(&self) -> BatchClock<'_> {
        BatchClock { profile: self, started: Instant::now() }
    }

    /// `ops` are those of the steps.
    pub(super) fn summary(&self, backend: String, ops: &[Op]) -> BackendExecutionSummary {
        let load = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
        let batches = load(&self.batches);
        let mut summary = BackendExecutionSummary {
            backend,
            batches,
            tokens: load(&self.tokens),
            time: Duration::from_nanos(load(&self.time_ns)),
            input_bytes: load(&self.input_bytes),
            ..BackendExecutionSummary::default()
        };
        for (op, step_ns) in ops.iter().zip(&self.steps_ns) {
            summary.add_op(op.name(), batches, Duration::from_nanos(load(step_ns)));
        }
        summary
    }
}

impl<'a> BatchClock<'a> {
    pub(super) fn step_times(&self) -> StepTimes<'a> {
        StepTimes(&self.profile.steps_ns)
    }

    pub(super) fn stop(self, tokens: usize, input_bytes: usize) {
        let profile = self.profile;
        add(&profile.time_ns, nanoseconds(self.started));
        add(&profile.batches, 1);
        add(&profile.tokens, tokens as u64);
        add(&profile.input_bytes, input_bytes as u64);
    }
}

impl<'a> StepTimes<'a> {
    pub(super) fn stopwatch(self) -> Stopwatch<'a> {
        Stopwatch { steps_ns: self.0, last: Instant::now() }
    }
}

impl Stopwatch<'_> {
    /// What passed since the last lap was step `step`.
    pub(super) fn lap(&mut self, step: usize) {
        add(&self.steps_ns[step], nanoseconds(self.last));
        self.last = Instant::now();
    }
}

fn add(sum: &AtomicU64, value: u64) {
    sum.fetch_add(value, Ordering::Relaxed);
}

fn nanoseconds(since: Instant) -> u64 {
    since.elapsed().as_nanos().try_into().unwrap_or(u64::MAX)
}
