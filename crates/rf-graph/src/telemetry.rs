//! What backends did, for reports.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::op_cost::OpCost;

/// What one backend did while it was watched ([`Executor::profile`](crate::Executor::profile)).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackendExecutionSummary {
    /// Its name and what it runs on.
    pub backend: String,
    /// Batches.
    pub batches: u64,
    /// Tokens of all batches.
    pub tokens: u64,
    /// From handing over each batch to having its result, together.
    pub time: Duration,
    /// By [`Op::name`](crate::Op::name). Their times add up to less than [`Self::time`]: handing over and
    /// waiting belong to no op.
    pub ops: BTreeMap<&'static str, OpSummary>,
    /// Bytes of activations that came from another backend ([`Batch::input`](crate::Batch::input)).
    pub input_bytes: u64,
}

/// Ops of one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpSummary {
    /// How often one ran.
    pub count: u64,
    /// Together.
    pub time: Duration,
    /// Their cost, together.
    pub cost: OpCost,
    /// Launches on a device, together; 0 on the CPU.
    pub launches: u64,
}

/// What one backend did when: see [`Executor::record_timeline`](crate::Executor::record_timeline).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    /// Its name and what it runs on.
    pub backend: String,
    /// A track for each thread of the CPU; for a device one of its ops, one of the calls that queue them and one of the copies.
    pub tracks: Vec<TimelineTrack>,
    /// Batches of which nothing is kept, for lack of room: the last ones.
    pub dropped_batches: u64,
}

/// Events that follow each other.
#[derive(Clone, Debug, PartialEq)]
pub struct TimelineTrack {
    /// Such as `thread 1`.
    pub name: String,
    /// What its events are.
    pub kind: TrackKind,
    /// By their start; none overlaps the next.
    pub events: Vec<TimelineEvent>,
}

/// What the events of a track are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TrackKind {
    /// Ops; on a CPU the part of each that one thread did, the gaps being waits for the others.
    Ops,
    /// Calls on the host that queue work on a device.
    Launches,
    /// Copies between host and device.
    Transfers,
}

/// Something that took time.
#[derive(Clone, Debug, PartialEq)]
pub struct TimelineEvent {
    /// [`Op::name`](crate::Op::name), the kernel that is launched, or for a copy `h2d` or `d2h`.
    pub name: &'static str,
    /// What tells it from others of the name: a weight, a layer. Empty where nothing does.
    pub detail: Arc<str>,
    /// On the host's clock.
    pub start: Instant,
    /// Until its end.
    pub duration: Duration,
    /// Which batch it belongs to, counted from 0.
    pub batch: u64,
    /// Bytes that a copy moves; 0 for all else.
    pub bytes: u64,
}

impl BackendExecutionSummary {
    /// Ops that ran.
    pub fn op_count(&self) -> u64 {
        self.ops.values().map(|op| op.count).sum()
    }

    /// Adds what the ops of a name had to do, and took launches for.
    pub fn add_cost(&mut self, name: &'static str, cost: OpCost, launches: u64) {
        let op = self.ops.entry(name).or_default();
        op.cost += cost;
        op.launches += launches;
    }

    /// Counts an op that ran `count` times.
    pub fn add_op(&mut self, name: &'static str, count: u64, time: Duration) {
        let op = self.ops.entry(name).or_default();
        op.count += count;
        op.time += time;
    }
}
