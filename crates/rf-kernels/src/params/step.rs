//! Parameters and launches. `kernels/include/rf/params/step.h` is generated from the table.

use super::Launch;
use super::table::params;

/// Threads of a workgroup.
const THREADS: u32 = 256;

/// Elements of a workgroup of [`StoreRowsParams`].
const STORED_ROWS_PER_GROUP: u32 = 16 * THREADS;

params! {
    /// The arrays of a batch, from host memory, and the stamp of the step.
    ///
    /// A stamp is a number that the host gives each step. `load_step_u32` writes it to device
    /// memory and the last kernel of the step writes it back, so the host sees if a step ran with
    /// older inputs.
    struct LoadStepParams {
        /// In host memory: the stamp, the number of pairs of words as u32, then the pairs. At least
        /// `groups` · 256 pairs can be read.
        block: *const u64,
        /// Pairs of words: the arrays of the batch.
        step: *mut u64,
        /// The stamp of the step.
        stamp: *mut u32,
        /// Workgroups, from [`LoadStepParams::GROUPS`].
        groups: u32,
        /// Zero.
        reserved: u32,
    }

    /// Rows of input, from host memory.
    struct LoadRowsParams {
        /// In host memory, pairs of f32.
        from: *const u64,
        /// Pairs of f32.
        to: *mut u64,
        /// Pairs of elements.
        pairs: u32,
        /// Zero.
        reserved: u32,
    }

    /// Rows of output, to host memory, and the stamp of the step.
    struct StoreRowsParams {
        /// Elements.
        from: *const f32,
        /// Elements in host memory.
        to: *mut f32,
        /// The stamp of the step.
        stamp: *const u32,
        /// `[⌈count / 4096⌉, at least 1]` in host memory: the stamp of each workgroup, after its
        /// elements.
        stamps: *mut u32,
        /// Number of elements; may be 0.
        count: u32,
        /// Zero.
        reserved: u32,
    }

    /// A copy of a stamp, which proves that the launches before it, a graph of their own, ran for
    /// this step.
    struct PassStampParams {
        /// A stamp.
        from: *const u32,
        /// A stamp.
        to: *mut u32,
    }

    /// A copy within device memory.
    struct CopyBytesParams {
        /// Aligned to 16 bytes.
        from: *const u8,
        /// Aligned to 16 bytes.
        to: *mut u8,
        /// Number of vectors of 16 bytes.
        vectors: u64,
    }
}

impl LoadStepParams {
    /// Workgroups of the launch: the arrays of a step of decode are read at once.
    pub(crate) const GROUPS: u32 = 4;

    /// Words that the kernel reads of every block.
    pub(crate) const READ_WORDS: usize = 2 + 2 * (Self::GROUPS * THREADS) as usize;

    /// The launch.
    pub(crate) fn launch(&self) -> Launch {
        Launch::linear("load_step_u32", self.groups as usize, THREADS)
    }
}

impl LoadRowsParams {
    /// The launch: 1024 pairs per workgroup.
    pub(crate) fn launch(&self) -> Launch {
        Launch::linear("load_rows_f32", self.pairs.div_ceil(4 * THREADS) as usize, THREADS)
    }
}

impl StoreRowsParams {
    /// The number of workgroups, each of which has a stamp, for `count` elements.
    pub(crate) fn groups(count: usize) -> usize {
        count.div_ceil(STORED_ROWS_PER_GROUP as usize).max(1)
    }

    /// The launch.
    pub(crate) fn launch(&self) -> Launch {
        Launch::linear("store_rows_f32", Self::groups(self.count as usize), THREADS)
    }
}

impl PassStampParams {
    /// The launch.
    pub(crate) fn launch() -> Launch {
        Launch::linear("pass_stamp", 1, 64)
    }
}

impl CopyBytesParams {
    /// The launch: 16 KiB per workgroup.
    pub(crate) fn launch(&self) -> Launch {
        let groups = self.vectors.div_ceil(u64::from(4 * THREADS));
        Launch::linear("copy_bytes", groups as usize, THREADS)
    }
}
