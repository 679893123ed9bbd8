//! Splits a program in two, so that two backends share a model.

use crate::backend::Program;
use crate::graph::Graph;
use crate::kv::KvLayout;
use crate::op::{Op, Operand};
use crate::value::{RowKind, ValueId, WeightId};
use crate::weight::Weight;

/// The ops that the first of two backends runs; the second one runs all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The embedding and this many layers, counted from the first one. With 0, the embedding is on
    /// the second backend.
    pub layers: usize,
    /// The feed-forward parts with experts of this many layers, counted from the first one.
    pub expert_layers: usize,
}

/// One of the backends that share a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The first one.
    First,
    /// The second one.
    Second,
}

/// A program in two parts, whose stages run in turns: [`Graph::stages`]. The output of a stage is
/// the [`Op::Input`] of the next one.
#[derive(Debug)]
pub struct Split {
    /// The part of the first backend.
    pub first: Program,
    /// The part of the second backend.
    pub second: Program,
    /// The part that each stage belongs to, in the order of execution. The last one computes the
    /// output of the whole program.
    pub stages: Vec<Side>,
    /// Width of the residual between stages.
    pub width: usize,
}

/// A program cannot be split as requested.
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
    /// Values other than the residual are alive at a cut, or layers are not in order.
    #[error("the model cannot be split in layer {layer}")]
    Entangled {
        /// The layer, or the number of layers before the cut.
        layer: usize,
    },
    /// One part would have no ops.
    #[error("there is nothing to split: one backend would run the whole model")]
    Undivided,
}

/// Splits an unfused program.
///
/// A cut is at a place where only the residual is alive. The first layers end at the last such
/// place before the next layer's keys and values, so that no layer is divided. The feed-forward
/// part of a layer with experts begins at the last such place before its router, and ends at the
/// first one after. Each part has the weights that it reads. A weight that both parts read, such as
/// a tied embedding and output matrix, is in both.
///
/// # Errors
///
/// If the program cannot be split there.
pub fn split(program: Program, layout: Layout) -> Result<Split, SplitError> {
    let Program { graph, weights, kv, max_batch_tokens, max_output_rows } = program;
    let runs = runs(&graph, &sides(&graph, layout, kv.layers.len())?)?;
    let last_run = |side| runs.iter().rposition(|run| run.side == side);
    let (Some(_), Some(_)) = (last_run(Side::First), last_run(Side::Second)) else {
        return Err(SplitError::Undivided);
    };
    let width = runs[0].residual.map_or(0, |id| graph.value(id).width);
    let part = |side| {
        let mut part = Part::new(&graph, &weights, kv_layers(&graph, &runs, side, &kv)?);
        let mut input = None;
        let mut output = graph.output;
        for (i, run) in runs.iter().enumerate() {
            if run.side == side {
                part.extend(input.map(|out| Op::Input { out }).as_slice());
                part.extend(&graph.ops[run.start..run.end]);
                match run.residual {
                    Some(x) if last_run(side) != Some(i) => part.extend(&[Op::Output { x }]),
                    residual => output = residual.unwrap_or(graph.output),
                }
            }
            input = run.residual;
        }
        let layers = part.kv_layers.iter().enumerate().filter(|(_, new)| new.is_some());
        let layers = layers.map(|(old, _)| kv.layers[old]).collect();
        let (graph, weights) = part.finish(output);
        let kv = KvLayout { layers, ..kv.clone() };
        Ok(Program { graph, weights, kv, max_batch_tokens, max_output_rows })
    };
    Ok(Split {
        first: part(Side::First)?,
        second: part(Side::Second)?,
        stages: runs.iter().map(|run| run.side).collect(),
        width,
    })
}

/// The side of each op.
fn sides(graph: &Graph, layout: Layout, count: usize) -> Result<Vec<Side>, SplitError> {
    let Layout { layers, expert_layers } = layout;
    if layers > count {
        return Err(SplitError::NoSuchLayer { layers, count });
    }
    let residuals = residuals(graph);
    let first = match layers {
        0 => 0,
        _ => cut(graph, &residuals, layers).ok_or(SplitError::Entangled { layer: layers })?,
    };
    let mut sides = vec![Side::Second; graph.ops.len()];
    sides[..first].fill(Side::First);
    let mut layer = 0;
    for (i, op) in graph.ops.iter().enumerate() {
        match op {
            Op::Attention { .. } => layer += 1,
            Op::Route { .. } if i >= first && layer <= expert_layers => {
                let start = (1..=i).rev().find(|at| residuals[*at].is_some());
                let end = (i + 1..graph.ops.len()).find(|at| residuals[*at].is_some());
                let (Some(start), Some(end)) = (start, end) else {
                    return Err(SplitError::Entangled { layer: layer.saturating_sub(1) });
                };
                sides[start..end].fill(Side::First);
            }
            _ => {}
        }
    }
    Ok(sides)
}

/// Consecutive ops of one side.
struct Run {
    side: Side,
    start: usize,
    end: usize,
    /// The only value alive after the run; `None` for the last run.
    residual: Option<ValueId>,
}

fn runs(graph: &Graph, sides: &[Side]) -> Result<Vec<Run>, SplitError> {
    let residuals = residuals(graph);
    let mut runs = Vec::new();
    let mut start = 0;
    for ops in sides.chunk_by(|a, b| a == b) {
        let end = start + ops.len();
        let residual = residuals.get(end).copied().flatten();
        runs.push(Run { side: ops[0], start, end, residual });
        start = end;
    }
    let widths = || runs.iter().map(|run| run.residual.map(|id| graph.value(id).width));
    let inner = runs.len().saturating_sub(1);
    match widths().take(inner).position(|width| width.is_none() || Some(width) != widths().next()) {
        Some(layer) => Err(SplitError::Entangled { layer }),
        None => Ok(runs),
    }
}

/// For each place between ops, the only value that is alive there, if it has a row per token.
fn residuals(graph: &Graph) -> Vec<Option<ValueId>> {
    let mut last_read = vec![0; graph.values.len()];
    for (step, op) in graph.ops.iter().enumerate() {
        op.inputs().iter().for_each(|id| last_read[id.index()] = step);
    }
    last_read[graph.output.index()] = graph.ops.len();
    let mut alive: Vec<ValueId> = Vec::new();
    let mut residuals = vec![None];
    for (step, op) in graph.ops.iter().enumerate() {
        alive.extend(op.outputs());
        alive.retain(|id| last_read[id.index()] > step);
        let is_residual = |id: &&ValueId| graph.value(**id).rows == RowKind::Token;
        let only = alive.first().filter(|_| alive.len() == 1).filter(is_residual);
        residuals.push(only.copied());
    }
    residuals
}

/// The layer of the KV cache that an op reads or writes.
fn kv_layer_of(op: &Op) -> Option<usize> {
    op.operands().into_iter().find_map(|operand| match operand {
        Operand::KvLayer(layer) => Some(*layer),
        _ => None,
    })
}

/// The index of the first op after the first `layers` layers.
fn cut(graph: &Graph, residuals: &[Option<ValueId>], layers: usize) -> Option<usize> {
    let ops = &graph.ops;
    let start = ops.iter().rposition(|op| kv_layer_of(op).is_some_and(|layer| layer < layers));
    let start = start.map_or(0, |last| last + 1);
    let is_later = |op: &Op| {
        let selects = op.outputs().iter().any(|out| graph.value(*out).rows == RowKind::Output);
        selects || kv_layer_of(op).is_some_and(|layer| layer >= layers)
    };
    let end = ops.iter().position(is_later).unwrap_or(ops.len());
    let mut places = (start.max(1)..=end.min(ops.len().saturating_sub(1))).rev();
    places.find(|at| residuals[*at].is_some())
}

/// New indices of the KV layers of a side, by the old ones.
fn kv_layers(
    graph: &Graph,
    runs: &[Run],
    side: Side,
    kv: &KvLayout,
) -> Result<Vec<Option<usize>>, SplitError> {
    let uses = |side, layer| {
        let mut runs = runs.iter().filter(|run| run.side == side);
        runs.any(|r| graph.ops[r.start..r.end].iter().any(|op| kv_layer_of(op) == Some(layer)))
    };
    let mut next = 0;
    let layers = (0..kv.layers.len()).map(|layer| {
        match [Side::First, Side::Second].map(|s| uses(s, layer)) {
            [true, true] => Err(SplitError::Entangled { layer }),
            [first, second]
                if (first && side == Side::First) || (second && side == Side::Second) =>
            {
                next += 1;
                Ok(Some(next - 1))
            }
            _ => Ok(None),
        }
    });
    layers.collect()
}

/// A part of a program, with its values, weights and layers renumbered.
struct Part<'a> {
    whole: &'a Graph,
    whole_weights: &'a [Weight],
    /// New indices of the KV layers by the old ones.
    kv_layers: Vec<Option<usize>>,
    graph: Graph,
    weights: Vec<Weight>,
    /// New ids by the index of the old ids.
    value_ids: Vec<Option<ValueId>>,
    weight_ids: Vec<Option<WeightId>>,
}

impl<'a> Part<'a> {
    fn new(whole: &'a Graph, whole_weights: &'a [Weight], kv_layers: Vec<Option<usize>>) -> Self {
        let graph = Graph {
            ops: Vec::new(),
            values: Vec::new(),
            output: whole.output,
            weights: Vec::new(),
        };
        Self {
            whole,
            whole_weights,
            kv_layers,
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
                Operand::KvLayer(layer) => {
                    *layer = self.kv_layers[*layer].expect("a layer of this part");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{Case, cases};
    use crate::{Backend, Batch, Executor, ReferenceBackend};

    /// Models of two layers, with batches of sequences of several lengths.
    fn models() -> Vec<Case> {
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

    /// The results of a batch: the stages of both parts in turns.
    fn in_turns(
        parts: &mut [Box<dyn Executor>; 2],
        (stages, width): (&[Side], usize),
        batch: &Batch<'_>,
        out: &mut [f32],
    ) {
        let (mut counts, mut residual) = ([0; 2], None::<Vec<f32>>);
        for (i, side) in stages.iter().enumerate() {
            let part = usize::from(*side == Side::Second);
            let batch = Batch { input: residual.as_deref(), ..*batch };
            if i + 1 == stages.len() {
                return parts[part].forward(&batch, out).unwrap();
            }
            let mut next = vec![f32::NAN; batch.ids.len() * width];
            parts[part].forward_stage(counts[part], &batch, &mut next).unwrap();
            counts[part] += 1;
            residual = Some(next);
        }
    }

    /// Splits a model and compares its results with those of the whole one. Returns the stages.
    fn check(case: &Case, layout: Layout) -> Result<Vec<Side>, SplitError> {
        let program = case.program();
        let layers = program.kv.layers.len();
        let value = program.graph.value(program.graph.output());
        let Split { first, second, stages, width } = split(program, layout)?;
        assert_eq!(first.kv.layers.len(), layout.layers);
        assert_eq!(second.kv.layers.len(), layers - layout.layers);
        let mut whole = executor(case.program());
        let mut parts = [executor(first), executor(second)];
        for batch in case.batches() {
            batch.with(|batch| {
                let rows = batch.rows(value.rows);
                let expected = output(&mut *whole, batch, rows, value.width);
                let mut actual = vec![f32::NAN; rows * value.width];
                in_turns(&mut parts, (&stages, width), batch, &mut actual);
                let actual: Vec<u32> = actual.into_iter().map(f32::to_bits).collect();
                assert_eq!(actual, expected, "{} with {layout:?}", case.name());
            });
        }
        Ok(stages)
    }

    #[test]
    fn both_parts_in_turn_give_the_results_of_the_whole_program() {
        assert!(!models().is_empty());
        for case in models() {
            for layers in 1..=case.program().kv.layers.len() {
                match check(&case, Layout { layers, expert_layers: 0 }) {
                    // Layers read inputs of their own and the cache of earlier layers.
                    Err(SplitError::Entangled { .. }) if case.name() == "model/gemma4" => {}
                    stages => assert_eq!(stages, Ok(vec![Side::First, Side::Second])),
                }
            }
        }
    }

    #[test]
    fn experts_alone_are_parts_of_layers() {
        use Side::{First, Second};
        let model = |name: &str| models().into_iter().find(|case| case.name() == name).unwrap();
        let stages = |name, layers, expert_layers| {
            check(&model(name), Layout { layers, expert_layers }).unwrap()
        };
        // Both layers have experts.
        assert_eq!(stages("model/gpt-oss", 0, 2), [Second, First, Second, First, Second]);
        assert_eq!(stages("model/gpt-oss", 0, 1), [Second, First, Second]);
        assert_eq!(stages("model/gpt-oss", 1, 2), [First, Second, First, Second]);
        assert_eq!(stages("model/gpt-oss", 1, 1), [First, Second]);
        // The second layer has.
        assert_eq!(stages("model/glm4.5", 0, usize::MAX), [Second, First, Second]);
        let only_dense =
            split(model("model/glm4.5").program(), Layout { layers: 0, expert_layers: 1 });
        assert_eq!(only_dense.unwrap_err(), SplitError::Undivided);
    }

    #[test]
    fn a_layer_beyond_the_model_is_an_error() {
        let program = models()[0].program();
        let count = program.kv.layers.len();
        let error = split(program, Layout { layers: count + 1, expert_layers: 0 }).unwrap_err();
        assert_eq!(error, SplitError::NoSuchLayer { layers: count + 1, count });
    }

    #[test]
    fn each_part_has_the_weights_that_it_reads() {
        let program = models()[0].program();
        let (layers, weights) = (program.kv.layers.len(), program.weights.len());
        let parts = split(program, Layout { layers, expert_layers: 0 }).unwrap();
        // The output norm, the output matrix, and other weights after the last layer.
        assert!(parts.second.weights.len() < 5);
        assert!(parts.first.weights.len() < weights);
    }
}
