//! Cutting a program in two, so that two backends share a model.

use crate::backend::{KvLayout, Program};
use crate::graph::{Graph, RowKind};
use crate::op::{MatMul, Op, Prologue, ValueId, WeightId};
use crate::weight::Weight;

/// A program in two parts: `second` takes by [`Op::Input`] what `first` gives out.
#[derive(Debug)]
pub struct Split {
    /// Its output is the residual stream, one row per token.
    pub first: Program,
    /// Ends as the whole program did.
    pub second: Program,
    /// Width of the stream between them.
    pub width: usize,
}

/// Why a program cannot be cut there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SplitError {
    /// There are fewer layers.
    #[error("there is no layer {layers}, the model has {count}")]
    NoSuchLayer {
        /// Layers that the first part was to have.
        layers: usize,
        /// Layers that there are.
        count: usize,
    },
    /// More than the residual stream is alive there, or layers do not follow each other.
    #[error("the model cannot be split after {layers} layers")]
    Entangled {
        /// Layers that the first part was to have.
        layers: usize,
    },
}

/// Cuts an unfused program so that the first part has the first `layers` layers of the KV cache and the second
/// one has the others; either may have none.
///
/// The cut is where only one value is alive, which is the residual stream: the last such place before the next
/// layer's keys and values, so that all of a layer stays together. Each part has the weights that it reads; one
/// that both read (an embedding that is the output's matrix too) is in both.
///
/// # Errors
///
/// If there is no such place.
pub fn split(program: Program, layers: usize) -> Result<Split, SplitError> {
    let Program { graph, weights, kv, max_batch_tokens, max_output_rows } = program;
    let count = kv.layers.len();
    if layers > count {
        return Err(SplitError::NoSuchLayer { layers, count });
    }
    let (at, stream) = cut(&graph, layers).ok_or(SplitError::Entangled { layers })?;
    let part = |part: Part<'_>, output, layers: &[(usize, usize)]| {
        let (graph, weights) = part.finish(output);
        let kv = KvLayout { layers: layers.to_vec(), ..kv.clone() };
        Program { graph, weights, kv, max_batch_tokens, max_output_rows }
    };
    let (kv_first, kv_second) = kv.layers.split_at(layers);

    let mut first = Part::new(&graph, &weights, 0);
    first.extend(&graph.ops[..at]);
    let mut second = Part::new(&graph, &weights, layers);
    second.extend(&[Op::Input { out: stream }]);
    second.extend(&graph.ops[at..]);
    Ok(Split {
        first: part(first, stream, kv_first),
        second: part(second, graph.output, kv_second),
        width: graph.value(stream).width,
    })
}

/// The op before which to cut, and the value that is alive there.
fn cut(graph: &Graph, layers: usize) -> Option<(usize, ValueId)> {
    let ops = &graph.ops;
    let layer_of = |op: &Op| match op {
        Op::KvAppend { layer, .. } | Op::RopeAppend { layer, .. } => Some(*layer),
        Op::Attention { attention, .. } => Some(attention.layer),
        _ => None,
    };
    let start = ops.iter().rposition(|op| layer_of(op).is_some_and(|layer| layer < layers));
    let start = start.map_or(0, |last| last + 1);
    let is_later = |op: &Op| {
        let selects = op.outputs().iter().any(|out| graph.value(*out).rows == RowKind::Output);
        selects || layer_of(op).is_some_and(|layer| layer >= layers)
    };
    let end = ops.iter().position(is_later).unwrap_or(ops.len());
    (start.max(1)..=end.min(ops.len().saturating_sub(1))).rev().find_map(|at| {
        let written = ops[..at].iter().flat_map(Op::outputs);
        let is_read = |id: &ValueId| {
            *id == graph.output || ops[at..].iter().any(|op| op.inputs().contains(id))
        };
        let mut alive = written.filter(is_read);
        let stream = alive.next()?;
        let is_stream = alive.next().is_none() && graph.value(stream).rows == RowKind::Token;
        is_stream.then_some((at, stream))
    })
}

/// Some ops of a program, with ids of their own.
struct Part<'a> {
    whole: &'a Graph,
    whole_weights: &'a [Weight],
    first_layer: usize,
    graph: Graph,
    weights: Vec<Weight>,
    /// New ids by old ones.
    value_ids: Vec<Option<ValueId>>,
    weight_ids: Vec<Option<WeightId>>,
}

impl<'a> Part<'a> {
    fn new(whole: &'a Graph, whole_weights: &'a [Weight], first_layer: usize) -> Self {
        let graph = Graph {
            ops: Vec::new(),
            values: Vec::new(),
            output: whole.output,
            weight_columns: Vec::new(),
        };
        Self {
            whole,
            whole_weights,
            first_layer,
            graph,
            weights: Vec::new(),
            value_ids: vec![None; whole.values.len()],
            weight_ids: vec![None; whole_weights.len()],
        }
    }

    fn extend(&mut self, ops: &[Op]) {
        for op in ops {
            let mut op = op.clone();
            self.renumber(&mut op);
            self.graph.ops.push(op);
        }
    }

    fn finish(mut self, output: ValueId) -> (Graph, Vec<Weight>) {
        self.graph.output = self.value(output);
        (self.graph, self.weights)
    }

    fn value(&mut self, id: ValueId) -> ValueId {
        let values = &mut self.graph.values;
        *self.value_ids[id.index()].get_or_insert_with(|| {
            values.push(self.whole.value(id));
            ValueId(values.len() as u32 - 1)
        })
    }

    fn weight(&mut self, id: WeightId) -> WeightId {
        *self.weight_ids[id.index()].get_or_insert_with(|| {
            self.weights.push(self.whole_weights[id.index()].clone());
            self.graph.weight_columns.push(self.whole.weight_columns(id));
            WeightId(self.weights.len() as u32 - 1)
        })
    }

    fn renumber(&mut self, op: &mut Op) {
        match op {
            Op::Embed { table, out, .. } => {
                *table = self.weight(*table);
                self.values([out]);
            }
            Op::Input { out } => self.values([out]),
            Op::RmsNorm { x, weight, out, .. } => {
                *weight = self.weight(*weight);
                self.values([x, out]);
            }
            Op::MatMul(m) => self.renumber_product(m),
            Op::KvAppend { k, v, layer } => {
                *layer -= self.first_layer;
                self.values([k, v]);
            }
            Op::Attention { q, attention, out } => {
                attention.layer -= self.first_layer;
                self.values([q, out]);
                attention.sinks = attention.sinks.map(|sinks| self.weight(sinks));
            }
            Op::Glu { gate: a, up: b, out, .. } | Op::Add { a, b, out } => {
                self.values([a, b, out]);
            }
            Op::Rope { x, out, .. } | Op::Scale { x, out, .. } | Op::SelectRows { x, out } => {
                self.values([x, out]);
            }
            Op::Route { logits, out, .. } => self.values([logits, out]),
            Op::ExpertMatMul { x, route, weights, out } => {
                for weight in weights.iter_mut() {
                    *weight = self.weight(*weight);
                }
                self.values([x, route, out]);
            }
            Op::CombineExperts { x, route, out } => self.values([x, route, out]),
            Op::RopeAppend { q, k, v, qk_norm, layer, q_out, .. } => {
                *layer -= self.first_layer;
                self.values([q, k, v, q_out]);
                if let Some(norm) = qk_norm {
                    (norm.q, norm.k) = (self.weight(norm.q), self.weight(norm.k));
                }
            }
        }
    }

    fn renumber_product(&mut self, product: &mut MatMul) {
        match &mut product.prologue {
            Prologue::Plain(x) => self.values([x]),
            Prologue::RmsNorm { x, weight, .. } => {
                *weight = self.weight(*weight);
                self.values([x]);
            }
            Prologue::Glu { gate, up, .. } => self.values([gate, up]),
        }
        for projection in &mut product.projections {
            projection.weight = self.weight(projection.weight);
            projection.bias = projection.bias.map(|bias| self.weight(bias));
            self.values([&mut projection.out]);
        }
        product.residual = product.residual.map(|residual| self.value(residual));
    }

    fn values<const N: usize>(&mut self, ids: [&mut ValueId; N]) {
        for id in ids {
            *id = self.value(*id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::cases;
    use crate::{Backend, Batch, Executor, ReferenceBackend};

    /// Two layers, an output, sequences of several lengths, step by step.
    fn models() -> Vec<crate::case::Case> {
        cases().into_iter().filter(|case| case.name().starts_with("model/")).collect()
    }

    fn executor(program: Program) -> Box<dyn Executor> {
        ReferenceBackend.compile(program, &mut |_| ()).unwrap()
    }

    fn output(
        executor: &mut dyn Executor,
        batch: &Batch<'_>,
        rows: usize,
        width: usize,
    ) -> Vec<u32> {
        let mut out = vec![f32::NAN; rows * width];
        executor.forward(batch, &mut out).unwrap();
        out.iter().map(|x| x.to_bits()).collect()
    }

    #[test]
    fn both_parts_in_turn_compute_what_the_whole_does() {
        assert!(!models().is_empty());
        for case in models() {
            let program = case.program();
            let layers = program.kv.layers.len();
            let value = program.graph.value(program.graph.output());
            let width = value.width;
            for first_layers in 0..=layers {
                let parts = split(case.program(), first_layers).unwrap();
                assert_eq!(parts.first.kv.layers.len(), first_layers);
                assert_eq!(parts.second.kv.layers.len(), layers - first_layers);
                let stream = parts.width;
                let mut whole = executor(case.program());
                let (mut first, mut second) = (executor(parts.first), executor(parts.second));
                for batch in case.batches() {
                    batch.with(|batch| {
                        let rows = match value.rows {
                            RowKind::Token => batch.ids.len(),
                            RowKind::Output => batch.output_rows.len(),
                        };
                        let expected = output(&mut *whole, batch, rows, width);
                        let hidden = output(&mut *first, batch, batch.ids.len(), stream);
                        let hidden: Vec<f32> = hidden.into_iter().map(f32::from_bits).collect();
                        let batch = Batch { input: Some(&hidden), ..*batch };
                        let actual = output(&mut *second, &batch, rows, width);
                        assert_eq!(actual, expected, "{} after {first_layers}", case.name());
                    });
                }
            }
        }
    }

    #[test]
    fn a_layer_that_is_not_there_is_an_error() {
        let program = models()[0].program();
        let count = program.kv.layers.len();
        let error = split(program, count + 1).unwrap_err();
        assert_eq!(error, SplitError::NoSuchLayer { layers: count + 1, count });
    }

    #[test]
    fn each_part_has_the_weights_that_it_reads() {
        let program = models()[0].program();
        let (layers, weights) = (program.kv.layers.len(), program.weights.len());
        let parts = split(program, layers).unwrap();
        // The output's norm and matrix, and whatever else the end of the model has.
        assert!(parts.second.weights.len() < 5);
        assert!(parts.first.weights.len() < weights);
    }
}
