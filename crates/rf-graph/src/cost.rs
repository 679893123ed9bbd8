//! What ops have to move and compute, whoever runs them.

use crate::backend::{Batch, KvLayout, Program};
use crate::graph::{Graph, RowKind};
use crate::op::{Attention, Op, Prologue, Rope, ValueId, WeightId};

/// The least that an op has to do in a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpCost {
    /// Bytes read and written: weights in the format of the file, the part of the cache that is seen, values in f32. Each
    /// counts once, as if everything that is read twice stayed in a cache.
    pub bytes: u64,
    /// Arithmetic; a multiply-add is two, and so is an activation function with the product behind it.
    pub operations: u64,
}

/// What the costs of a program's ops depend on, kept when the program itself is gone.
#[derive(Clone, Debug)]
pub struct Costs {
    weights: Vec<WeightSize>,
    kv: KvLayout,
}

#[derive(Clone, Debug)]
struct WeightSize {
    name: String,
    rows: usize,
    columns: usize,
    bytes: usize,
}

impl Costs {
    /// Of a program, before a backend compiles it.
    pub fn new(program: &Program) -> Self {
        let weights = program.weights.iter().map(|weight| WeightSize {
            name: weight.name().to_owned(),
            rows: weight.rows(),
            columns: weight.columns(),
            bytes: weight.bytes().len(),
        });
        Self { weights: weights.collect(), kv: program.kv.clone() }
    }

    /// What tells an op from others of its name: the weights of a product, the layer of the cache (of a part of a model, its
    /// own).
    pub fn detail(&self, op: &Op) -> String {
        let name = |id: WeightId| self.weights[id.index()].name.as_str();
        match op {
            Op::Embed { table, .. } => name(*table).to_owned(),
            Op::RmsNorm { weight, .. } => name(*weight).to_owned(),
            Op::MatMul(m) => {
                let names: Vec<&str> = m.projections.iter().map(|p| name(p.weight)).collect();
                names.join(" ")
            }
            Op::ExpertMatMul { weights, .. } => {
                weights.first().map(|first| name(*first).to_owned()).unwrap_or_default()
            }
            Op::KvAppend { layer, .. }
            | Op::RopeAppend { layer, .. }
            | Op::Attention { attention: Attention { layer, .. }, .. } => {
                format!("KV layer {layer}")
            }
            _ => String::new(),
        }
    }

    /// Of an op of the program's graph, fused or not, in a batch.
    pub fn of(&self, graph: &Graph, op: &Op, batch: &Batch<'_>) -> OpCost {
        let elements = |id: ValueId| {
            let value = graph.value(id);
            value.width
                * match value.rows {
                    RowKind::Token => batch.ids.len(),
                    RowKind::Output => batch.output_rows.len(),
                }
        };
        let values = |ids: Vec<ValueId>| ids.into_iter().map(elements).sum::<usize>();
        let size = |id: WeightId| &self.weights[id.index()];
        let tokens = batch.ids.len();

        let mut bytes = size_of::<f32>() * (values(op.inputs()) + values(op.outputs()));
        let mut operations = 0;
        match op {
            Op::Embed { table, out, .. } => {
                let table = size(*table);
                bytes += tokens * (table.bytes / table.rows.max(1) + size_of::<u32>());
                operations += elements(*out);
            }
            Op::Input { .. } | Op::SelectRows { .. } => {}
            Op::RmsNorm { x, weight, .. } => {
                bytes += size(*weight).bytes;
                operations += NORM * elements(*x);
            }
            Op::MatMul(m) => {
                for projection in &m.projections {
                    let weight = size(projection.weight);
                    let bias = projection.bias.map_or(0, |bias| size(bias).bytes);
                    bytes += weight.bytes + bias;
                    operations += 2 * weight.columns * elements(projection.out);
                }
                operations += match &m.prologue {
                    Prologue::Plain(_) => 0,
                    Prologue::RmsNorm { x, weight, .. } => {
                        bytes += size(*weight).bytes;
                        NORM * elements(*x)
                    }
                    Prologue::Glu { gate, .. } => GLU * elements(*gate),
                };
                operations += m.residual.map_or(0, elements);
            }
            Op::Rope { x, rope, .. } => operations += rotations(rope, elements(*x)),
            Op::KvAppend { layer, .. } => bytes += self.appended_bytes(*layer, tokens),
            Op::RopeAppend { q, k, qk_norm, rope, layer, .. } => {
                let rotated = elements(*q) + elements(*k);
                operations += rotations(rope, rotated);
                operations += if qk_norm.is_some() { NORM * rotated } else { 0 };
                bytes += self.appended_bytes(*layer, tokens);
            }
            Op::Attention { attention, .. } => {
                let (pairs, positions) = seen(attention, batch);
                let (_, head_dim) = self.kv.layers[attention.layer];
                // Scores, and values by scores.
                operations += 2 * 2 * attention.num_heads * head_dim * pairs;
                bytes += self.cached_bytes(attention.layer) * positions;
            }
            Op::Glu { out, .. } => operations += GLU * elements(*out),
            Op::Add { out, .. } | Op::Scale { out, .. } => operations += elements(*out),
            Op::Route { logits, .. } => operations += SOFTMAX * elements(*logits),
            Op::ExpertMatMul { weights, out, .. } => {
                let Some(first) = weights.first() else { return OpCost::default() };
                let first = size(*first);
                // Which experts are chosen is not known here: as many as can be.
                let slots = elements(*out) / first.rows.max(1);
                bytes += first.bytes * slots.min(weights.len());
                operations += 2 * first.columns * elements(*out);
            }
            Op::CombineExperts { x, .. } => operations += 2 * elements(*x),
        }
        OpCost { bytes: bytes as u64, operations: operations as u64 }
    }

    /// Bytes of a token's keys and values in a layer.
    fn cached_bytes(&self, layer: usize) -> usize {
        let (heads, head_dim) = self.kv.layers[layer];
        2 * heads * self.kv.dtype.head_bytes(head_dim)
    }

    fn appended_bytes(&self, layer: usize, tokens: usize) -> usize {
        tokens * self.cached_bytes(layer)
    }
}

/// Square, sum, and two factors for each element.
const NORM: usize = 4;

/// The activation function and the product.
const GLU: usize = 2;

/// Difference, exponential, sum, quotient.
const SOFTMAX: usize = 4;

/// Four products and two sums for each pair of elements that turns.
fn rotations(rope: &Rope, elements: usize) -> usize {
    3 * elements * rope.dims() / rope.head_dim.max(1)
}

/// Pairs of query and key, and positions of which at least one query sees the key, over all sequences.
fn seen(attention: &Attention, batch: &Batch<'_>) -> (usize, usize) {
    let (mut pairs, mut positions) = (0, 0);
    for span in batch.spans {
        let end = span.past_tokens + span.tokens.len();
        let window = attention.window.unwrap_or(end).max(1);
        pairs += (span.past_tokens + 1..=end).map(|seen| seen.min(window)).sum::<usize>();
        positions += end - (span.past_tokens + 1).saturating_sub(window);
    }
    (pairs, positions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Activation, Fusions, GraphBuilder, KvType, Span, Weight, fuse};

    fn program(write: impl FnOnce(&mut GraphBuilder) -> ValueId) -> Program {
        let mut g = GraphBuilder::new();
        let out = write(&mut g);
        let (graph, weights) = g.finish(out);
        let kv =
            KvLayout { layers: vec![(2, 4)], page_tokens: 16, num_pages: 4, dtype: KvType::F16 };
        Program { graph, weights, kv, max_batch_tokens: 8, max_output_rows: 8 }
    }

    fn cost(program: &Program, op: usize, past_tokens: usize, tokens: usize) -> OpCost {
        let ids = vec![0; tokens];
        let spans = [Span { tokens: 0..tokens, past_tokens, pages: &[] }];
        let batch = Batch { ids: &ids, spans: &spans, output_rows: &[], input: None };
        Costs::new(program).of(&program.graph, &program.graph.ops()[op], &batch)
    }

    #[test]
    fn a_product_reads_its_weights_once() {
        let program = program(|g| {
            let table = g.weight(Weight::f32("table", 10, 8, vec![0.0; 80]));
            let w = g.weight(Weight::f32("w", 3, 8, vec![0.0; 24]));
            let x = g.embed(table, 1.0);
            g.matmul(x, w)
        });
        // A row of 8 floats and an id for each token; 8 floats written.
        assert_eq!(cost(&program, 0, 0, 5), OpCost { bytes: 5 * (32 + 4 + 32), operations: 40 });
        // 24 weights, 5 rows of 8 read and 3 written; 2 · 5 · 3 · 8.
        let expected = OpCost { bytes: 4 * (24 + 40 + 15), operations: 240 };
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
            (0..program.graph.ops().len())
                .map(|op| cost(program, op, 0, 3))
                .fold((0, 0), |(bytes, operations), cost| {
                    (bytes + cost.bytes, operations + cost.operations)
                })
        };
        assert!(fused.graph.ops().len() < plain.graph.ops().len());
        let (plain, fused) = (all(&plain), all(&fused));
        assert_eq!(plain.1, fused.1);
        assert!(fused.0 < plain.0);
        // 3 · (norm 4 · 8, two products 2 · 2 · 128, glu 2 · 16, a product 2 · 128, sum 8).
        assert_eq!(plain.1, 3 * (32 + 512 + 32 + 256 + 8));
    }

    #[test]
    fn attention_sees_what_is_before_and_in_its_window() {
        let attention = |window| Attention { window, ..Attention::new(0, 4, 2, 4) };
        let with = |window| {
            program(|g| {
                let (q, k, v) = (g.input(16), g.input(8), g.input(8));
                g.attention(q, k, v, &attention(window))
            })
        };
        // 3 queries behind 10 tokens see 11, 12 and 13 keys: 36 pairs. A token of 2 heads of 4 in f16 is 32 bytes.
        let expected = OpCost { bytes: 4 * 2 * 3 * 16 + 13 * 32, operations: 2 * 2 * 16 * 36 };
        assert_eq!(cost(&with(None), 4, 10, 3), expected);
        // With a window of 4 each sees 4, and 6 are seen by any.
        let expected = OpCost { bytes: 4 * 2 * 3 * 16 + 6 * 32, operations: 2 * 2 * 16 * 12 };
        assert_eq!(cost(&with(Some(4)), 4, 10, 3), expected);
        // Two rows of 8 read, 32 bytes written, for each token.
        assert_eq!(cost(&with(None), 3, 10, 3), OpCost { bytes: 3 * (64 + 32), operations: 0 });
    }
}
