//! The graph of a program.

use crate::op::{GraphBuilder, Op};
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

    /// The output value of the graph: the logits.
    pub fn output(&self) -> ValueId {
        self.output
    }
}

impl GraphBuilder {
    /// The finished graph, and the weights by [`WeightId::index`].
    pub fn finish(self, output: ValueId) -> (Graph, Vec<Weight>) {
        let weights = self.weights.iter().map(Weight::shape).collect();
        (Graph { ops: self.ops, values: self.values, output, weights }, self.weights)
    }
}
