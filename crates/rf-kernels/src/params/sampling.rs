//! Parameters and launches. `kernels/include/rf/params/sampling.h` is generated from the table.

use super::Launch;
use super::table::params;

/// Largest `k` of [`TopKParams`].
pub(crate) const MAX_TOP_K: u32 = 256;

/// Threads of a workgroup of [`ArgmaxParams`].
const ARGMAX_THREADS: u32 = 256;

/// Threads of a workgroup of [`TopKParams`].
const TOP_K_THREADS: u32 = 1024;

params! {
    /// The best token of each row: the largest logit, the lowest id among equals; NaN counts as −∞.
    struct ArgmaxParams {
        /// `[rows, vocab_size]`.
        logits: *const f32,
        /// `[rows]` in host memory.
        ids: *mut u32,
        /// `[rows]` in host memory: their logits.
        values: *mut f32,
        /// `[rows, parts]`.
        scratch: *mut u64,
        /// `[rows]`: 0 before and after.
        counters: *mut u32,
        /// The stamp of the step: see [`LoadStepParams`](super::LoadStepParams).
        stamp: *const u32,
        /// `[rows]` in host memory: the stamp, after the results of a row.
        stamps: *mut u32,
        /// Number of rows.
        rows: u32,
        /// Logits per row.
        vocab_size: u32,
        /// Workgroups per row, from [`argmax_parts`].
        parts: u32,
        /// Zero.
        reserved: u32,
    }

    /// The `k` largest logits of each row in the order of [`ArgmaxParams`], and their softmax.
    struct TopKParams {
        /// `[rows, vocab_size]`.
        logits: *const f32,
        /// `[rows, k]` in host memory.
        ids: *mut u32,
        /// `[rows, k]` in host memory: their logits.
        values: *mut f32,
        /// `[rows, k]`: softmax of `values / temperature`.
        probabilities: *mut f32,
        /// `[rows, parts, k]`.
        scratch: *mut u64,
        /// `[rows]`: 0 before and after.
        counters: *mut u32,
        /// The stamp of the step: see [`LoadStepParams`](super::LoadStepParams).
        stamp: *const u32,
        /// `[rows]` in host memory: the stamp, after the results of a row.
        stamps: *mut u32,
        /// Number of rows.
        rows: u32,
        /// Logits per row, at most 2²⁰.
        vocab_size: u32,
        /// Selected logits per row, at most [`MAX_TOP_K`] and `vocab_size`.
        k: u32,
        /// Workgroups per row, from [`top_k_parts`]: at most 64, each with at most 16384 logits.
        parts: u32,
        /// Temperature of the softmax, above 0.
        temperature: f32,
        /// Zero.
        reserved: u32,
    }
}

impl ArgmaxParams {
    /// The launch: parts of rows in x, rows in y.
    pub(crate) fn launch(&self) -> Launch {
        by_part("argmax_f32", self.parts, self.rows, ARGMAX_THREADS)
    }
}

/// Workgroups per row of [`ArgmaxParams`]: about eight logits per thread.
pub(crate) fn argmax_parts(vocab_size: u32) -> u32 {
    vocab_size.div_ceil(8 * ARGMAX_THREADS).clamp(1, 64)
}

impl TopKParams {
    /// The launch: parts of rows in x, rows in y.
    pub(crate) fn launch(&self) -> Launch {
        by_part("top_k_f32", self.parts, self.rows, TOP_K_THREADS)
    }
}

/// Workgroups per row of [`TopKParams`]: four logits per thread, but at most 64 workgroups, the
/// limit of the workgroup that merges the parts.
pub(crate) fn top_k_parts(vocab_size: u32) -> u32 {
    vocab_size.div_ceil(4 * TOP_K_THREADS).clamp(1, 64)
}

fn by_part(kernel: &'static str, parts: u32, rows: u32, threads: u32) -> Launch {
    Launch { kernel, grid: [parts, rows, 1], block: [threads, 1, 1], lds_bytes: 0 }
}
