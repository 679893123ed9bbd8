//! Selection of the largest elements of output rows on the device.

use rf_hip::{Context, DeviceBuffer, Stream};

use crate::error::Error;
use crate::launch::LaunchList;
use crate::params::{Address, ArgmaxParams, MAX_TOP_K, TopKParams, argmax_parts, top_k_parts};

/// Longest row that the kernels support.
const MAX_ROW: usize = 1 << 20;

/// Rows of a launch. More rows take several launches, which share the memory.
const ROWS_AT_ONCE: usize = 64;

/// Symbols of the kernels.
pub(super) const KERNELS: [&str; 2] = ["argmax_f32", "top_k_f32"];

/// The largest `k` for rows of `width` elements.
pub(super) fn max_top_k(width: usize) -> usize {
    if width <= MAX_ROW { width.min(MAX_TOP_K as usize) } else { 0 }
}

/// Elements of the buffers of [`TopK`].
#[derive(Clone, Copy)]
struct Sizes {
    rows: usize,
    candidates: usize,
    scratch: usize,
}

impl Sizes {
    /// For the largest `k` of rows of `width` elements.
    fn new(width: usize, max_rows: usize) -> Self {
        let (rows, k) = (max_rows.clamp(1, ROWS_AT_ONCE), max_top_k(width));
        let parts =
            (top_k_parts(width as u32) as usize * k).max(argmax_parts(width as u32) as usize);
        Self { rows, candidates: rows * k, scratch: if k > 0 { rows * parts } else { 0 } }
    }
}

/// Buffers of the kernels, for any request.
pub(super) struct TopK {
    probabilities: DeviceBuffer<f32>,
    scratch: DeviceBuffer<u64>,
    counters: DeviceBuffer<u32>,
}

/// A selection.
#[derive(Clone, Copy)]
pub(super) struct TopKRequest {
    /// `[rows, width]`: logits.
    pub(super) logits: Address,
    pub(super) rows: usize,
    pub(super) width: usize,
    pub(super) k: usize,
    /// Host memory: `[rows, k]` ids.
    pub(super) ids: Address,
    /// Host memory: `[rows, k]` logits.
    pub(super) values: Address,
    /// The stamp of the step.
    pub(super) stamp: Address,
    /// Host memory: `[rows]` stamps.
    pub(super) stamps: Address,
}

impl TopK {
    /// Bytes for rows of `width` elements.
    pub(super) fn bytes(width: usize, max_rows: usize) -> usize {
        let Sizes { rows, candidates, scratch } = Sizes::new(width, max_rows);
        4 * candidates + 8 * scratch + 4 * rows
    }

    pub(super) fn new(context: &Context, width: usize, max_rows: usize) -> Result<Self, Error> {
        let Sizes { rows, candidates, scratch } = Sizes::new(width, max_rows);
        Ok(Self {
            probabilities: DeviceBuffer::new(context, candidates)?,
            scratch: DeviceBuffer::new(context, scratch)?,
            counters: DeviceBuffer::zeroed(context, rows)?,
        })
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.probabilities.size_bytes() + self.scratch.size_bytes() + self.counters.size_bytes()
    }

    /// Queues the reset of the counters, which launches that did not finish leave above 0.
    pub(super) fn reset_counters(&self, stream: &Stream) -> Result<(), Error> {
        Ok(self.counters.fill_zero(stream)?)
    }

    /// Records the launches of a selection.
    pub(super) fn record(&self, request: TopKRequest, launches: &mut LaunchList) {
        let TopKRequest { rows, width, k, .. } = request;
        for first in (0..rows).step_by(ROWS_AT_ONCE) {
            let words = |count: usize| 4 * count as Address;
            let part = TopKRequest {
                logits: request.logits + words(first * width),
                rows: (rows - first).min(ROWS_AT_ONCE),
                ids: request.ids + words(first * k),
                values: request.values + words(first * k),
                stamps: request.stamps + words(first),
                ..request
            };
            self.record_part(part, launches);
        }
    }

    fn record_part(&self, request: TopKRequest, launches: &mut LaunchList) {
        let TopKRequest { logits, rows, width, k, ids, values, stamp, stamps } = request;
        if k == 1 {
            let params = ArgmaxParams {
                logits,
                ids,
                values,
                scratch: self.scratch.address(),
                counters: self.counters.address(),
                stamp,
                stamps,
                rows: rows as u32,
                vocab_size: width as u32,
                parts: argmax_parts(width as u32),
                reserved: 0,
            };
            launches.push(params.launch(), params);
            return;
        }
        let params = TopKParams {
            logits,
            ids,
            values,
            probabilities: self.probabilities.address(),
            scratch: self.scratch.address(),
            counters: self.counters.address(),
            stamp,
            stamps,
            rows: rows as u32,
            vocab_size: width as u32,
            k: k as u32,
            parts: top_k_parts(width as u32),
            temperature: 1.0,
            reserved: 0,
        };
        launches.push(params.launch(), params);
    }
}
