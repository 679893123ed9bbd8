//! Times of ops, by events around every launch.

use std::time::{Duration, Instant};

use rf_graph::{BackendExecutionSummary, Batch, Op};
use rf_hip::{Event, Stream};

use crate::error::Error;
use crate::launch::Recording;

/// Sums over all batches since it was made.
pub(super) struct Profile {
    summary: BackendExecutionSummary,
    /// One before each launch, one behind the last.
    events: Vec<Event>,
}

impl Profile {
    /// Of a backend by its name.
    pub(super) fn new(backend: String) -> Self {
        let summary = BackendExecutionSummary { backend, ..BackendExecutionSummary::default() };
        Self { summary, events: Vec::new() }
    }

    pub(super) fn summary(&self) -> BackendExecutionSummary {
        self.summary.clone()
    }

    /// Queues a recording with an event between any two launches.
    pub(super) fn queue(&mut self, recording: &Recording, stream: &Stream) -> Result<(), Error> {
        while self.events.len() <= recording.len() {
            self.events.push(Event::new(stream.context(), true)?);
        }
        recording.queue_between(stream, &self.events)
    }

    /// Takes in the times of a batch that has ended; the launches of an op stand together.
    pub(super) fn finish(
        &mut self,
        recording: &Recording,
        ops: &[Op],
        batch: &Batch<'_>,
        started: Instant,
    ) -> Result<(), Error> {
        let mut last = None;
        for (op, between) in recording.ops().zip(self.events.windows(2)) {
            let time_us = Event::elapsed_us(&between[0], &between[1])?;
            let time = Duration::from_secs_f64(time_us.max(0.0) * 1e-6);
            self.summary.add_op(ops[op].name(), u64::from(last != Some(op)), time);
            last = Some(op);
        }
        self.summary.time += started.elapsed();
        self.summary.batches += 1;
        self.summary.tokens += batch.ids.len() as u64;
        self.summary.input_bytes += batch.input.map_or(0, |rows| size_of_val(rows) as u64);
        Ok(())
    }
}
