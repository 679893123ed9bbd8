//! Divides every layer of a program over several parts, which compute it together (tensor
//! parallelism).
//!
//! A *region* of the graph begins with matmuls whose output features are divided (queries, keys,
//! values, gate, up), goes on with ops that compute each column, head or gate by itself, and ends
//! with matmuls whose input features are divided (the output of attention, down). A part has the
//! rows and columns of the weights, the heads, the cache of its KV heads, and the columns of the
//! values. What the last matmul computes is a summand of the output:
//! [`Op::AllReduce`](crate::Op::AllReduce) sums over the parts, before the first op that is not
//! linear, such as the addition to the residual. So a layer has two sums, one after attention and
//! one after the feed-forward part with its experts.
//!
//! The experts of a layer are divided alike: each part has some columns of every expert. The rows
//! of the output matrix are divided too; its outputs are not summed but put side by side.
//!
//! Weights are divided where their blocks and heads begin. Where a part would be without a KV head,
//! several parts have the same one with some of its queries. Everything else is whole on every
//! part: norms, routers, recurrent states, latent attention, regions with fewer blocks than parts.
//! [`Division`] says what and why.
//!
//! [`TensorBackend`] runs the parts. Its executor has a thread for each part, which runs a step on
//! the executor of that part; the thread of the caller waits for all of them.

mod backend;
mod cut;
mod division;
mod executor;
mod part;
mod region;
mod walk;
mod worker;

use std::ops::Range;

use crate::graph::Graph;
use crate::program::Program;
use crate::value::RowKind;

pub use backend::TensorBackend;
pub use division::{Division, WholeWeights};
use part::PartProgram;
use region::Regions;

/// A program as parts that run together.
#[derive(Debug)]
pub struct Divided {
    /// The programs, each with its weights and its KV heads. They have the same stages.
    pub parts: Vec<Program>,
    /// The outputs of each stage.
    pub stages: Vec<Vec<PartOutput>>,
    /// The matrices that are divided, and those that are not.
    pub division: Division,
}

/// An output of a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartOutput {
    /// Kind of the rows.
    pub rows: RowKind,
    /// Columns of the whole output.
    pub width: usize,
    /// The columns that each part computes; `None` if each computes all.
    pub columns: Option<Vec<Range<usize>>>,
}

impl PartOutput {
    /// The columns that a part computes.
    pub fn of_part(&self, part: usize) -> Range<usize> {
        self.columns.as_ref().map_or(0..self.width, |columns| columns[part].clone())
    }
}

/// Divides an unfused program over parts, in proportion to their shares: at least one, all above 0.
///
/// The parts have the same ops in the same order, so they come to the same sums. The sums of a
/// number of parts with given shares have the same bits in each run.
pub fn divide(program: &Program, shares: &[f32]) -> Divided {
    let Program { graph, weights, .. } = program;
    let regions = Regions::of(graph, shares);
    let parts: Vec<Program> =
        (0..shares.len()).map(|part| PartProgram::new(program, &regions, part).finish()).collect();
    let division = Division::new(graph, weights, &regions, &parts);
    Divided { stages: outputs(graph, &regions), parts, division }
}

/// The outputs of each stage.
fn outputs(graph: &Graph, regions: &Regions) -> Vec<Vec<PartOutput>> {
    let output = |id: &_| {
        let value = graph.value(*id);
        let columns = regions.of_value(*id).map(|columns| columns.ranges(value.width));
        PartOutput { rows: value.rows, width: value.width, columns }
    };
    let stages = graph.stages().into_iter();
    stages.map(|stage| stage.outputs.iter().map(output).collect()).collect()
}
