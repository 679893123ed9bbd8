//! Measurements of backends: summaries by op and timelines.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::op_cost::OpCost;

/// The measurements of an executor. It takes them only on request.
///
/// An executor of several backends has one summary and one timeline for each of them: their times
/// overlap, so they have no meaningful sum.
pub trait Telemetry {
    /// Starts or stops profiling: each backend times every op, which costs some speed. Starting
    /// discards earlier measurements.
    fn profile(&mut self, on: bool);

    /// Records a timeline while profiling is on: the start and duration of each op on each thread
    /// or device. Call [`Self::profile`] first. A timeline holds about `max_events` events;
    /// batches beyond that are dropped whole. Returns false if profiling is off.
    fn record_timeline(&mut self, max_events: usize) -> bool;

    /// The recorded timeline of each backend; empty if none was recorded.
    fn timelines(&mut self) -> Vec<Timeline>;

    /// The summary of each backend since profiling started; empty if profiling is off.
    fn summaries(&mut self) -> Vec<BackendExecutionSummary>;
}

/// Measurements of one backend since [`Telemetry::profile`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackendExecutionSummary {
    /// Name and hardware of the backend.
    pub backend: String,
    /// Number of batches.
    pub batches: u64,
    /// Number of tokens of all batches.
    pub tokens: u64,
    /// Total time of the batches, each from the call to its result.
    pub time: Duration,
    /// Totals by [`Op::name`](crate::Op::name). Their times sum to less than [`Self::time`], which
    /// also includes copies and synchronisation.
    pub ops: BTreeMap<&'static str, OpSummary>,
    /// Bytes of activations that came from another backend ([`Batch::input`](crate::Batch::input)).
    pub input_bytes: u64,
}

/// Totals of the ops with one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpSummary {
    /// Number of runs.
    pub count: u64,
    /// Total time.
    pub time: Duration,
    /// Total cost.
    pub cost: OpCost,
    /// Number of kernel launches; 0 on the CPU.
    pub launches: u64,
}

/// The events of one backend, recorded after [`Telemetry::record_timeline`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    /// Name and hardware of the backend.
    pub backend: String,
    /// On a CPU, one track for each thread. On a device, a track of the ops, one of the calls that
    /// queue them and one of the copies.
    pub tracks: Vec<TimelineTrack>,
    /// Number of batches that were not recorded because the timeline was full.
    pub dropped_batches: u64,
}

/// A sequence of events.
#[derive(Clone, Debug, PartialEq)]
pub struct TimelineTrack {
    /// A name such as `thread 1`.
    pub name: String,
    /// Kind of the events.
    pub kind: TrackKind,
    /// Events in the order of their start times, without overlaps.
    pub events: Vec<TimelineEvent>,
}

/// Kind of the events of a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TrackKind {
    /// Ops. On a CPU an event is one thread's share of an op; the thread waits between events.
    Ops,
    /// Calls on the host that queue work on a device.
    Launches,
    /// Copies between host and device.
    Transfers,
}

/// A span of time with a name.
#[derive(Clone, Debug, PartialEq)]
pub struct TimelineEvent {
    /// [`Op::name`](crate::Op::name), the name of the launched kernel, or `h2d` or `d2h` for a
    /// copy.
    pub name: &'static str,
    /// The weight or layer that distinguishes events of the same name; may be empty.
    pub detail: Arc<str>,
    /// Start on the host's clock.
    pub start: Instant,
    /// Time from start to end.
    pub duration: Duration,
    /// Index of the batch.
    pub batch: u64,
    /// Copied bytes; 0 for events other than copies.
    pub bytes: u64,
}

impl BackendExecutionSummary {
    /// Number of op runs.
    pub fn op_count(&self) -> u64 {
        self.ops.values().map(|op| op.count).sum()
    }

    /// Adds the cost and the number of launches of the ops with a name.
    pub fn add_cost(&mut self, name: &'static str, cost: OpCost, launches: u64) {
        let op = self.ops.entry(name).or_default();
        op.cost += cost;
        op.launches += launches;
    }

    /// Adds `count` runs of the ops with a name, `time` in total.
    pub fn add_op(&mut self, name: &'static str, count: u64, time: Duration) {
        let op = self.ops.entry(name).or_default();
        op.count += count;
        op.time += time;
    }
}
