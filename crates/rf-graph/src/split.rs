//! Splits a program in two, so that two backends share a model.

use crate::backend::{KvLayout, Program};
use crate::graph::Graph;
use crate::op::{Op, Operand};
use crate::value::{RowKind, ValueId, WeightId};
use crate::weight::Weight;

/// A program in two parts. The output of `first` is the [`Op::Input`] of `second`.
#[derive(Debug)]
pub struct Split {
    /// The first layers. The output is the residual, one row per token.
    pub first: Program,
    /// The remaining layers, with the output of the whole program.
    pub second: Program,
    /// Width of the residual between the parts.
    pub width: usize,
}

/// A program cannot be split at a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SplitError {
    /// The model has fewer layers than requested.
    #[error("there is no layer {layers}, the model has {count}")]
    NoSuchLayer {
        /// Requested layers of the first part.
        layers: usize,
        /// Layers of the model.
        count: usize,
    },
    /// Values other than the residual are alive at the cut, or layers are not in order.
    #[error("the model cannot be split after {layers} layers")]
    Entangled {
        /// Requested layers of the first part.
        layers: usize,
    },
}

/// Splits an unfused program. The first part has the first `layers` layers of the KV cache, the
/// second part the others. Either part may have no layers.
///
/// The cut is at a place where only the residual is alive: the last such place before the next
/// layer's keys and values, so that no layer is divided. Each part has the weights that it reads. A
/// weight that both parts read, such as a tied embedding and output matrix, is in both.
///
/// # Errors
///
/// If the program cannot be split there.
pub fn split(program: Program, layers: usize) -> Result<Split, SplitError> {
    let Program { graph, weights, kv, max_batch_tokens, max_output_rows } = program;
    let count = kv.layers.len();
    if layers > count {
        return Err(SplitError::NoSuchLayer { layers, count });
    }
    let (at, residual) = cut(&graph, layers).ok_or(SplitError::Entangled { layers })?;
    let part = |part: Part<'_>, output, layers: &[(usize, usize)]| {
        let (graph, weights) = part.finish(output);
        let kv = KvLayout { layers: layers.to_vec(), ..kv.clone() };
        Program { graph, weights, kv, max_batch_tokens, max_output_rows }
    };
    let (kv_first, kv_second) = kv.layers.split_at(layers);

    let mut first = Part::new(&graph, &weights, 0);
    first.extend(&graph.ops[..at]);
    let mut second = Part::new(&graph, &weights, layers);
    second.extend(&[Op::Input { out: residual }]);
    second.extend(&graph.ops[at..]);
    Ok(Split {
        first: part(first, residual, kv_first),
        second: part(second, graph.output, kv_second),
        width: graph.value(residual).width,
    })
}

/// The index of the first op after the cut, and the residual, which is the only value alive there.
fn cut(graph: &Graph, layers: usize) -> Option<(usize, ValueId)> {
    let ops = &graph.ops;
    let layer_of = |op: &Op| {
        op.operands().into_iter().find_map(|operand| match operand {
            Operand::KvLayer(layer) => Some(*layer),
            _ => None,
        })
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
        let residual = alive.next()?;
        let is_residual = alive.next().is_none() && graph.value(residual).rows == RowKind::Token;
        is_residual.then_some((at, residual))
    })
}

/// A part of a program, with its values, weights and layers renumbered.
struct Part<'a> {
    whole: &'a Graph,
    whole_weights: &'a [Weight],
    first_layer: usize,
    graph: Graph,
    weights: Vec<Weight>,
    /// New ids by the index of the old ids.
    value_ids: Vec<Option<ValueId>>,
    weight_ids: Vec<Option<WeightId>>,
}

impl<'a> Part<'a> {
    fn new(whole: &'a Graph, whole_weights: &'a [Weight], first_layer: usize) -> Self {
        let graph = Graph {
            ops: Vec::new(),
            values: Vec::new(),
            output: whole.output,
            weights: Vec::new(),
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
            self.graph.weights.push(self.whole.weight(id));
            WeightId(self.weights.len() as u32 - 1)
        })
    }

    fn renumber(&mut self, op: &mut Op) {
        for operand in op.operands_mut() {
            match operand {
                Operand::Input(id) | Operand::Output(id) | Operand::Scratch(id) => {
                    *id = self.value(*id);
                }
                Operand::Matrix(id) | Operand::Table(id) | Operand::Vector(id) => {
                    *id = self.weight(*id);
                }
                Operand::KvLayer(layer) => *layer -= self.first_layer,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::cases;
    use crate::{Backend, Batch, Executor, ReferenceBackend};

    /// Models of two layers, with batches of sequences of several lengths.
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
    fn both_parts_in_turn_give_the_results_of_the_whole_program() {
        assert!(!models().is_empty());
        for case in models() {
            let program = case.program();
            let layers = program.kv.layers.len();
            let value = program.graph.value(program.graph.output());
            let width = value.width;
            for first_layers in 0..=layers {
                let parts = match split(case.program(), first_layers) {
                    // Layers read inputs of their own and the cache of earlier layers.
                    Err(SplitError::Entangled { .. }) if case.name() == "model/gemma4" => continue,
                    parts => parts.unwrap(),
                };
                assert_eq!(parts.first.kv.layers.len(), first_layers);
                assert_eq!(parts.second.kv.layers.len(), layers - first_layers);
                let residual_width = parts.width;
                let mut whole = executor(case.program());
                let (mut first, mut second) = (executor(parts.first), executor(parts.second));
                for batch in case.batches() {
                    batch.with(|batch| {
                        let rows = batch.rows(value.rows);
                        let expected = output(&mut *whole, batch, rows, width);
                        let hidden = output(&mut *first, batch, batch.ids.len(), residual_width);
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
    fn a_layer_beyond_the_model_is_an_error() {
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
        // The output norm, the output matrix, and other weights after the last layer.
        assert!(parts.second.weights.len() < 5);
        assert!(parts.first.weights.len() < weights);
    }
}
