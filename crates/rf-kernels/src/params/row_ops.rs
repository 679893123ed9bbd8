//! The launch of each op over rows: parameters from the values of a batch.

use rf_graph::{Activation, Function, Gating, Op, RowNorm, ValueId, WeightId, Xielu};

use super::rows::VECTOR;
use super::{
    Address, CopyRowsParams, GluParams, GroupNormParams, JoinParams, MapParams, Operand,
    PairParams, RmsNormParams, rms_norm_threads,
};
use crate::launch::LaunchList;

/// Functions of [`MapParams`] after the activation functions: `RfFunction` of
/// `kernels/include/rf/params/numbers.h`.
const SCALE: u32 = 3;
const SOFTCAP: u32 = 4;
const SIGMOID_GATE: u32 = 5;
const POSITION_SCALE: u32 = 6;
const SQUARED_RELU: u32 = 7;
const CLAMP: u32 = 9;
const XIELU: u32 = 10;
const GELU_ERF: u32 = 11;
const SOFTPLUS_GATE: u32 = 12;

/// The addresses and shapes of the values of a batch.
pub(crate) trait RowMemory {
    /// Address of a value that is stored as f32.
    fn address(&self, id: ValueId) -> Address;
    /// The form in which a value is written: as the operand of a matmul, or as f32.
    fn output(&self, id: ValueId) -> Operand;
    /// Returns true if a value is stored as the operand of a matmul.
    fn is_operand(&self, id: ValueId) -> bool;
    /// Rows of a value.
    fn rows(&self, id: ValueId) -> usize;
    /// Columns of a value.
    fn width(&self, id: ValueId) -> usize;
    /// Rows and columns of a value as it is stored: the operand of a matmul of experts may have a
    /// row for each slot.
    fn output_shape(&self, id: ValueId) -> [usize; 2];
    /// Address of a vector of f32.
    fn vector(&self, id: WeightId) -> Address;
    /// Elements that a norm weight normalises together.
    fn group(&self, id: WeightId) -> usize;
    /// Rows of a weight.
    fn weight_rows(&self, id: WeightId) -> usize;
    /// The requested rows of the batch, u32.
    fn output_rows(&self) -> Address;
    /// The positions of the tokens of the batch, of which the first coordinate counts, u32.
    fn positions(&self) -> Address;
}

/// Records an op over rows. Returns false if `op` is not an op over rows.
#[expect(clippy::too_many_lines, reason = "one arm per op, to be read as a table")]
pub(crate) fn record_row_op(op: &Op, memory: &impl RowMemory, launches: &mut LaunchList) -> bool {
    match op {
        Op::RmsNorm { x, weight, eps, out }
            if memory.is_operand(*out) || memory.group(*weight) == memory.width(*x) =>
        {
            let norm = RowNorm { weight: *weight, eps: *eps, out: *out };
            record_rms_norm(*x, &norm, memory, launches);
        }
        Op::RmsNorm { x, weight, eps, out } => {
            let params = GroupNormParams {
                out: memory.address(*out),
                eps: *eps,
                ..GroupNormParams::of_groups(*x, *weight, memory)
            };
            launches.push(params.launch(), params);
        }
        Op::LayerNorm { x, weight, bias, eps, out } => {
            let params = GroupNormParams {
                bias: bias.map_or(0, |bias| memory.vector(bias)),
                out: memory.address(*out),
                eps: *eps,
                ..GroupNormParams::of_groups(*x, *weight, memory)
            };
            launches.push(params.layer_norm(), params);
        }
        Op::Glu { activation, gate, up, out } => {
            record_glu(*activation, [*gate, *up], *out, memory, launches);
        }
        Op::GatedNorm { activation, gate, x, weight, eps, out } => {
            let params = GluParams::of(*activation, [*gate, *x], *out, memory);
            let params = GluParams { norm: memory.vector(*weight), eps: *eps, ..params };
            launches.push(params.launch(), params);
        }
        Op::Add { a, b, out } => {
            let params = PairParams::of([*a, *b], *out, memory);
            launches.push(params.add(), params);
        }
        Op::Mul { a, b, out } => {
            let params = PairParams::of([*a, *b], *out, memory);
            launches.push(params.mul(), params);
        }
        Op::Map { x, function, out } => {
            let Some(params) = MapParams::of_function(*function) else { return false };
            let MapParams { x, out, columns, rows, .. } = MapParams::of(*x, *out, memory);
            let params = MapParams { x, out, columns, rows, ..params };
            launches.push(params.launch(), params);
        }
        Op::Gate { function, x, gate, out } => {
            let gates = memory.width(*gate);
            let params = MapParams {
                function: match function {
                    Gating::Sigmoid => SIGMOID_GATE,
                    Gating::Softplus => SOFTPLUS_GATE,
                },
                gate: memory.address(*gate),
                gate_columns: gates as u32,
                gate_group: (memory.width(*out) / gates) as u32,
                ..MapParams::of(*x, *out, memory)
            };
            launches.push(params.launch(), params);
        }
        Op::ScaleByPosition { x, scale, out } => {
            let params = MapParams {
                function: POSITION_SCALE,
                positions: memory.positions(),
                parameter: scale.factor,
                period: scale.period as u32,
                offset: scale.offset as u32,
                ..MapParams::of(*x, *out, memory)
            };
            launches.push(params.launch(), params);
        }
        // Separate launches add the rows of media.
        Op::AddMedia { x, out, .. } => {
            let params = CopyRowsParams::of(*x, *out, memory);
            launches.push(params.launch(), params);
        }
        Op::Slice { x, start, out } => {
            let start = *start as u32;
            let params = CopyRowsParams { start, ..CopyRowsParams::of(*x, *out, memory) };
            launches.push(params.launch(), params);
        }
        Op::SliceGroups { x, group, start, out } => {
            let part = memory.width(*out) / (memory.width(*x) / group);
            let params = CopyRowsParams {
                group: *group as u32,
                start: *start as u32,
                part: part as u32,
                ..CopyRowsParams::of(*x, *out, memory)
            };
            launches.push(params.launch(), params);
        }
        Op::JoinGroups { a, b, groups, out } => {
            let params = JoinParams::of([*a, *b], *groups, *out, memory);
            launches.push(params.launch(), params);
        }
        Op::SelectRows { x, out } => {
            let indices = memory.output_rows();
            let params = CopyRowsParams { indices, ..CopyRowsParams::of(*x, *out, memory) };
            launches.push(params.launch(), params);
        }
        _ => return false,
    }
    true
}

/// Records a gated unit whose output may be the operand of a matmul.
pub(crate) fn record_glu(
    activation: Activation,
    [gate, up]: [ValueId; 2],
    out: ValueId,
    memory: &impl RowMemory,
    launches: &mut LaunchList,
) {
    let params = GluParams::of(activation, [gate, up], out, memory);
    launches.push(params.launch(), params);
}

impl GluParams {
    fn of(
        activation: Activation,
        [gate, up]: [ValueId; 2],
        out: ValueId,
        memory: &impl RowMemory,
    ) -> Self {
        let [rows, columns] = memory.output_shape(out);
        Self {
            gate: memory.address(gate),
            up: memory.address(up),
            out: memory.output(out),
            columns: columns as u32,
            rows: rows as u32,
            activation: activation_number(activation),
            ..Self::default()
        }
    }
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
    /// Sizes and numbers of groups of a norm over `x`; other fields are zero.
    fn of_groups(x: ValueId, weight: WeightId, memory: &impl RowMemory) -> Self {
        let group = memory.group(weight);
        let groups = memory.rows(x) * memory.width(x) / group;
        let weights = memory.weight_rows(weight) as u32;
        Self {
            x: memory.address(x),
            weight: memory.vector(weight),
            group: group as u32,
            groups: groups as u32,
            weights,
            ..Self::default()
        }
    }
}

impl PairParams {
    fn of([a, b]: [ValueId; 2], out: ValueId, memory: &impl RowMemory) -> Self {
        Self {
            a: memory.address(a),
            b: memory.address(b),
            out: memory.address(out),
            count: (memory.rows(out) * memory.width(out)) as u64,
        }
    }
}

impl MapParams {
    /// The number and the parameters of a function that has a kernel; other fields are zero.
    fn of_function(function: Function) -> Option<Self> {
        let mut params = Self::default();
        (params.function, params.parameter) = match function {
            Function::Scale(factor) => (SCALE, factor),
            Function::Softcap(cap) => (SOFTCAP, cap),
            Function::Clamp { min, max } => {
                params.limit = max;
                (CLAMP, min)
            }
            Function::Xielu(Xielu { alpha_p, alpha_n, beta, eps }) => {
                params = Self { alpha_n, beta, eps, ..params };
                (XIELU, alpha_p)
            }
            Function::Activation(Activation::SquaredRelu) => (SQUARED_RELU, 0.0),
            Function::Activation(Activation::GeluErf) => (GELU_ERF, 0.0),
            Function::Activation(activation) => (activation_number(activation), 0.0),
            _ => return None,
        };
        Some(params)
    }

    /// Addresses and shape; other fields are zero.
    fn of(x: ValueId, out: ValueId, memory: &impl RowMemory) -> Self {
        Self {
            x: memory.address(x),
            out: memory.address(out),
            columns: memory.width(out) as u32,
            rows: memory.rows(out) as u32,
            ..Self::default()
        }
    }
}

impl CopyRowsParams {
    /// Parameters that copy the first columns of all rows.
    fn of(x: ValueId, out: ValueId, memory: &impl RowMemory) -> Self {
        Self {
            x: memory.address(x),
            out: memory.address(out),
            x_columns: memory.width(x) as u32,
            group: memory.width(x) as u32,
            part: memory.width(out) as u32,
            columns: memory.width(out) as u32,
            rows: memory.rows(out) as u32,
            ..Self::default()
        }
    }
}

impl JoinParams {
    fn of([a, b]: [ValueId; 2], groups: usize, out: ValueId, memory: &impl RowMemory) -> Self {
        Self {
            a: memory.address(a),
            b: memory.address(b),
            out: memory.address(out),
            a_part: (memory.width(a) / groups) as u32,
            b_part: (memory.width(b) / groups) as u32,
            groups: groups as u32,
            rows: memory.rows(out) as u32,
        }
    }
}

/// The number by which kernels identify an activation function.
pub(crate) fn activation_number(activation: Activation) -> u32 {
    match activation {
        Activation::GeluTanh => 1,
        Activation::ClampedSwiglu => 2,
        Activation::Relu => 8,
        _ => 0,
    }
}
