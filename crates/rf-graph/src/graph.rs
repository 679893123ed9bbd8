//! The graph of a program.

use std::ops::Range;

use crate::op::{ExpertMatMul, GraphBuilder, Op};
use crate::value::{ValueId, ValueShape, WeightId};
use crate::weight::{Weight, WeightShape};

/// Ops in the order of execution, with the shapes of their values and weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    pub(crate) ops: Vec<Op>,
    pub(crate) values: Vec<ValueShape>,
    pub(crate) output: ValueId,
    pub(crate) weights: Vec<WeightShape>,
    /// For each layer of the model, the number of ops up to its end. Rewriting clears it.
    pub(crate) layer_ends: Vec<usize>,
}

impl Graph {
    /// The ops in order. Each op reads only values that earlier ops write.
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// Shapes of all values, by [`ValueId::index`].
    pub fn values(&self) -> &[ValueShape] {
        &self.values
    }

    /// Shape of a value.
    pub fn value(&self, id: ValueId) -> ValueShape {
        self.values[id.index()]
    }

    /// Format and shape of a weight.
    pub fn weight(&self, id: WeightId) -> WeightShape {
        self.weights[id.index()]
    }

    /// The shape and format of every matrix of a matmul of experts; `None` without experts.
    pub fn expert_weight(&self, m: &ExpertMatMul) -> Option<WeightShape> {
        let first = m.projections.first()?.weights.first()?;
        Some(self.weight(*first))
    }

    /// The output value of the graph: the logits.
    pub fn output(&self) -> ValueId {
        self.output
    }

    /// The same ops with another value as the output, to look at what a program computes within.
    #[must_use]
    pub fn with_output(self, output: ValueId) -> Self {
        Self { output, ..self }
    }
}

/// Consecutive ops that run without the caller. A stage gets every value that it needs from the
/// caller, except in an [observed](crate::observe()) program: its stages share values, which the
/// reference and the CPU backend keep until the end of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stage {
    /// Indices into [`Graph::ops`].
    pub ops: Range<usize>,
    /// The values of [`Op::Input`], which the caller passes one after the other.
    pub inputs: Vec<ValueId>,
    /// The values that the caller receives one after the other, all with as many rows.
    pub outputs: Vec<ValueId>,
}

impl Graph {
    /// The layers of a graph that is not fused, as [`split()`](crate::split()) counts them; 0 for
    /// others.
    pub fn num_layers(&self) -> usize {
        self.layer_ends.len()
    }

    /// The stages of the graph, between which the caller works: consecutive ops [`Op::Output`] end
    /// one. Ops after the last of them are a stage that ends in the output of the graph.
    pub fn stages(&self) -> Vec<Stage> {
        let is_output = |op: &Op| matches!(op, Op::Output { .. });
        let mut start = 0;
        let stage = |ops: &[Op]| {
            let mut stage = Stage { ops: start..start + ops.len(), ..Stage::default() };
            start = stage.ops.end;
            for op in ops {
                match op {
                    Op::Input { out } => stage.inputs.push(*out),
                    Op::Output { x } => stage.outputs.push(*x),
                    _ => {}
                }
            }
            if stage.outputs.is_empty() {
                stage.outputs.push(self.output);
            }
            stage
        };
        self.ops.chunk_by(|op, next| !is_output(op) || is_output(next)).map(stage).collect()
    }

    /// Width of all of some values together.
    pub fn width_of(&self, values: &[ValueId]) -> usize {
        values.iter().map(|id| self.value(*id).width).sum()
    }
}

impl GraphBuilder {
    /// The finished graph, and the weights by [`WeightId::index`].
    pub fn finish(self, output: ValueId) -> (Graph, Vec<Weight>) {
        let weights = self.weights.iter().map(Weight::shape).collect();
        let Self { ops, values, weights: all, layer_ends, .. } = self;
        (Graph { ops, values, output, weights, layer_ends }, all)
    }
}
