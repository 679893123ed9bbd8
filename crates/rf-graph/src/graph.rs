//! The graph of a program.

use std::ops::Range;

use crate::op::{ExpertMatMul, GraphBuilder, Op};
use crate::value::{Value, ValueId, WeightId};
use crate::weight::{Weight, WeightShape};

/// Ops in the order of execution, with the shapes of their values and weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    pub(crate) ops: Vec<Op>,
    pub(crate) values: Vec<Value>,
    pub(crate) output: ValueId,
    pub(crate) weights: Vec<WeightShape>,
}

impl Graph {
    /// The ops in order. Each op reads only values that earlier ops write.
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// Shapes of all values, by [`ValueId::index`].
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// Shape of a value.
    pub fn value(&self, id: ValueId) -> Value {
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
}

/// Consecutive ops that run without the caller. No value is alive between two stages of a split
/// program; those of an [observed](crate::observe()) one share values, which the reference and the
/// CPU backend keep until the end of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// Indices into [`Graph::ops`].
    pub ops: Range<usize>,
    /// The value of [`Op::Input`], if the stage has one.
    pub input: Option<ValueId>,
    /// The value that the caller receives.
    pub output: ValueId,
}

impl Graph {
    /// The stages of the graph, which another backend's work separates: each [`Op::Output`] ends
    /// one, and the last one ends in the output of the graph.
    pub fn stages(&self) -> Vec<Stage> {
        let input = |ops: &Range<usize>| {
            self.ops[ops.clone()].iter().find_map(|op| match op {
                Op::Input { out } => Some(*out),
                _ => None,
            })
        };
        let (mut stages, mut start) = (Vec::new(), 0);
        for (i, op) in self.ops.iter().enumerate() {
            if let Op::Output { x } = op {
                let ops = start..i + 1;
                stages.push(Stage { input: input(&ops), output: *x, ops });
                start = i + 1;
            }
        }
        let ops = start..self.ops.len();
        stages.push(Stage { input: input(&ops), output: self.output, ops });
        stages
    }
}

impl GraphBuilder {
    /// The finished graph, and the weights by [`WeightId::index`].
    pub fn finish(self, output: ValueId) -> (Graph, Vec<Weight>) {
        let weights = self.weights.iter().map(Weight::shape).collect();
        (Graph { ops: self.ops, values: self.values, output, weights }, self.weights)
    }
}
