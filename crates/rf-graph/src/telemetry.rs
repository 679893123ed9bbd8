//! What backends did, for reports.

use std::collections::BTreeMap;
use std::time::Duration;

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
}

impl BackendExecutionSummary {
    /// Ops that ran.
    pub fn op_count(&self) -> u64 {
        self.ops.values().map(|op| op.count).sum()
    }

    /// Counts an op that ran `count` times.
    pub fn add_op(&mut self, name: &'static str, count: u64, time: Duration) {
        let op = self.ops.entry(name).or_default();
        op.count += count;
        op.time += time;
    }
}
