//! The parameters of kernels.
//!
//! The parameter of a kernel is one of these structs by value, in C layout. Addresses are device
//! addresses; null (0) disables an optional operand. `table.rs` explains how structs are defined
//! once for both languages.

/// The name of the kernel for a format: prefix, kernel name of the format, suffix.
macro_rules! kernel_name {
    ($dtype:expr, $prefix:literal, $suffix:literal) => {
        rf_quant::for_each_format!(format_kernel_name, $dtype, $prefix, $suffix)
    };
}

macro_rules! format_kernel_name {
    ([$dtype:expr, $prefix:literal, $suffix:literal] $({
        $number:literal $variant:ident $name:literal $kernel:literal $($rest:tt)*
    })*) => {
        match $dtype {
            $(rf_quant::DType::$variant => concat!($prefix, $kernel, $suffix),)*
        }
    };
}

mod attention;
mod batch;
mod embed;
mod experts;
mod latent;
mod matmul;
mod matmul_experts;
mod matmul_half;
mod matvec;
mod recurrent;
mod rope;
mod row_ops;
mod rows;
mod sampling;
mod skinny;
mod step;
mod sums;
mod table;
mod weight;

pub(crate) use attention::{AttentionParams, MIN_SPLIT_KEYS};
pub(crate) use batch::{Batch, CACHE_KERNELS, KvCache, Span};
pub(crate) use embed::{EmbedParams, embed_rms_norm_threads};
pub(crate) use experts::{
    ExpertRowsParams, GroupExpertsParams, MAX_EXPERT_GROUPS, MAX_SLOTS, RouteParams,
};
pub(crate) use latent::{LatentAppendParams, LatentParams, MAX_LATENT_HEAD_DIM};
pub(crate) use matmul::{
    ExpertGroups, ExpertTile, FEW_TOKENS, MAX_PROJECTIONS, MatmulDevice, MatmulParams, MatrixUnit,
    Projection, SMALLEST_TILE,
};
pub(crate) use matvec::{
    MatvecGluParams, MatvecParams, MatvecSumParams, NormIn, NormOut, RouterParams,
};
pub(crate) use recurrent::{
    CausalConvParams, MAX_CHANNELS, MAX_KEY_DIM, MAX_SCAN_DIM, MAX_TAPS, RecurrenceParams,
    ScanParams, State,
};
pub(crate) use rope::{
    KvAppendParams, MAX_HEAD_DIM, NewHeads, RopeAppendParams, RopeParams, RopeTable,
};
pub(crate) use row_ops::{
    RowMemory, activation_number, record_glu, record_rms_norm, record_row_op,
};
pub(crate) use rows::{
    CopyRowsParams, GATED_NORM_GROUP, GluParams, GroupNormParams, JoinParams, MapParams, Operand,
    PairParams, QuantizeParams, RmsNormParams, rms_norm_threads,
};
pub(crate) use sampling::{ArgmaxParams, MAX_TOP_K, TopKParams, argmax_parts, top_k_parts};
pub(crate) use skinny::{SkinnyEpilogue, SkinnyParams};
pub(crate) use step::{
    CopyBytesParams, LoadRowsParams, LoadStepParams, PassStampParams, StoreRowsParams,
};
pub(crate) use sums::{PartSummand, SignalParams, SumPartsParams};
pub(crate) use weight::{Activations, Halves, Weight};

/// An address in device memory.
pub(crate) type Address = u64;

/// A kernel and its launch geometry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Launch {
    /// Symbol of the kernel.
    pub(crate) kernel: &'static str,
    /// Workgroups in x, y and z.
    pub(crate) grid: [u32; 3],
    /// Threads of a workgroup in x, y and z.
    pub(crate) block: [u32; 3],
    /// Dynamic LDS in bytes, in addition to the static LDS of the kernel.
    pub(crate) lds_bytes: u32,
}

impl Launch {
    /// A launch of `groups` workgroups of `threads`.
    pub(crate) fn linear(kernel: &'static str, groups: usize, threads: u32) -> Self {
        Self { kernel, grid: [groups as u32, 1, 1], block: [threads, 1, 1], lds_bytes: 0 }
    }
}
