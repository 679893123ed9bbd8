//! Ops over rows of activations: parameters and launch geometry. The table is also
//! `kernels/include/rf/params/rows.h`.

use super::table::params;
use super::{Activations, Address, Halves, Launch};

/// Columns that a lane loads at a time.
pub(super) const VECTOR: u32 = 4;

/// Threads of a workgroup where each lane processes one vector.
pub(super) const ROW_THREADS: u32 = 128;

/// Threads of a workgroup with a whole row.
const WHOLE_ROW_THREADS: u32 = 512;

params! {
    /// The left operand of a matmul as int8, f16, f32 or several of them; null disables a form. The
    /// number of columns is a multiple of 32 for int8 and f16, otherwise of 4.
    struct Operand {
        /// `[rows, columns]`.
        q8: Activations,
        /// `[rows, columns]`.
        f32: *mut f32,
        /// `[rows, columns]`.
        f16: Halves,
    }

    /// `out = x`, quantised.
    struct QuantizeParams {
        /// `[rows, columns]`.
        x: *const f32,
        /// `[rows, columns]`.
        out: Operand,
        /// Width.
        columns: u32,
        /// Number of rows.
        rows: u32,
    }

    /// `s = x (+ residual)`; `out = s / √(mean(s²) + eps) · weight` over whole rows. With a
    /// residual s is stored in `sum`.
    struct RmsNormParams {
        /// `[rows, columns]`.
        x: *const f32,
        /// `[rows, columns]` or null.
        residual: *const f32,
        /// Destination of `s` with a residual, otherwise null; may be `x`.
        sum: *mut f32,
        /// `[columns]`.
        weight: *const f32,
        /// `[rows, columns]`.
        out: Operand,
        /// Constant that is added to the mean square.
        eps: f32,
        /// Width: a multiple of 4.
        columns: u32,
        /// Number of rows.
        rows: u32,
        /// Threads of a workgroup, from [`rms_norm_threads`]: a multiple of 32, at most 1024.
        threads: u32,
    }

    /// `out = activation(gate) · up`, or `activation(gate) · rms_norm(up)` over groups of
    /// [`GATED_NORM_GROUP`] columns.
    struct GluParams {
        /// `[rows, columns]`.
        gate: *const f32,
        /// `[rows, columns]`.
        up: *const f32,
        /// `[GATED_NORM_GROUP]`, or null without a norm; `glu_f32_q8` alone.
        norm: *const f32,
        /// `[rows, columns]`; f32 only if the columns are not a multiple of 4.
        out: Operand,
        /// Width.
        columns: u32,
        /// Number of rows.
        rows: u32,
        /// `RfActivation`.
        activation: u32,
        /// Constant that is added to the mean square.
        eps: f32,
    }

    /// `out = x / √(mean(x²) + eps) · weight`, or the layer norm with a bias, over groups of
    /// adjacent columns; `group` divides the width. Group `i` has row `i` mod `weights` of the
    /// weights.
    struct GroupNormParams {
        /// `[groups, group]`.
        x: *const f32,
        /// `[weights, group]`.
        weight: *const f32,
        /// Bias, `[group]` or null; only for a layer norm.
        bias: *const f32,
        /// `[groups, group]`; may be `x`.
        out: *mut f32,
        /// Constant that is added to the mean square.
        eps: f32,
        /// Columns of a group.
        group: u32,
        /// Number of groups of all rows.
        groups: u32,
        /// 1, or the number of groups of a row; 1 for a layer norm.
        weights: u32,
    }

    /// `out = a + b`, or `a · b`.
    struct PairParams {
        /// `[count]`.
        a: *const f32,
        /// `[count]`.
        b: *const f32,
        /// `[count]`; may be `a` or `b`.
        out: *mut f32,
        /// Number of elements.
        count: u64,
    }

    /// `out = function(x)`, element by element.
    struct MapParams {
        /// `[rows, columns]`.
        x: *const f32,
        /// `[rows, gate_columns]`, for a gate.
        gate: *const f32,
        /// `[rows]`, for a scale by position.
        positions: *const u32,
        /// `[rows, columns]`; may be `x`.
        out: *mut f32,
        /// Width.
        columns: u32,
        /// Number of rows.
        rows: u32,
        /// `RfActivation` or `RfFunction`.
        function: u32,
        /// The factor, the cap, the bound, αₚ, or the factor of the logarithm of a position.
        parameter: f32,
        /// Width of the gate; divides `columns`.
        gate_columns: u32,
        /// [`rf_graph::PositionScale::period`].
        period: u32,
        /// [`rf_graph::PositionScale::offset`].
        offset: u32,
        /// [`rf_graph::Xielu::alpha_n`].
        alpha_n: f32,
        /// [`rf_graph::Xielu::beta`].
        beta: f32,
        /// [`rf_graph::Xielu::eps`].
        eps: f32,
        /// The largest result of a clamp, whose smallest is `parameter`.
        limit: f32,
        /// Columns for each column of the gate.
        gate_group: u32,
    }

    /// Row `r` of `out` has `part` columns of each group of columns of row `indices[r]` of `x`.
    struct CopyRowsParams {
        /// `[any, x_columns]`.
        x: *const f32,
        /// `[rows]`, or null for row `r`.
        indices: *const u32,
        /// `[rows, columns]`.
        out: *mut f32,
        /// Width of `x`.
        x_columns: u32,
        /// Columns of a group of `x`.
        group: u32,
        /// The first column of a group.
        start: u32,
        /// Columns of `out` per group.
        part: u32,
        /// Width of `out`.
        columns: u32,
        /// Number of rows.
        rows: u32,
    }

    /// Row `r` of `out` has `a_part` columns of row `r` of `a` and then `b_part` columns of row `r`
    /// of `b`, `groups` times, from successive columns of both.
    struct JoinParams {
        /// `[rows, groups · a_part]`.
        a: *const f32,
        /// `[rows, groups · b_part]`.
        b: *const f32,
        /// `[rows, groups · (a_part + b_part)]`.
        out: *mut f32,
        /// Columns of `a` per group.
        a_part: u32,
        /// Columns of `b` per group.
        b_part: u32,
        /// Groups of a row.
        groups: u32,
        /// Number of rows.
        rows: u32,
    }
}

impl Operand {
    /// Returns true if f16 is the only form.
    pub(crate) fn is_f16_alone(self) -> bool {
        self.f16.x != 0 && self.q8.q == 0 && self.f32 == 0
    }

    /// The operand from a row of `columns` columns on. It has no form f32.
    #[must_use]
    pub(crate) fn at_row(self, row: usize, columns: usize) -> Self {
        let q8 = if self.q8.q == 0 { self.q8 } else { self.q8.at_row(row, columns) };
        let f16 = if self.f16.x == 0 { self.f16 } else { self.f16.at_row(row, columns) };
        Self { q8, f32: 0, f16 }
    }
}

impl QuantizeParams {
    /// The launch.
    pub(crate) fn launch(&self) -> Launch {
        if self.out.f16.x != 0 {
            return Launch::linear("halve_f32_f16", self.rows as usize, WHOLE_ROW_THREADS);
        }
        by_row("quantize_f32_q8", self.columns, self.rows)
    }
}

impl RmsNormParams {
    /// The launch.
    pub(crate) fn launch(&self) -> Launch {
        Launch::linear("rms_norm_f32_q8", self.rows as usize, self.threads)
    }
}

/// Threads of a workgroup that normalises a row: one per vector for up to 64 rows, where latency
/// matters, and a quarter of that for more rows, which fill the device.
pub(crate) fn rms_norm_threads(columns: u32, rows: u32) -> u32 {
    let vectors = columns.div_ceil(VECTOR);
    let threads = if rows <= 64 { vectors } else { vectors.div_ceil(4) };
    threads.next_multiple_of(32).clamp(32, 1024)
}

/// Columns of a group of the norm in [`GluParams`]: those of a wave.
pub(crate) const GATED_NORM_GROUP: usize = 32 * VECTOR as usize;

impl GluParams {
    /// The launch.
    pub(crate) fn launch(&self) -> Launch {
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

impl GroupNormParams {
    /// The launch of an RMSNorm.
    pub(crate) fn launch(&self) -> Launch {
        self.by_group("rms_norm_f32")
    }

    /// The launch of a layer norm: `out = (x − mean) / √(var + eps) · weight (+ bias)`.
    pub(crate) fn layer_norm(&self) -> Launch {
        self.by_group("layer_norm_f32")
    }

    /// A launch with one wave per group.
    fn by_group(&self, kernel: &'static str) -> Launch {
        let groups = self.groups.div_ceil(ROW_THREADS / 32);
        Launch::linear(kernel, groups as usize, ROW_THREADS)
    }
}

impl PairParams {
    /// The launch of sums.
    pub(crate) fn add(&self) -> Launch {
        self.by_element("add_f32")
    }

    /// The launch of products.
    pub(crate) fn mul(&self) -> Launch {
        self.by_element("mul_f32")
    }

    /// A launch with one vector per lane.
    fn by_element(&self, kernel: &'static str) -> Launch {
        let groups = self.count.div_ceil(u64::from(ROW_THREADS * VECTOR));
        Launch::linear(kernel, groups as usize, ROW_THREADS)
    }
}

impl MapParams {
    /// The launch.
    pub(crate) fn launch(&self) -> Launch {
        by_row("map_f32", self.columns, self.rows)
    }
}

impl CopyRowsParams {
    /// Parameters that copy values one to one.
    pub(crate) fn of_floats(x: Address, out: Address, floats: usize) -> Self {
        let columns = floats as u32;
        let (x_columns, group, part) = (columns, columns, columns);
        Self { x, out, x_columns, group, part, columns, rows: 1, ..Self::default() }
    }

    /// The launch.
    pub(crate) fn launch(&self) -> Launch {
        by_row("copy_rows_f32", self.columns, self.rows)
    }
}

impl JoinParams {
    /// The launch.
    pub(crate) fn launch(&self) -> Launch {
        by_row("join_groups_f32", self.groups * (self.a_part + self.b_part), self.rows)
    }
}

/// A launch with one vector per lane; rows in y.
fn by_row(kernel: &'static str, columns: u32, rows: u32) -> Launch {
    let groups = columns.div_ceil(ROW_THREADS * VECTOR);
    Launch { kernel, grid: [groups, rows, 1], block: [ROW_THREADS, 1, 1], lds_bytes: 0 }
}
