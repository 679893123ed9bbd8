//! Activations in device memory.

use rf_graph::Plan;
use rf_hip::{DeviceBuffer, Stream};

use super::analysis::{GraphAnalysis, SPARE_ROWS};
use super::program::ScratchAddresses;
use crate::error::Error;
use crate::params::{Activations, Address, Halves};

/// The arena of the plan, and memory that ops use while they run.
pub(super) struct Work {
    /// The arena of the plan.
    pub(super) arena: DeviceBuffer<f32>,
    /// Scratch operand of matmuls that quantise their input.
    operand: Q8Buffer,
    /// Scratch operand of f16 matmuls: the halves, then the scales of rows.
    halves: DeviceBuffer<f32>,
    /// The first float of the scales in `halves`.
    half_scales: usize,
    /// Partial results of attention with divided keys (sums and statistics), and of matmuls with
    /// divided columns.
    partials: DeviceBuffer<f32>,
    /// Counters of finished partial results.
    arrivals: DeviceBuffer<u32>,
    /// Slots of a mixture of experts, grouped by expert.
    groups: DeviceBuffer<u32>,
    /// The head of each row of an operand of heads.
    pub(super) head_rows: DeviceBuffer<f32>,
}

struct Q8Buffer {
    q: DeviceBuffer<i8>,
    meta: DeviceBuffer<f32>,
}

impl Q8Buffer {
    fn new(stream: &Stream, elements: usize) -> Result<Self, Error> {
        let context = stream.context();
        Ok(Self {
            q: DeviceBuffer::new(context, elements)?,
            meta: DeviceBuffer::new(context, elements / 16)?,
        })
    }

    fn params(&self) -> Activations {
        Activations { q: self.q.address(), meta: self.meta.address() }
    }
}

impl Work {
    /// Bytes of all buffers for the largest batch.
    pub(super) fn bytes(analysis: &GraphAnalysis, plan: &Plan, max_tokens: usize) -> usize {
        let operand = analysis.scratch_elements(max_tokens);
        let arena = plan.floats_per_row() * (max_tokens + SPARE_ROWS);
        let counts = analysis.arrival_count(max_tokens) + analysis.group_words(max_tokens);
        let floats = arena
            + analysis.partial_floats()
            + analysis.head_rows(max_tokens).len()
            + analysis.scratch_half_floats(max_tokens);
        4 * (floats + counts) + operand + operand / 4
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.arena.size_bytes()
            + self.operand.q.size_bytes()
            + self.operand.meta.size_bytes()
            + self.halves.size_bytes()
            + self.partials.size_bytes()
            + self.arrivals.size_bytes()
            + self.groups.size_bytes()
            + self.head_rows.size_bytes()
    }

    pub(super) fn new(
        stream: &Stream,
        analysis: &GraphAnalysis,
        plan: &Plan,
        max_tokens: usize,
    ) -> Result<Self, Error> {
        let context = stream.context();
        let arena = plan.floats_per_row() * (max_tokens + SPARE_ROWS);
        let heads = analysis.head_rows(max_tokens);
        let head_rows = DeviceBuffer::new(context, heads.len())?;
        head_rows.copy_from_slice(stream, 0, &heads)?;
        Ok(Self {
            head_rows,
            arena: DeviceBuffer::new(context, arena)?,
            operand: Q8Buffer::new(stream, analysis.scratch_elements(max_tokens))?,
            halves: DeviceBuffer::new(context, analysis.scratch_half_floats(max_tokens))?,
            half_scales: analysis.scratch_half_scales(max_tokens),
            partials: DeviceBuffer::new(context, analysis.partial_floats())?,
            arrivals: DeviceBuffer::zeroed(context, analysis.arrival_count(max_tokens))?,
            groups: DeviceBuffer::new(context, analysis.group_words(max_tokens))?,
        })
    }

    pub(super) fn scratch(&self) -> ScratchAddresses {
        ScratchAddresses {
            operand: self.operand.params(),
            halves: Halves {
                x: self.halves.address(),
                scale: self.halves.address() + 4 * self.half_scales as Address,
            },
            partials: self.partials.address(),
            arrivals: self.arrivals.address(),
            groups: self.groups.address(),
        }
    }

    /// Queues the reset of the counters, which launches that did not finish leave above 0.
    pub(super) fn reset_counters(&self, stream: &Stream) -> Result<(), Error> {
        Ok(self.arrivals.fill_zero(stream)?)
    }
}
