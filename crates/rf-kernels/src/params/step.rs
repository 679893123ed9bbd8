//! Twin of `kernels/include/rf/params/step.h`.

use bytemuck::{Pod, Zeroable};

use super::{Address, Launch};

/// Threads of a workgroup.
const THREADS: u32 = 256;

/// Elements of a workgroup of [`StoreRowsParams`].
const STORED_ROWS_PER_GROUP: u32 = 16 * THREADS;

/// The arrays of a batch, from host memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct LoadStepParams {
    /// u32 in host memory: the stamp, the number of pairs, then pairs of words.
    pub block: Address,
    /// u32: the pairs.
    pub step: Address,
    /// u32: the stamp.
    pub stamp: Address,
    /// Workgroups, from [`LoadStepParams::GROUPS`].
    pub groups: u32,
    /// Zero.
    pub reserved: u32,
}

impl LoadStepParams {
    /// Workgroups of the launch: the arrays of a step of decode are read at once.
    pub const GROUPS: u32 = 4;

    /// Words that the kernel reads of every block.
    pub const READ_WORDS: usize = 2 + 2 * (Self::GROUPS * THREADS) as usize;

    /// The launch.
    pub fn launch(&self) -> Launch {
        Launch::linear("load_step_u32", self.groups as usize, THREADS)
    }
}

/// Rows of input, from host memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct LoadRowsParams {
    /// f32 in host memory, aligned to 8 bytes.
    pub from: Address,
    /// f32, aligned to 8 bytes.
    pub to: Address,
    /// Pairs of elements.
    pub pairs: u32,
    /// Zero.
    pub reserved: u32,
}

impl LoadRowsParams {
    /// The launch: 1024 pairs per workgroup.
    pub fn launch(&self) -> Launch {
        Launch::linear("load_rows_f32", self.pairs.div_ceil(4 * THREADS) as usize, THREADS)
    }
}

/// Rows of output, to host memory, and the stamp of the step.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct StoreRowsParams {
    /// f32.
    pub from: Address,
    /// f32 in host memory.
    pub to: Address,
    /// u32: the stamp.
    pub stamp: Address,
    /// `[groups]` u32 in host memory: the stamp of each workgroup, after its elements.
    pub stamps: Address,
    /// Number of elements; may be 0.
    pub count: u32,
    /// Zero.
    pub reserved: u32,
}

impl StoreRowsParams {
    /// The number of workgroups, each of which has a stamp, for `count` elements.
    pub fn groups(count: usize) -> usize {
        count.div_ceil(STORED_ROWS_PER_GROUP as usize).max(1)
    }

    /// The launch.
    pub fn launch(&self) -> Launch {
        Launch::linear("store_rows_f32", Self::groups(self.count as usize), THREADS)
    }
}

/// A copy of a stamp, which proves that the launches before it ran.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct PassStampParams {
    /// u32.
    pub from: Address,
    /// u32.
    pub to: Address,
}

impl PassStampParams {
    /// The launch.
    pub fn launch(&self) -> Launch {
        Launch::linear("pass_stamp", 1, 64)
    }
}

/// A copy within device memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct CopyBytesParams {
    /// Aligned to 16 bytes.
    pub from: Address,
    /// Aligned to 16 bytes.
    pub to: Address,
    /// Number of vectors of 16 bytes.
    pub vectors: u64,
}

impl CopyBytesParams {
    /// The launch: 16 KiB per workgroup.
    pub fn launch(&self) -> Launch {
        let groups = self.vectors.div_ceil(u64::from(4 * THREADS));
        Launch::linear("copy_bytes", groups as usize, THREADS)
    }
}
