//! Ops over rows of activations: parameters, launch geometry, and the op that each belongs to.
//! Twin of the structs in `kernels/rows.hip` and of `kernels/include/rf/params/rows.h`.

use bytemuck::{Pod, Zeroable};
use rf_graph::{Activation, Op, RowNorm, ValueId, WeightId};

use super::{Activations, Address, Launch};
use crate::launch::LaunchList;

/// Columns that a lane loads at a time.
const VECTOR: u32 = 4;

/// Threads of a workgroup where each lane processes one vector.
const ROW_THREADS: u32 = 128;

/// The left operand of a matmul as int8, f32 or both; null disables a form. The number of columns
/// is a multiple of 32 for int8, otherwise of 4.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Operand {
    /// `[rows, columns]`.
    pub q8: Activations,
    /// `[rows, columns]` f32.
    pub f32: Address,
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

/// `out = activation(gate) · up`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct GluParams {
    /// `[rows, columns]` f32.
    pub gate: Address,
    /// `[rows, columns]` f32.
    pub up: Address,
    /// `[rows, columns]`; f32 only if the columns are not a multiple of 4.
    pub out: Operand,
    /// Width.
    pub columns: u32,
    /// Number of rows.
    pub rows: u32,
    /// Activation function: 0 `SiLU`, 1 GELU in the tanh form.
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

/// `out = x / √(mean(x²) + eps) · weight` over groups of adjacent columns of any size.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct GroupNormParams {
    /// `[groups, group]` f32.
    pub x: Address,
    /// `[group]` f32.
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
    /// Zero.
    pub reserved: u32,
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
    /// Number of elements.
    pub count: u64,
    /// Factor on every element.
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
    /// Number of rows.
    pub rows: u32,
}

impl SelectRowsParams {
    /// The launch.
    pub fn launch(&self) -> Launch {
        by_row("select_rows_f32", self.columns, self.rows)
    }
}

/// The addresses and shapes of the values of a batch.
pub(crate) trait RowMemory {
    /// Address of a value that is stored as f32.
    fn address(&self, id: ValueId) -> Address;
    /// The form in which a value is written: as the operand of a matmul, or as f32.
    fn output(&self, id: ValueId) -> Operand;
    /// Whether a value is stored as the operand of a matmul.
    fn is_operand(&self, id: ValueId) -> bool;
    /// Rows of a value.
    fn rows(&self, id: ValueId) -> usize;
    /// Columns of a value.
    fn width(&self, id: ValueId) -> usize;
    /// Address of a vector of f32.
    fn vector(&self, id: WeightId) -> Address;
    /// Elements that a norm weight normalises together.
    fn group(&self, id: WeightId) -> usize;
    /// The requested rows of the batch, u32.
    fn output_rows(&self) -> Address;
}

/// Records an op over rows. Returns false if `op` is not an op over rows.
pub(crate) fn record_row_op(op: &Op, memory: &impl RowMemory, launches: &mut LaunchList) -> bool {
    match op {
        Op::RmsNorm { x, weight, eps, out } if memory.is_operand(*out) => {
            let norm = RowNorm { weight: *weight, eps: *eps, out: *out };
            record_rms_norm(*x, &norm, memory, launches);
        }
        Op::RmsNorm { x, weight, eps, out } => {
            let params = GroupNormParams {
                x: memory.address(*x),
                weight: memory.vector(*weight),
                out: memory.address(*out),
                eps: *eps,
                ..GroupNormParams::of_groups(*x, *weight, memory)
            };
            launches.push(params.launch(), params);
        }
        Op::LayerNorm { x, weight, bias, eps, out } => {
            let params = GroupNormParams {
                x: memory.address(*x),
                weight: memory.vector(*weight),
                bias: bias.map_or(0, |bias| memory.vector(bias)),
                out: memory.address(*out),
                eps: *eps,
                ..GroupNormParams::of_groups(*x, *weight, memory)
            };
            launches.push(params.layer_norm(), params);
        }
        Op::Glu { activation, gate, up, out } => {
            let params = GluParams {
                gate: memory.address(*gate),
                up: memory.address(*up),
                out: memory.output(*out),
                columns: memory.width(*out) as u32,
                rows: memory.rows(*out) as u32,
                activation: activation_number(*activation),
                reserved: 0,
            };
            launches.push(params.launch(), params);
        }
        Op::Add { a, b, out } => {
            let b = memory.address(*b);
            let params = AddScaleParams { b, ..AddScaleParams::of(*a, 1.0, *out, memory) };
            launches.push(params.launch(), params);
        }
        Op::Scale { x, factor, out } => {
            let params = AddScaleParams::of(*x, *factor, *out, memory);
            launches.push(params.launch(), params);
        }
        Op::SelectRows { x, out } => {
            let params = SelectRowsParams {
                x: memory.address(*x),
                output_rows: memory.output_rows(),
                out: memory.address(*out),
                columns: memory.width(*x) as u32,
                rows: memory.rows(*out) as u32,
            };
            launches.push(params.launch(), params);
        }
        _ => return false,
    }
    true
}

/// Records an RMSNorm of whole rows whose output may be the operand of a matmul.
pub(crate) fn record_rms_norm(
    x: ValueId,
    norm: &RowNorm,
    memory: &impl RowMemory,
    launches: &mut LaunchList,
) {
    let (columns, rows) = (memory.width(x) as u32, memory.rows(x) as u32);
    let (weight, out) = (memory.vector(norm.weight), memory.output(norm.out));
    if columns.is_multiple_of(VECTOR) {
        let params = RmsNormParams {
            x: memory.address(x),
            weight,
            out,
            eps: norm.eps,
            columns,
            rows,
            threads: rms_norm_threads(columns, rows),
            ..RmsNormParams::default()
        };
        launches.push(params.launch(), params);
    } else {
        let params = GroupNormParams {
            x: memory.address(x),
            weight,
            out: out.f32,
            eps: norm.eps,
            ..GroupNormParams::of_groups(x, norm.weight, memory)
        };
        launches.push(params.launch(), params);
    }
}

impl GroupNormParams {
    /// Group size and number of groups of a norm over `x`; other fields are zero.
    fn of_groups(x: ValueId, weight: WeightId, memory: &impl RowMemory) -> Self {
        let group = memory.group(weight);
        let groups = memory.rows(x) * memory.width(x) / group;
        Self { group: group as u32, groups: groups as u32, ..Self::default() }
    }
}

impl AddScaleParams {
    /// Parameters of `out = a · factor`.
    fn of(a: ValueId, factor: f32, out: ValueId, memory: &impl RowMemory) -> Self {
        Self {
            a: memory.address(a),
            out: memory.address(out),
            count: (memory.rows(out) * memory.width(out)) as u64,
            factor,
            ..Self::default()
        }
    }
}

/// The number by which kernels identify an activation function.
pub(crate) fn activation_number(activation: Activation) -> u32 {
    match activation {
        Activation::GeluTanh => 1,
        _ => 0,
    }
}

/// A launch with one vector per lane; rows in y.
fn by_row(kernel: &'static str, columns: u32, rows: u32) -> Launch {
    let groups = columns.div_ceil(ROW_THREADS * VECTOR);
    Launch { kernel, grid: [groups, rows, 1], block: [ROW_THREADS, 1, 1], lds_bytes: 0 }
}
