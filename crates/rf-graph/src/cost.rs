//! The costs of a program's ops, independent of the backend.

use rf_quant::DType;

use crate::batch::Batch;
use crate::graph::Graph;
use crate::kv::KvLayout;
use crate::op::{
    Attention, Combine, DeltaNet, Epilogue, ExpertProjection, Op, Operand, Prologue, Rope,
    RopeAppend, SelectiveScan, StateSpace,
};
use crate::op_cost::OpCost;
use crate::program::Program;
use crate::value::{ValueId, WeightId};

/// The sizes that costs of a program's ops depend on. They outlive the program itself.
#[derive(Clone, Debug)]
pub struct Costs {
    weights: Vec<WeightSize>,
    kv: KvLayout,
}

#[derive(Clone, Debug)]
struct WeightSize {
    name: String,
    dtype: DType,
    rows: usize,
    columns: usize,
    bytes: usize,
}

impl WeightSize {
    /// The cost of a matmul that writes `elements` outputs. Reading the weight is not part of it.
    fn matmul(&self, elements: usize) -> OpCost {
        let operations = (2 * self.columns * elements) as u64;
        match self.dtype {
            DType::F32 | DType::F16 | DType::Bf16 => {
                OpCost { f32_operations: operations, ..OpCost::default() }
            }
            _ => OpCost { int8_operations: operations, ..OpCost::default() },
        }
    }
}

impl Costs {
    /// The sizes of a program, before a backend compiles it.
    pub fn new(program: &Program) -> Self {
        let weights = program.weights.iter().map(|weight| WeightSize {
            name: weight.name().to_owned(),
            dtype: weight.dtype(),
            rows: weight.rows(),
            columns: weight.columns(),
            bytes: weight.size_bytes(),
        });
        Self { weights: weights.collect(), kv: program.kv.clone() }
    }

    /// A label that distinguishes an op from others of the same name: the weights of a matmul, or
    /// the layer of the KV cache or the recurrent state, counted within this program.
    pub fn detail(&self, op: &Op) -> String {
        let name = |id: &WeightId| self.weights[id.index()].name.as_str();
        let operands = op.operands();
        let layer = operands.iter().find_map(|operand| match operand {
            Operand::KvLayer(layer) => Some(format!("KV layer {layer}")),
            Operand::State(state) => Some(format!("state {state}")),
            _ => None,
        });
        let matrices = operands.iter().filter_map(|operand| match operand {
            Operand::Matrix(id) | Operand::Table(id) => Some(name(id)),
            _ => None,
        });
        let vector = || {
            operands.iter().find_map(|operand| match operand {
                Operand::Vector(id) => Some(name(id).to_owned()),
                _ => None,
            })
        };
        let matrices = match op {
            // The first expert labels a projection.
            Op::ExpertMatMul(m) => {
                let firsts = m.projections.iter().filter_map(|p| p.weights.first());
                firsts.map(name).collect::<Vec<_>>().join(" ")
            }
            Op::HeadMatMul { weights, .. } => {
                weights.first().map(name).unwrap_or_default().to_owned()
            }
            _ => matrices.collect::<Vec<_>>().join(" "),
        };
        layer
            .or_else(|| Some(matrices).filter(|names| !names.is_empty()))
            .or_else(vector)
            .unwrap_or_default()
    }

    /// The cost of an op of the program's graph, fused or not, in a batch.
    pub fn of(&self, graph: &Graph, op: &Op, batch: &Batch<'_>) -> OpCost {
        let elements = |id: ValueId| {
            let value = graph.value(id);
            value.width * batch.rows(value.rows)
        };
        let size = |id: WeightId| &self.weights[id.index()];
        let tokens = batch.ids.len();

        let (mut bytes, mut operations) = (0, 0);
        let mut matmuls = OpCost::default();
        for operand in op.operands() {
            bytes += match operand {
                Operand::Input(id) | Operand::Output(id) => size_of::<f32>() * elements(*id),
                Operand::Vector(id) => size(*id).bytes,
                Operand::Table(id) => {
                    let table = size(*id);
                    tokens * (table.bytes / table.rows.max(1) + size_of::<u32>())
                }
                // The op determines how many experts and how much of the cache it reads.
                Operand::Matrix(id) if !matches!(op, Op::ExpertMatMul(_)) => size(*id).bytes,
                Operand::KvLayer(layer) if !matches!(op, Op::Attention { .. }) => {
                    tokens * self.cached_bytes(*layer)
                }
                // Read before the batch and written after it.
                Operand::State(state) => 2 * self.kv.states[*state].bytes() * batch.spans.len(),
                Operand::Matrix(_) | Operand::KvLayer(_) | Operand::Scratch(_) => 0,
            };
        }
        match op {
            Op::MatMul(m) => {
                for projection in &m.projections {
                    matmuls += size(projection.weight).matmul(elements(projection.out));
                }
                operations += match m.prologue {
                    Prologue::Plain(_) => 0,
                    Prologue::RmsNorm { x, .. } => NORM * elements(x),
                    Prologue::Glu { gate, .. } => GLU * elements(gate),
                };
                operations += match &m.epilogue {
                    Epilogue::None => 0,
                    Epilogue::RmsNorm(norm) => NORM * elements(norm.out),
                    Epilogue::Glu { out, .. } => GLU * elements(*out),
                    Epilogue::Route { .. } => SOFTMAX * elements(m.projections[0].out),
                };
                operations += m.residual.map_or(0, elements);
            }
            Op::Embed { norm: Some(norm), out, .. } => {
                operations += elements(*out) + NORM * elements(norm.out);
            }
            // At least one addition: the number of parts is unknown here.
            Op::AllReduce { residual, norm, out, .. } => {
                operations += elements(*out) + residual.map_or(0, elements);
                operations += norm.map_or(0, |norm| NORM * elements(norm.out));
            }
            Op::Rope { x, rope, .. } => operations += rotations(rope, elements(*x)),
            Op::RopeAppend { heads, .. } => operations += head_operations(heads, elements),
            Op::Attention { append, attention, .. } => {
                if let Some(heads) = append {
                    operations += head_operations(heads, elements);
                    bytes += tokens * self.cached_bytes(heads.layer);
                }
                let (pairs, positions) = seen(attention, batch);
                // Queries by keys, and scores by values.
                let products = attention.head_dim + attention.value_dim();
                operations += 2 * attention.num_heads * products * pairs;
                bytes += self.cached_bytes(attention.layer) * positions;
            }
            Op::CausalConv(conv) => {
                let taps = self.weights[conv.filter.index()].rows;
                let silu = usize::from(conv.silu);
                operations += (2 * taps + silu) * elements(conv.out);
            }
            Op::DeltaNet(DeltaNet { state, .. })
            | Op::StateSpace(StateSpace { state, .. })
            | Op::SelectiveScan(SelectiveScan { state, .. }) => {
                operations += tokens * recurrence_operations(op, self.kv.states[*state].len());
            }
            Op::Route { logits, .. } => operations += SOFTMAX * elements(*logits),
            Op::HeadMatMul { weights, out, .. } => {
                if let Some(first) = weights.first() {
                    matmuls += size(*first).matmul(elements(*out));
                }
            }
            Op::ExpertMatMul(m) => {
                for ExpertProjection { weights, out, .. } in &m.projections {
                    let Some(first) = weights.first().map(|first| size(*first)) else { continue };
                    // The selected experts are unknown here, so this is their largest possible
                    // number.
                    let slots = elements(*out) / first.rows.max(1);
                    bytes += first.bytes * slots.min(weights.len());
                    matmuls += first.matmul(elements(*out));
                }
                operations += m.glu.map_or(0, |(_, out)| GLU * elements(out));
                if let Some(Combine { residual, norm, .. }) = m.combine {
                    operations += 2 * elements(m.projections[0].out) + residual.map_or(0, elements);
                    operations += norm.map_or(0, |norm| NORM * elements(norm.out));
                }
            }
            Op::CombineExperts { x, residual, .. } => {
                operations += 2 * elements(*x) + residual.map_or(0, elements);
            }
            op => {
                let outputs: usize = op.outputs().into_iter().map(elements).sum();
                operations += op.operations_per_element() * outputs;
            }
        }
        let (bytes, f32_operations) = (bytes as u64, operations as u64);
        matmuls + OpCost { bytes, f32_operations, int8_operations: 0 }
    }

    /// Bytes of a token's keys and values in a layer.
    fn cached_bytes(&self, layer: usize) -> usize {
        self.kv.layer_bytes_per_token(self.kv.layers[layer])
    }
}

/// Operations per element: square, sum, and two multiplications.
const NORM: usize = 4;

/// Operations per element: activation function and multiplication.
const GLU: usize = 2;

/// Operations per element: difference, exponential, sum, quotient.
const SOFTMAX: usize = 4;

/// Operations of a recurrence for a token, whose state has as many elements as `state`.
fn recurrence_operations(op: &Op, state: usize) -> usize {
    match op {
        // Decay, prediction, correction and output of each element of the state, each a
        // multiply-add; and the norms of queries and keys.
        Op::DeltaNet(op) => 7 * state + NORM * 2 * op.heads.key_width(),
        // Decay, input and output of each element of the state.
        Op::StateSpace(_) => 5 * state,
        // As above, and the exponential of each element's decay.
        _ => 7 * state,
    }
}

/// Operations of `RoPE`: four multiplications and two sums for each rotated pair of elements.
fn rotations(rope: &Rope, elements: usize) -> usize {
    3 * elements * rope.dims() / rope.head_dim.max(1)
}

/// Operations of the norms and RoPE of queries and keys, of which a value has `elements`.
fn head_operations(heads: &RopeAppend, elements: impl Fn(ValueId) -> usize) -> usize {
    let rotated = elements(heads.q) + elements(heads.k);
    let norms = if heads.qk_norm.is_some() { NORM * rotated } else { 0 };
    rotations(&heads.rope, rotated) + norms
}

/// Pairs of query and visible key, and positions visible to at least one query, over all
/// sequences.
fn seen(attention: &Attention, batch: &Batch<'_>) -> (usize, usize) {
    let (mut pairs, mut positions) = (0, 0);
    for span in batch.spans {
        let end = span.end();
        let visible = |position| attention.visible(position, span.end(), span.is_non_causal());
        pairs += (span.past_tokens..end).map(|position| visible(position).len()).sum::<usize>();
        positions += end - visible(span.past_tokens).start;
    }
    (pairs, positions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Activation, Fusions, GraphBuilder, KvLayer, KvType, Span, Weight, fuse};

    fn program(write: impl FnOnce(&mut GraphBuilder) -> ValueId) -> Program {
        let mut g = GraphBuilder::new();
        let out = write(&mut g);
        let (graph, weights) = g.finish(out);
        let kv = KvLayout::new(vec![KvLayer::new(2, 4)], 16, 4, KvType::F16);
        Program { graph, weights, kv, max_batch_tokens: 8, max_output_rows: 8 }
    }

    fn f32_cost(bytes: u64, f32_operations: u64) -> OpCost {
        OpCost { bytes, f32_operations, int8_operations: 0 }
    }

    fn cost(program: &Program, op: usize, past_tokens: usize, tokens: usize) -> OpCost {
        let ids = vec![0; tokens];
        let spans = [Span { tokens: 0..tokens, past_tokens, pages: &[], ..Span::default() }];
        let batch = Batch { ids: &ids, spans: &spans, output_rows: &[], input: None };
        Costs::new(program).of(&program.graph, &program.graph.ops()[op], &batch)
    }

    #[test]
    fn a_matmul_reads_its_weights_once() {
        let program = program(|g| {
            let table = g.weight(Weight::f32("table", 10, 8, vec![0.0; 80]));
            let w = g.weight(Weight::f32("w", 3, 8, vec![0.0; 24]));
            let x = g.embed(table, 1.0);
            g.matmul(x, w)
        });
        // A row of 8 floats and an id for each token; 8 floats written.
        assert_eq!(cost(&program, 0, 0, 5), f32_cost(5 * (32 + 4 + 32), 40));
        // 24 weights, 5 rows of 8 read and 3 written; 2 · 5 · 3 · 8.
        let expected = f32_cost(4 * (24 + 40 + 15), 240);
        assert_eq!(cost(&program, 1, 0, 5), expected);
        assert_eq!(Costs::new(&program).detail(&program.graph.ops()[1]), "w");
    }

    #[test]
    fn fused_ops_cost_the_arithmetic_of_their_parts_and_fewer_bytes() {
        let write = |g: &mut GraphBuilder| {
            let x = g.input(8);
            let norm = g.weight(Weight::f32("norm", 1, 8, vec![1.0; 8]));
            let gate = g.weight(Weight::f32("gate", 16, 8, vec![0.0; 128]));
            let up = g.weight(Weight::f32("up", 16, 8, vec![0.0; 128]));
            let down = g.weight(Weight::f32("down", 8, 16, vec![0.0; 128]));
            let n = g.rms_norm(x, norm, 1e-5);
            let (a, b) = (g.matmul(n, gate), g.matmul(n, up));
            let h = g.glu(Activation::Silu, a, b);
            let down = g.matmul(h, down);
            g.add(x, down)
        };
        let plain = program(write);
        let fused = program(write);
        let fused = Program { graph: fuse(fused.graph, Fusions::ALL), ..fused };
        let all = |program: &Program| {
            (0..program.graph.ops().len()).map(|op| cost(program, op, 0, 3)).sum::<OpCost>()
        };
        assert!(fused.graph.ops().len() < plain.graph.ops().len());
        let (plain, fused) = (all(&plain), all(&fused));
        assert_eq!(plain.operations(), fused.operations());
        assert!(fused.bytes < plain.bytes);
        // 3 · (norm 4 · 8, two matmuls 2 · 2 · 128, glu 2 · 16, a matmul 2 · 128, sum 8).
        assert_eq!(plain.f32_operations, 3 * (32 + 512 + 32 + 256 + 8));
    }

    #[test]
    fn attention_costs_the_keys_before_it_and_in_its_window() {
        let attention = |window| Attention { window, ..Attention::new(0, 4, 2, 4) };
        let with = |window| {
            program(|g| {
                let (q, k, v) = (g.input(16), g.input(8), g.input(8));
                g.attention(q, k, v, &attention(window))
            })
        };
        // 3 queries at depth 10 see 11, 12 and 13 keys: 36 pairs. A token of 2 heads of 4 in f16
        // is 32 bytes.
        let expected = f32_cost(4 * 2 * 3 * 16 + 13 * 32, 2 * 2 * 16 * 36);
        assert_eq!(cost(&with(None), 4, 10, 3), expected);
        // With a window of 4 each query sees 4 keys, and 6 are visible to any query.
        let expected = f32_cost(4 * 2 * 3 * 16 + 6 * 32, 2 * 2 * 16 * 12);
        assert_eq!(cost(&with(Some(4)), 4, 10, 3), expected);
        // In both directions, 3 queries see 13 keys each.
        let both = program(|g| {
            let (q, k, v) = (g.input(16), g.input(8), g.input(8));
            g.attention(q, k, v, &Attention { causal: false, ..attention(None) })
        });
        let expected = f32_cost(4 * 2 * 3 * 16 + 13 * 32, 2 * 2 * 16 * 39);
        assert_eq!(cost(&both, 4, 10, 3), expected);
        // Two rows of 8 read, 32 bytes written, for each token.
        assert_eq!(cost(&with(None), 3, 10, 3), f32_cost(3 * (64 + 32), 0));
    }

    #[test]
    fn quantised_weights_are_multiplied_in_int8_and_the_norm_before_them_in_f32() {
        let program = program(|g| {
            let x = g.input(32);
            let norm = g.weight(Weight::f32("norm", 1, 32, vec![1.0; 32]));
            let bytes = vec![0; 3 * DType::Q8_0.row_bytes(32).unwrap()];
            let w = Weight::new("w", DType::Q8_0, 3, 32, std::sync::Arc::new(bytes)).unwrap();
            let w = g.weight(w);
            let n = g.rms_norm(x, norm, 1e-5);
            g.matmul(n, w)
        });
        let program = Program { graph: fuse(program.graph.clone(), Fusions::ALL), ..program };
        let fused = cost(&program, 1, 0, 5);
        assert_eq!((fused.f32_operations, fused.int8_operations), (5 * 4 * 32, 5 * 2 * 32 * 3));
        assert_eq!((fused + fused).per(2), fused);
    }
}
