//! `kernels/include/rf/params/rows.h`.

use bytemuck::{Pod, Zeroable};

use super::{Activations, Address, Launch};

/// Columns that a lane takes at a time.
const VECTOR: u32 = 4;

/// Threads of workgroups that have a vector per lane.
const ROW_THREADS: u32 = 128;

/// What a product reads: int8, f32 or both; null switches a form off. As int8 the columns are a multiple of
/// 32, else of 4.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Operand {
    /// `[rows, columns]`.
    pub q8: Activations,
    /// `[rows, columns]` f32.
    pub f32: Address,
}

/// `out = x`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct QuantizeParams {
    /// `[rows, columns]` f32.
    pub x: Address,
    /// What becomes of it.
    pub out: Operand,
    /// Width.
    pub columns: u32,
    /// How many.
    pub rows: u32,
}

impl QuantizeParams {
    /// The launch.
    pub fn launch(&self) -> Launch {
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
    /// Gets `s` where there is a residual, null otherwise; may be `x`.
    pub sum: Address,
    /// `[columns]` f32.
    pub weight: Address,
    /// What becomes of it.
    pub out: Operand,
    /// Added to the mean square.
    pub eps: f32,
    /// Width: a multiple of 4.
    pub columns: u32,
    /// How many.
    pub rows: u32,
    /// From [`rms_norm_threads`].
    pub threads: u32,
}

impl RmsNormParams {
    /// The launch.
    pub fn launch(&self) -> Launch {
        Launch::linear("rms_norm_f32_q8", self.rows as usize, self.threads)
    }
}

/// Threads of a workgroup that norms a row: as many as the row has vectors where rows are few and the time of
/// one counts, a fourth where rows fill the device.
pub fn rms_norm_threads(columns: u32, rows: u32) -> u32 {
    let vectors = columns.div_ceil(VECTOR);
    let threads = if rows <= 64 { vectors } else { vectors.div_ceil(4) };
    threads.next_multiple_of(32).clamp(32, 1024)
}

/// `out = activation(gate) · up`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct GluParams {
    /// `[rows, columns]` f32.
    pub gate: Address,
    /// `[rows, columns]` f32.
    pub up: Address,
    /// What becomes of it; f32 alone if the columns are no multiple of 4.
    pub out: Operand,
    /// Width.
    pub columns: u32,
    /// How many.
    pub rows: u32,
    /// 0 `SiLU`, 1 GELU in the tanh form.
    pub activation: u32,
    /// Zero.
    pub reserved: u32,
}

impl GluParams {
    /// The launch.
    pub fn launch(&self) -> Launch {
        if self.columns.is_multiple_of(VECTOR) {
            return by_row("glu_f32_q8", self.columns, self.rows);
        }
        let elements = self.rows as usize * self.columns as usize;
        Launch::linear("glu_f32", elements.div_ceil(ROW_THREADS as usize), ROW_THREADS)
    }
}

/// `out = x / √(mean(x²) + eps) · weight` over groups of neighbouring columns of any number.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct GroupNormParams {
    /// `[groups, group]` f32.
    pub x: Address,
    /// `[group]` f32.
    pub weight: Address,
    /// `[groups, group]` f32; may be `x`.
    pub out: Address,
    /// Added to the mean square.
    pub eps: f32,
    /// Columns of a group.
    pub group: u32,
    /// Groups of all rows.
    pub groups: u32,
    /// Zero.
    pub reserved: u32,
}

impl GroupNormParams {
    /// The launch.
    pub fn launch(&self) -> Launch {
        let groups = self.groups.div_ceil(ROW_THREADS / 32);
        Launch::linear("rms_norm_f32", groups as usize, ROW_THREADS)
    }
}

/// `out = (a + b) · factor`, or `a · factor`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct AddScaleParams {
    /// `[count]` f32.
    pub a: Address,
    /// `[count]` f32 or null.
    pub b: Address,
    /// `[count]` f32; may be `a` or `b`.
    pub out: Address,
    /// Elements.
    pub count: u64,
    /// 1 changes nothing.
    pub factor: f32,
    /// Zero.
    pub reserved: u32,
}

impl AddScaleParams {
    /// The launch.
    pub fn launch(&self) -> Launch {
        let groups = self.count.div_ceil(u64::from(ROW_THREADS * VECTOR));
        Launch::linear("add_scale_f32", groups as usize, ROW_THREADS)
    }
}

/// Row `r` of `out` is row `output_rows[r]` of `x`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct SelectRowsParams {
    /// `[tokens, columns]` f32.
    pub x: Address,
    /// `[rows]` u32.
    pub output_rows: Address,
    /// `[rows, columns]` f32.
    pub out: Address,
    /// Width.
    pub columns: u32,
    /// How many.
    pub rows: u32,
}

impl SelectRowsParams {
    /// The launch.
    pub fn launch(&self) -> Launch {
        by_row("select_rows_f32", self.columns, self.rows)
    }
}

/// A vector per lane; rows in y.
fn by_row(kernel: &'static str, columns: u32, rows: u32) -> Launch {
    let groups = columns.div_ceil(ROW_THREADS * VECTOR);
    Launch { kernel, grid: [groups, rows, 1], block: [ROW_THREADS, 1, 1], lds_bytes: 0 }
}
