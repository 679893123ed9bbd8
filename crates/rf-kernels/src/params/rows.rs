//! Ops over rows of activations: parameters and launch geometry. Twin of the structs in
//! `kernels/rows.hip` and of `kernels/include/rf/params/rows.h`.

use bytemuck::{Pod, Zeroable};

use super::{Activations, Address, Halves, Launch};

/// Columns that a lane loads at a time.
pub(super) const VECTOR: u32 = 4;

/// Threads of a workgroup where each lane processes one vector.
const ROW_THREADS: u32 = 128;

/// Threads of a workgroup with a whole row.
const WHOLE_ROW_THREADS: u32 = 512;

/// The left operand of a matmul as int8, f16, f32 or several of them; null disables a form. The
/// number of columns is a multiple of 32 for int8 and f16, otherwise of 4.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Operand {
    /// `[rows, columns]`.
    pub q8: Activations,
    /// `[rows, columns]` f32.
    pub f32: Address,
    /// `[rows, columns]`.
    pub f16: Halves,
}

impl Operand {
    /// The operand from a row of `columns` columns on. It has no form f32.
    #[must_use]
    pub fn from_row(self, row: usize, columns: usize) -> Self {
        let q8 = if self.q8.q == 0 { self.q8 } else { self.q8.from_row(row, columns) };
        let f16 = if self.f16.x == 0 { self.f16 } else { self.f16.from_row(row, columns) };
        Self { q8, f32: 0, f16 }
    }
}

/// `out = x`, quantised.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct QuantizeParams {
    /// `[rows, columns]` f32.
    pub x: Address,
    /// `[rows, columns]`.
    pub out: Operand,
    /// Width.
    pub columns: u32,
    /// Number of rows.
    pub rows: u32,
}

impl QuantizeParams {
    /// The launch.
    pub fn launch(&self) -> Launch {
        if self.out.f16.x != 0 {
            return Launch::linear("halve_f32_f16", self.rows as usize, WHOLE_ROW_THREADS);
        }
        by_row("quantize_f32_q8", self.columns, self.rows)
    }
}

/// `s = x (+ residual)`; `out = s / √(mean(s²) + eps) · weight` over whole rows.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct RmsNormParams {
    /// `[rows, columns]` f32.
    pub x: Address,
    /// `[rows, columns]` f32 or null.
    pub residual: Address,
    /// Destination of `s` with a residual, otherwise null; may be `x`.
    pub sum: Address,
    /// `[columns]` f32.
    pub weight: Address,
    /// `[rows, columns]`.
    pub out: Operand,
    /// Constant that is added to the mean square.
    pub eps: f32,
    /// Width: a multiple of 4.
    pub columns: u32,
    /// Number of rows.
    pub rows: u32,
    /// Threads of a workgroup, from [`rms_norm_threads`].
    pub threads: u32,
}

impl RmsNormParams {
    /// The launch.
    pub fn launch(&self) -> Launch {
        Launch::linear("rms_norm_f32_q8", self.rows as usize, self.threads)
    }
}

/// Threads of a workgroup that normalises a row: one per vector for up to 64 rows, where latency
/// matters, and a quarter of that for more rows, which fill the device.
pub fn rms_norm_threads(columns: u32, rows: u32) -> u32 {
    let vectors = columns.div_ceil(VECTOR);
    let threads = if rows <= 64 { vectors } else { vectors.div_ceil(4) };
    threads.next_multiple_of(32).clamp(32, 1024)
}

/// Columns of a group of the norm in [`GluParams`]: those of a wave.
pub const GATED_NORM_GROUP: usize = 32 * VECTOR as usize;

/// `out = activation(gate) · up`, or `activation(gate) · rms_norm(up)` over groups of
/// [`GATED_NORM_GROUP`] columns.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct GluParams {
    /// `[rows, columns]` f32.
    pub gate: Address,
    /// `[rows, columns]` f32.
    pub up: Address,
    /// `[GATED_NORM_GROUP]` f32, or null without a norm.
    pub norm: Address,
    /// `[rows, columns]`; f32 only if the columns are not a multiple of 4.
    pub out: Operand,
    /// Width.
    pub columns: u32,
    /// Number of rows.
    pub rows: u32,
    /// Activation function: 0 `SiLU`, 1 GELU in the tanh form, 2 the clamped `SwiGLU`.
    pub activation: u32,
    /// Constant that is added to the mean square.
    pub eps: f32,
}

impl GluParams {
    /// The launch.
    pub fn launch(&self) -> Launch {
        if self.out.f16.x != 0 {
            return Launch::linear("glu_f32_f16", self.rows as usize, WHOLE_ROW_THREADS);
        }
        if self.columns.is_multiple_of(VECTOR) {
            return by_row("glu_f32_q8", self.columns, self.rows);
        }
        let elements = self.rows as usize * self.columns as usize;
        Launch::linear("glu_f32", elements.div_ceil(ROW_THREADS as usize), ROW_THREADS)
    }
}

/// `out = x / √(mean(x²) + eps) · weight` over groups of adjacent columns of any size. Group `i`
/// has row `i` mod `weights` of the weights.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct GroupNormParams {
    /// `[groups, group]` f32.
    pub x: Address,
    /// `[weights, group]` f32.
    pub weight: Address,
    /// Bias, `[group]` f32 or null; only for a layer norm.
    pub bias: Address,
    /// `[groups, group]` f32; may be `x`.
    pub out: Address,
    /// Constant that is added to the mean square.
    pub eps: f32,
    /// Columns of a group.
    pub group: u32,
    /// Number of groups of all rows.
    pub groups: u32,
    /// 1, or the number of groups of a row; 1 for a layer norm.
    pub weights: u32,
}

impl GroupNormParams {
    /// The launch of an RMSNorm.
    pub fn launch(&self) -> Launch {
        self.by_group("rms_norm_f32")
    }

    /// The launch of a layer norm: `out = (x − mean) / √(var + eps) · weight (+ bias)`.
    pub fn layer_norm(&self) -> Launch {
        self.by_group("layer_norm_f32")
    }

    /// A launch with one wave per group.
    fn by_group(&self, kernel: &'static str) -> Launch {
        let groups = self.groups.div_ceil(ROW_THREADS / 32);
        Launch::linear(kernel, groups as usize, ROW_THREADS)
    }
}

/// `out = a + b`, or `a · b`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct PairParams {
    /// `[count]` f32.
    pub a: Address,
    /// `[count]` f32.
    pub b: Address,
    /// `[count]` f32; may be `a` or `b`.
    pub out: Address,
    /// Number of elements.
    pub count: u64,
}

impl PairParams {
    /// The launch of sums.
    pub fn add(&self) -> Launch {
        self.by_element("add_f32")
    }

    /// The launch of products.
    pub fn mul(&self) -> Launch {
        self.by_element("mul_f32")
    }

    /// A launch with one vector per lane.
    fn by_element(&self, kernel: &'static str) -> Launch {
        let groups = self.count.div_ceil(u64::from(ROW_THREADS * VECTOR));
        Launch::linear(kernel, groups as usize, ROW_THREADS)
    }
}

/// `out = function(x)`, element by element.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct MapParams {
    /// `[rows, columns]` f32.
    pub x: Address,
    /// `[rows, gate_columns]` f32, for a gate.
    pub gate: Address,
    /// `[rows]` u32, for a scale by position.
    pub positions: Address,
    /// `[rows, columns]` f32; may be `x`.
    pub out: Address,
    /// Width.
    pub columns: u32,
    /// Number of rows.
    pub rows: u32,
    /// Activation function as in [`GluParams`], or 3 scale, 4 softcap, 5 sigmoid gate, 6 scale by
    /// position, 7 squared `ReLU`.
    pub function: u32,
    /// The factor, the cap, or the factor of the logarithm of a position.
    pub parameter: f32,
    /// Width of the gate: 1 or `columns`.
    pub gate_columns: u32,
    /// [`rf_graph::PositionScale::period`].
    pub period: u32,
    /// [`rf_graph::PositionScale::offset`].
    pub offset: u32,
    /// Zero.
    pub reserved: u32,
}

impl MapParams {
    /// The launch.
    pub fn launch(&self) -> Launch {
        by_row("map_f32", self.columns, self.rows)
    }
}

/// Row `r` of `out` has `part` columns of each group of columns of row `indices[r]` of `x`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct CopyRowsParams {
    /// `[any, x_columns]` f32.
    pub x: Address,
    /// `[rows]` u32, or null for row `r`.
    pub indices: Address,
    /// `[rows, columns]` f32.
    pub out: Address,
    /// Width of `x`.
    pub x_columns: u32,
    /// Columns of a group of `x`.
    pub group: u32,
    /// The first column of a group.
    pub start: u32,
    /// Columns of `out` per group.
    pub part: u32,
    /// Width of `out`.
    pub columns: u32,
    /// Number of rows.
    pub rows: u32,
}

impl CopyRowsParams {
    /// The launch.
    pub fn launch(&self) -> Launch {
        by_row("copy_rows_f32", self.columns, self.rows)
    }
}

/// Row `r` of `out` has `a_part` columns of row `r` of `a` and then `b_part` columns of row `r` of
/// `b`, `groups` times.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct JoinParams {
    /// `[rows, groups · a_part]` f32.
    pub a: Address,
    /// `[rows, groups · b_part]` f32.
    pub b: Address,
    /// `[rows, groups · (a_part + b_part)]` f32.
    pub out: Address,
    /// Columns of `a` per group.
    pub a_part: u32,
    /// Columns of `b` per group.
    pub b_part: u32,
    /// Groups of a row.
    pub groups: u32,
    /// Number of rows.
    pub rows: u32,
}

impl JoinParams {
    /// The launch.
    pub fn launch(&self) -> Launch {
        by_row("join_groups_f32", self.groups * (self.a_part + self.b_part), self.rows)
    }
}

/// A launch with one vector per lane; rows in y.
fn by_row(kernel: &'static str, columns: u32, rows: u32) -> Launch {
    let groups = columns.div_ceil(ROW_THREADS * VECTOR);
    Launch { kernel, grid: [groups, rows, 1], block: [ROW_THREADS, 1, 1], lds_bytes: 0 }
}
