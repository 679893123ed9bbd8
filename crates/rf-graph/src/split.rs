//! Splits a program in two, so that two backends share a model.
//!
//! An unfused program is divided at places where the fewest columns are live: between layers, whose
//! ends the graph keeps, and around the feed-forward parts whose experts are in host memory. Every
//! live value is handed over: the residual, and what later layers need besides it, such as the
//! per-layer inputs of Gemma 4.
//!
//! A part has a *stage* for each of its runs of ops. A stage begins with ops `Op::Input` and ends
//! in ops `Op::Output` or the output of the graph. All stages of a part share its weights, arena
//! and buffers, so a part needs as much memory as one program. Weights, KV layers and page shapes
//! are divided. A KV layer that both parts read is in both: its keys and values are handed over,
//! too.
//!
//! A program that has stages itself (MTP) is divided stage by stage. Its block is on the side of
//! the output, except for its experts, which go with those of the last layer.

mod part;

use std::collections::HashSet;
use std::ops::Range;

use crate::graph::{Graph, Stage};
use crate::op::{Op, Operand};
use crate::program::Program;
use crate::value::{RowKind, ValueId};
use part::{Caches, ProgramPart};

/// The ops that the first of two backends runs; the second one runs all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The embedding and this many layers, counted from the first one. With 0, the embedding is on
    /// the second backend.
    pub layers: usize,
    /// The feed-forward parts with experts of this many layers, counted from the first one. A later
    /// stage with its own layers, as the block for further tokens (MTP), counts as the last
    /// layer of the first stage.
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

/// A program in two parts.
#[derive(Debug)]
pub struct Split {
    /// The part of the first backend.
    pub first: Program,
    /// The part of the second backend.
    pub second: Program,
    /// The turns of both parts that take the place of each stage of the whole program, in the order
    /// of execution. The outputs of a turn are the inputs of the next one; the first has the inputs
    /// of the stage, and the last one its outputs.
    pub stages: Vec<Vec<Turn>>,
}

/// A stage of a part: [`Graph::stages`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The part.
    pub side: Side,
    /// The number of the stage in the part.
    pub stage: usize,
    /// The width of all values together that the next turn gets; 0 for the last one.
    pub width: usize,
}

/// A program cannot be split as requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SplitError {
    /// The model has fewer layers than requested.
    #[error("the first part cannot have {layers} layers: the model has {count}")]
    NoSuchLayer {
        /// Requested layers of the first part.
        layers: usize,
        /// Layers of the model.
        count: usize,
    },
    /// Rows of the output are alive wherever a cut could be.
    #[error("the model cannot be split in layer {layer}")]
    Entangled {
        /// The layer, or the number of layers before the cut.
        layer: usize,
    },
    /// The stages of the program share values: it is an [observed](crate::observe()) one.
    #[error("an observed model cannot be split")]
    Observed,
    /// One part would have no ops.
    #[error("there is nothing to split: one backend would run the whole model")]
    Undivided,
}

/// Splits an unfused program.
///
/// A cut is where the fewest columns are alive: the residual, and what later layers need beside it.
/// All of them are handed over. The first layers end at the last such place before the next layer
/// uses the KV cache or a recurrent state, so that no layer is divided. The feed-forward part of a
/// layer with experts begins at the last such place before its router, and ends at the first one
/// after. Each part has the weights that it reads. A weight that both parts read, such as a tied
/// embedding and output matrix, is in both. A layer of the KV cache that both parts read is in
/// both, too: its keys and values are handed over. A recurrent state is in the part of its layer.
///
/// A part can be split again: its layers are those of which it has ops.
///
/// # Errors
///
/// If the program cannot be split there.
pub fn split(program: Program, layout: Layout) -> Result<Split, SplitError> {
    let Program { graph, weights, kv, max_batch_tokens, max_output_rows } = program;
    let sides = sides(&graph, layout)?;
    let (graph, sides) = with_shared_caches(graph, &sides);
    let runs = runs(&graph, &sides)?;
    let has_runs = |side| runs.iter().flatten().any(|run| run.side == side);
    if !has_runs(Side::First) || !has_runs(Side::Second) {
        return Err(SplitError::Undivided);
    }
    let part = |side| {
        let own = graph.ops.iter().zip(&sides).filter(|(_, own)| **own == side);
        let caches = Caches::of(own.map(|(op, _)| op), &kv);
        let kv = caches.layout(&kv);
        let mut part = ProgramPart::new(&graph, &weights, caches);
        for runs in &runs {
            for (i, run) in runs.iter().enumerate().filter(|(_, run)| run.side == side) {
                let before = i.checked_sub(1).map_or(&[][..], |before| &runs[before].outputs);
                part.add_stage(before, run.ops.clone(), &run.outputs);
            }
        }
        let (graph, weights) = part.finish();
        Program { graph, weights, kv, max_batch_tokens, max_output_rows }
    };
    let mut counts = [0; 2];
    let mut turn = |run: &Run| {
        let count = &mut counts[usize::from(run.side == Side::Second)];
        *count += 1;
        Turn { side: run.side, stage: *count - 1, width: graph.width_of(&run.outputs) }
    };
    let stages = runs.iter().map(|runs| runs.iter().map(&mut turn).collect()).collect();
    Ok(Split { first: part(Side::First), second: part(Side::Second), stages })
}

/// The side of each op.
fn sides(graph: &Graph, layout: Layout) -> Result<Vec<Side>, SplitError> {
    let Layout { layers, expert_layers } = layout;
    let ops = &graph.ops;
    let count = graph.layer_ends.len();
    if layers > count {
        return Err(SplitError::NoSuchLayer { layers, count });
    }
    let costs = costs(graph);
    let first = match layers {
        0 => 0,
        _ => cut(graph, &costs, layers).ok_or(SplitError::Entangled { layer: layers })?,
    };
    let mut sides = vec![Side::Second; ops.len()];
    sides[..first].fill(Side::First);
    let first_stage = graph.stages().first().map_or(0, |stage| stage.ops.end);
    let last_layer = graph.layer_ends.partition_point(|end| *end <= first_stage).saturating_sub(1);
    // The place after the last op that mixed tokens.
    let mut mixed = 1;
    for (i, op) in ops.iter().enumerate() {
        if uses_cache(op) {
            mixed = i + 1;
        }
        let layer = graph.layer_ends.partition_point(|end| *end <= i);
        let has_experts_first = layer.min(last_layer) < expert_layers;
        if matches!(op, Op::Route { .. }) && i >= first && has_experts_first {
            let layer_start = layer.checked_sub(1).map_or(1, |before| graph.layer_ends[before]);
            let layer_end = graph.layer_ends.get(layer).copied().unwrap_or(ops.len() - 1);
            let start = cheapest(&costs, (mixed.max(layer_start)..=i).rev());
            let (Some(start), Some(end)) = (start, cheapest(&costs, i + 1..=layer_end)) else {
                return Err(SplitError::Entangled { layer });
            };
            sides[start..end].fill(Side::First);
        }
    }
    Ok(sides)
}

/// The index of the first op after the first `layers` layers, at least 1 and as late as possible:
/// ops before the next layer may prepare its input.
fn cut(graph: &Graph, costs: &[Option<usize>], layers: usize) -> Option<usize> {
    let selects = |op: &Op| op.outputs().iter().any(|x| graph.value(*x).rows == RowKind::Output);
    let start = graph.layer_ends[layers - 1];
    let next_end = graph.layer_ends.get(layers).copied().unwrap_or(graph.ops.len());
    let stage_end = graph.stages().iter().map(|stage| stage.ops.end).find(|end| *end > start)?;
    let next_end = next_end.min(stage_end);
    let next = &graph.ops[start..next_end];
    let later = next.iter().position(|op| uses_cache(op) || selects(op));
    let end = later.map_or(next_end - 1, |later| start + later);
    cheapest(costs, (start..=end).rev())
}

/// Returns true if an op uses the KV cache or a recurrent state.
fn uses_cache(op: &Op) -> bool {
    let is_of_cache = |operand| matches!(operand, Operand::KvLayer(_) | Operand::State(_));
    op.operands().into_iter().any(is_of_cache)
}

/// The first of some places where the fewest columns are alive.
fn cheapest(costs: &[Option<usize>], places: impl Iterator<Item = usize>) -> Option<usize> {
    let possible = places.filter_map(|at| costs[at].map(|cost| (cost, at)));
    possible.min_by_key(|(cost, _)| *cost).map(|(_, at)| at)
}

/// Repeats each op that appends to a layer of the cache on the side that does not run it, if that
/// side reads the layer: at the start of its next ops, with keys and values that are handed over.
fn with_shared_caches(graph: Graph, sides: &[Side]) -> (Graph, Vec<Side>) {
    let reads = |side, layer| {
        let mut ops = graph.ops.iter().zip(sides);
        ops.any(|(op, own)| {
            *own == side && matches!(op, Op::Attention { attention: a, .. } if a.layer == layer)
        })
    };
    let (mut ops, mut new_sides) = (Vec::new(), Vec::new());
    // The number of new ops at the end of each old one.
    let mut ends = Vec::with_capacity(graph.ops.len());
    let mut repeated: Vec<(Side, Op)> = Vec::new();
    for (op, &side) in graph.ops.iter().zip(sides) {
        for (_, append) in repeated.extract_if(.., |(reader, _)| *reader == side) {
            ops.push(append);
            new_sides.push(side);
        }
        ops.push(op.clone());
        new_sides.push(side);
        ends.push(ops.len());
        let other = if side == Side::First { Side::Second } else { Side::First };
        if let Op::KvAppend { layer, .. } = op
            && reads(other, *layer)
        {
            repeated.push((other, op.clone()));
        }
    }
    let layer_ends = graph.layer_ends.iter().map(|end| ends[end - 1]).collect();
    (Graph { ops, layer_ends, ..graph }, new_sides)
}

/// Consecutive ops of one side.
struct Run {
    side: Side,
    /// Indices into the ops of the graph.
    ops: Range<usize>,
    /// The values alive after the run, which are handed over; none after the last run of a stage.
    outputs: Vec<ValueId>,
}

/// The runs of each stage of a program.
fn runs(graph: &Graph, sides: &[Side]) -> Result<Vec<Vec<Run>>, SplitError> {
    let runs = |stage: Stage| {
        let (mut start, end) = (stage.ops.start, stage.ops.end);
        if end < graph.ops.len() && !alive_at(graph, end).is_empty() {
            return Err(SplitError::Observed);
        }
        let runs = sides[stage.ops].chunk_by(|a, b| a == b).map(|sides| {
            let ops = start..start + sides.len();
            start = ops.end;
            let outputs = if start == end { Vec::new() } else { alive_at(graph, start) };
            Run { side: sides[0], ops, outputs }
        });
        Ok(runs.collect())
    };
    graph.stages().into_iter().map(runs).collect()
}

/// The values that ops before a place write and that ops from there on read, in the order of their
/// ops.
fn alive_at(graph: &Graph, place: usize) -> Vec<ValueId> {
    let read: HashSet<ValueId> = graph.ops[place..].iter().flat_map(Op::inputs).collect();
    let written = graph.ops[..place].iter().flat_map(Op::outputs);
    written.filter(|id| read.contains(id) || *id == graph.output).collect()
}

/// For each place between ops, the columns of the values that are alive there, if all of them have
/// a row per token.
fn costs(graph: &Graph) -> Vec<Option<usize>> {
    let mut last_read = vec![0; graph.values.len()];
    for (step, op) in graph.ops.iter().enumerate() {
        op.inputs().iter().for_each(|id| last_read[id.index()] = step);
    }
    last_read[graph.output.index()] = graph.ops.len();
    let mut alive: Vec<ValueId> = Vec::new();
    let mut costs = vec![None];
    for (step, op) in graph.ops.iter().enumerate() {
        alive.extend(op.outputs());
        alive.retain(|id| last_read[id.index()] > step);
        let are_of_tokens = alive.iter().all(|id| graph.value(*id).rows == RowKind::Token);
        costs.push(Some(graph.width_of(&alive)).filter(|_| are_of_tokens));
    }
    costs
}
