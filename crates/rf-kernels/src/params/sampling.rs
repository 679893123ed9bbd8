//! Twin of `kernels/include/rf/params/sampling.h`.

use bytemuck::{Pod, Zeroable};

use super::{Address, Launch};

/// Largest `k` of [`TopKParams`].
pub const MAX_TOP_K: u32 = 256;

/// Threads of a workgroup of [`ArgmaxParams`].
const ARGMAX_THREADS: u32 = 256;

/// Threads of a workgroup of [`TopKParams`].
const TOP_K_THREADS: u32 = 1024;

/// The largest logit of each row, the lowest id among equals; NaN counts as −∞.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct ArgmaxParams {
    /// `[rows, vocab_size]` f32.
    pub logits: Address,
    /// `[rows]` u32 in host memory.
    pub ids: Address,
    /// `[rows]` f32 in host memory: their logits.
    pub values: Address,
    /// `[rows, parts]` u64.
    pub scratch: Address,
    /// `[rows]` u32: 0 before and after.
    pub counters: Address,
    /// u32: the stamp of the step, see [`LoadStepParams`](super::LoadStepParams).
    pub stamp: Address,
    /// `[rows]` u32 in host memory: the stamp, after the results of a row.
    pub stamps: Address,
    /// Number of rows.
    pub rows: u32,
    /// Logits per row.
    pub vocab_size: u32,
    /// Workgroups per row, from [`argmax_parts`].
    pub parts: u32,
    /// Zero.
    pub reserved: u32,
}

impl ArgmaxParams {
    /// The launch: parts of rows in x, rows in y.
    pub fn launch(&self) -> Launch {
        by_part("argmax_f32", self.parts, self.rows, ARGMAX_THREADS)
    }
}

/// Workgroups per row of [`ArgmaxParams`]: about eight logits per thread.
pub fn argmax_parts(vocab_size: u32) -> u32 {
    vocab_size.div_ceil(8 * ARGMAX_THREADS).clamp(1, 64)
}

/// The `k` largest logits of each row in the order of [`ArgmaxParams`], and their softmax.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct TopKParams {
    /// `[rows, vocab_size]` f32.
    pub logits: Address,
    /// `[rows, k]` u32 in host memory.
    pub ids: Address,
    /// `[rows, k]` f32 in host memory: their logits.
    pub values: Address,
    /// `[rows, k]` f32: softmax of `values / temperature`.
    pub probabilities: Address,
    /// `[rows, parts, k]` u64.
    pub scratch: Address,
    /// `[rows]` u32: 0 before and after.
    pub counters: Address,
    /// u32: the stamp of the step, see [`LoadStepParams`](super::LoadStepParams).
    pub stamp: Address,
    /// `[rows]` u32 in host memory: the stamp, after the results of a row.
    pub stamps: Address,
    /// Number of rows.
    pub rows: u32,
    /// Logits per row, at most 2²⁰.
    pub vocab_size: u32,
    /// Selected logits per row, at most [`MAX_TOP_K`] and `vocab_size`.
    pub k: u32,
    /// Workgroups per row, from [`top_k_parts`].
    pub parts: u32,
    /// Temperature of the softmax, above 0.
    pub temperature: f32,
    /// Zero.
    pub reserved: u32,
}

impl TopKParams {
    /// The launch: parts of rows in x, rows in y.
    pub fn launch(&self) -> Launch {
        by_part("top_k_f32", self.parts, self.rows, TOP_K_THREADS)
    }
}

/// Workgroups per row of [`TopKParams`]: four logits per thread, but at most 64 workgroups, the
/// limit of the workgroup that merges the parts.
pub fn top_k_parts(vocab_size: u32) -> u32 {
    vocab_size.div_ceil(4 * TOP_K_THREADS).clamp(1, 64)
}

fn by_part(kernel: &'static str, parts: u32, rows: u32, threads: u32) -> Launch {
    Launch { kernel, grid: [parts, rows, 1], block: [threads, 1, 1], lds_bytes: 0 }
}
