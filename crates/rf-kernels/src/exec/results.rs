//! The results of a step in host memory, where kernels of the step write them.
//!
//! Each part of a result has a place for the stamp of the step, which the kernel writes last. A
//! result whose stamps are those of another step is not used.

use std::sync::atomic::{Ordering, fence};

use rf_graph::Candidate;
use rf_hip::{Context, MappedBuffer, PinnedBuffer};

use super::step::BLOCKS;
use super::top_k::max_top_k;
use crate::error::Error;
use crate::params::{Address, StoreRowsParams};

/// Largest output that a kernel writes to host memory: 2 MiB. Larger outputs are copied after the
/// step, or written by several launches if another device reads them.
pub(super) const MAX_STORED_FLOATS: usize = 512 << 10;

/// Largest output that is copied through pinned memory. Larger outputs, as for perplexity, are
/// copied to pageable memory.
const PINNED_OUTPUT_FLOATS: usize = 4 << 20;

/// The memory of results.
pub(super) struct Results {
    /// `[BLOCKS][stamps]`: the stamps of steps by their block of inputs.
    stamps: MappedBuffer<u32>,
    /// Rows, or ids and then the bits of their logits.
    values: MappedBuffer<u32>,
    /// Rows that are copied.
    pub(super) rows: PinnedBuffer<f32>,
}

impl Results {
    /// Memory for outputs of up to `max_rows` rows of `width`, of which up to `max_output_rows` are
    /// rows of logits. A stage has at most `max_outputs` outputs.
    pub(super) fn new(
        context: &Context,
        width: usize,
        (max_rows, max_output_rows): (usize, usize),
        max_outputs: usize,
    ) -> Result<Self, Error> {
        let floats = max_rows * width;
        let candidates = 2 * max_output_rows * max_top_k(width);
        let stored = floats.min(MAX_STORED_FLOATS).max(candidates);
        let stamps =
            (StoreRowsParams::groups(MAX_STORED_FLOATS) + max_outputs).max(max_output_rows);
        Ok(Self {
            stamps: MappedBuffer::new(context, BLOCKS * stamps)?,
            values: MappedBuffer::new(context, stored)?,
            rows: PinnedBuffer::new(context, floats.min(PINNED_OUTPUT_FLOATS.max(width)))?,
        })
    }

    /// The address of the stamps of a block.
    pub(super) fn stamps(&self, block: usize) -> Address {
        self.stamps.device_address() + (4 * block * self.stamps_per_block()) as Address
    }

    /// The address of the values.
    pub(super) fn values(&self) -> Address {
        self.values.device_address()
    }

    fn stamps_per_block(&self) -> usize {
        self.stamps.len() / BLOCKS
    }

    /// Returns true if the first `count` stamps of a block are those of a step. The device is done
    /// with the step.
    pub(super) fn are_of(&self, block: usize, count: usize, stamp: u32) -> bool {
        // The kernels released the results before the stamps.
        let first = block * self.stamps_per_block();
        let fresh = (first..first + count).all(|i| self.stamps.read_volatile(i) == Ok(stamp));
        fence(Ordering::Acquire);
        fresh
    }

    /// Copies `out.len()` stored floats from `first`.
    pub(super) fn read_rows(&self, first: usize, out: &mut [f32]) {
        out.copy_from_slice(bytemuck::cast_slice(&self.values[first..first + out.len()]));
    }

    /// Copies the candidates of a selection of `all` candidates; `out` are the first ones.
    pub(super) fn read_candidates(&self, all: usize, out: &mut [Candidate]) {
        let (ids, logits) = self.values[..2 * all].split_at(all);
        for ((candidate, id), bits) in out.iter_mut().zip(ids).zip(logits) {
            *candidate = Candidate { id: *id, logit: f32::from_bits(*bits) };
        }
    }
}
