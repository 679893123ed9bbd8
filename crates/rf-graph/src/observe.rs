//! Programs that show the left operands of their matmuls, as importance matrices need them.
//!
//! The rewrite of an unfused program ends a stage before the first matmul of each left operand, and
//! outputs the operand there. `rf_engine::Activations` sums the squares per column (`rf-cli
//! imatrix`). Executors know nothing of it; the CPU keeps the values of a batch in its arena
//! between stages.

use std::mem::discriminant;

use crate::graph::Graph;
use crate::op::{ExpertMatMul, Function, MatMul, Op, Prologue};
use crate::program::Program;
use crate::value::{ValueId, WeightId};

/// A program with a stage for each observation.
#[derive(Debug)]
pub struct Observed {
    /// Stage `i` outputs observation `i`. The last stage is the rest of the program, which need not
    /// run.
    pub program: Program,
    /// The observations in the order of the stages.
    pub observations: Vec<Observation>,
}

/// The value that a stage outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// The left operand of matmuls with these weights, `[rows, columns]`.
    Operand {
        /// Columns of the weights.
        columns: usize,
        /// The weights, which all multiply this operand.
        weights: Vec<WeightId>,
    },
    /// The output of [`Op::Route`], `[tokens, 2 · experts_per_token]`. The left operand of its
    /// experts follows.
    Route {
        /// Selected experts per token.
        experts_per_token: usize,
    },
    /// The left operand of the experts that the observed route before it selects,
    /// `[tokens, slots · columns]`.
    ExpertOperand {
        /// Columns of the weights.
        columns: usize,
        /// 1 if all selected experts have the same operand, else `experts_per_token`.
        slots: usize,
        /// The weights of each projection, by expert.
        weights: Vec<Vec<WeightId>>,
    },
}

impl Observation {
    /// The width of the output of the stage.
    pub fn width(&self) -> usize {
        match self {
            Self::Operand { columns, .. } => *columns,
            Self::Route { experts_per_token } => 2 * experts_per_token,
            Self::ExpertOperand { columns, slots, .. } => slots * columns,
        }
    }

    /// Adds the weights of another matmul of the same operand.
    fn merge(&mut self, other: Self) {
        match (self, other) {
            (Self::Operand { weights, .. }, Self::Operand { weights: more, .. }) => {
                weights.extend(more);
            }
            (Self::ExpertOperand { weights, .. }, Self::ExpertOperand { weights: more, .. }) => {
                weights.extend(more);
            }
            _ => {}
        }
    }
}

/// Inserts a stage before the first matmul of each left operand. `wanted` selects matmuls by the
/// name of a weight.
///
/// The program must not be fused, and [`fuse`](crate::fuse()) must not follow. Values are alive
/// across the stages, which the reference and the CPU backend allow.
pub fn observe(mut program: Program, wanted: impl Fn(&str) -> bool) -> Observed {
    let ops = std::mem::take(&mut program.graph.ops);
    program.graph.layer_ends.clear();
    let is_wanted = |id: &WeightId| wanted(program.weights[id.index()].name());
    // Observed values in the order of their first matmul, and that matmul.
    let mut observed: Vec<(usize, ValueId, Observation)> = Vec::new();
    for (at, op) in ops.iter().enumerate() {
        for (x, observation) in operands(&program.graph, op, &is_wanted) {
            // A router and its experts have the same left operand.
            let kind = discriminant(&observation);
            let is_known = |known: &&mut (usize, ValueId, Observation)| {
                known.1 == x && discriminant(&known.2) == kind
            };
            match observed.iter_mut().find(is_known) {
                Some((_, _, known)) => known.merge(observation),
                None => observed.push((at, x, observation)),
            }
        }
    }

    let mut stages = observed.iter().peekable();
    for (at, op) in ops.into_iter().enumerate() {
        while let Some((_, x, _)) = stages.next_if(|(first, ..)| *first == at) {
            // A copy, because the output of a stage is not kept for later ones.
            let out = copy_of(&mut program.graph, *x);
            let copy = Op::Map { x: *x, function: Function::Scale(1.0), out };
            program.graph.ops.extend([copy, Op::Output { x: out }]);
        }
        program.graph.ops.push(op);
    }
    let observations = observed.into_iter().map(|(.., observation)| observation).collect();
    Observed { program, observations }
}

/// The left operands of an op, with its route first.
fn operands(
    graph: &Graph,
    op: &Op,
    is_wanted: &impl Fn(&WeightId) -> bool,
) -> Vec<(ValueId, Observation)> {
    match op {
        Op::MatMul(MatMul { prologue: Prologue::Plain(x), projections, .. }) => {
            let weights = projections.iter().map(|p| p.weight).filter(is_wanted);
            let weights: Vec<_> = weights.collect();
            if weights.is_empty() {
                return vec![];
            }
            vec![(*x, Observation::Operand { columns: graph.value(*x).width, weights })]
        }
        Op::ExpertMatMul(m) => {
            let ExpertMatMul { x, route, projections, .. } = m;
            let weights = projections.iter().map(|p| p.weights.clone());
            let weights = weights.filter(|weights| weights.first().is_some_and(is_wanted));
            let weights: Vec<_> = weights.collect();
            let Some(first) = weights.first() else { return vec![] };
            let columns = graph.weight(first[0]).columns;
            let slots = graph.value(*x).width / columns;
            let experts_per_token = graph.value(*route).width / 2;
            vec![
                (*route, Observation::Route { experts_per_token }),
                (*x, Observation::ExpertOperand { columns, slots, weights }),
            ]
        }
        _ => vec![],
    }
}

fn copy_of(graph: &mut Graph, x: ValueId) -> ValueId {
    let value = graph.value(x);
    graph.values.push(value);
    ValueId(graph.values.len() as u32 - 1)
}
