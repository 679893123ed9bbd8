//! A case: op, format, shape, error bound, cost and program.

use std::fmt;
use std::sync::Arc;

use rf_graph::{Costs, KvLayout, OpCost, OperandFormat, Program, ValueId};

use super::bound::ErrorBound;
use super::net::{Net, WeightValues};
use super::schedule::{CaseBatch, Schedule};

/// A program, its batches in order, and the error bound of its results.
#[derive(Clone)]
pub struct Case {
    name: String,
    format: Option<OperandFormat>,
    shape: CaseShape,
    bound: ErrorBound,
    kv: KvLayout,
    batches: Vec<CaseBatch>,
    build: Arc<Build>,
}

/// Writes a number of copies of the op into a graph and returns the output.
type Build = dyn Fn(&mut Net, usize) -> ValueId + Send + Sync;

/// The dimensions of a case of one op.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CaseShape {
    /// A weight matrix or a table `[rows, columns]`.
    Matrix {
        /// Output features, or rows of the table.
        rows: usize,
        /// Input features, or elements of a row.
        columns: usize,
    },
    /// Attention heads.
    Heads {
        /// Query heads.
        num_heads: usize,
        /// Key and value heads.
        num_kv_heads: usize,
        /// Elements of a head.
        head_dim: usize,
    },
    /// The KV heads of some layers.
    Layers {
        /// Layers.
        num_layers: usize,
        /// Key and value heads.
        num_kv_heads: usize,
        /// Elements of a head.
        head_dim: usize,
    },
    /// Rows `[tokens, columns]`.
    Row {
        /// Elements of a row.
        columns: usize,
    },
    /// A program of several ops.
    Program,
}

impl Case {
    /// A case of one op. `build` writes the requested number of copies.
    pub(super) fn new(
        name: impl Into<String>,
        (format, shape): (Option<OperandFormat>, CaseShape),
        bound: ErrorBound,
        schedule: Schedule,
        build: impl Fn(&mut Net, usize) -> ValueId + Send + Sync + 'static,
    ) -> Self {
        let Schedule { kv, batches } = schedule;
        Self { name: name.into(), format, shape, bound, kv, batches, build: Arc::new(build) }
    }

    /// A case of several ops, which has one copy.
    pub(super) fn program_of(
        name: impl Into<String>,
        format: Option<OperandFormat>,
        bound: ErrorBound,
        schedule: Schedule,
        build: impl Fn(&mut Net) -> ValueId + Send + Sync + 'static,
    ) -> Self {
        let build = move |net: &mut Net, _copies: usize| build(net);
        Self::new(name, (format, CaseShape::Program), bound, schedule, build)
    }

    /// A path that begins with [`Self::op`]: `matmul/Q4_K/37x768`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The op by [`Op::name`](rf_graph::Op::name). Some programs of several ops have a name of
    /// their own, such as `model`.
    pub fn op(&self) -> &str {
        self.name.split('/').next().unwrap_or_default()
    }

    /// The format; `None` for ops on f32 rows and for whole models.
    pub fn format(&self) -> Option<OperandFormat> {
        self.format
    }

    /// The shape.
    pub fn shape(&self) -> CaseShape {
        self.shape
    }

    /// The error bound of the results.
    pub fn bound(&self) -> ErrorBound {
        self.bound
    }

    /// Returns true if the program has recurrent states.
    pub fn has_states(&self) -> bool {
        !self.kv.states.is_empty()
    }

    /// The batches in order. The last one is timed.
    pub fn batches(&self) -> &[CaseBatch] {
        &self.batches
    }

    /// The timed batch.
    pub fn timed_batch(&self) -> &CaseBatch {
        &self.batches[self.batches.len() - 1]
    }

    /// The cost of the op in the timed batch: of all ops of that name, in one copy; without one, of
    /// all ops.
    pub fn cost(&self) -> OpCost {
        let program = self.program_with(WeightValues::Zeros);
        let costs = Costs::new(&program);
        let has_op = program.graph.ops().iter().any(|op| op.name() == self.op());
        let ops = program.graph.ops().iter().filter(|op| !has_op || op.name() == self.op());
        self.timed_batch().with(|batch| ops.map(|op| costs.of(&program.graph, op, batch)).sum())
    }

    /// The program, unfused. Each element of a weight is drawn from the generator of the case.
    pub fn program(&self) -> Program {
        self.program_with(WeightValues::Random)
    }

    /// The program to time, unfused: copies of the op, each with weights and a KV cache of its own,
    /// and outputs only for the output rows of a batch. Large weights repeat a few random rows:
    /// times do not depend on values, and quantising a large matrix takes longer than measuring it.
    /// A case of several ops has one copy.
    pub fn timed_program(&self, copies: usize) -> Program {
        let mut net = Net::new(&self.name, WeightValues::Repeated);
        let output = (self.build)(&mut net, copies);
        let output = net.g.select_rows(output);
        self.finish(net, output, copies)
    }

    fn program_with(&self, values: WeightValues) -> Program {
        let mut net = Net::new(&self.name, values);
        let output = (self.build)(&mut net, 1);
        self.finish(net, output, 1)
    }

    fn finish(&self, net: Net, output: ValueId, copies: usize) -> Program {
        let (graph, weights) = net.g.finish(output);
        let tokens = self.batches.iter().map(CaseBatch::tokens).max().unwrap_or(0);
        let KvLayout { layers, states, .. } = &self.kv;
        let (layers, states) = (layers.repeat(copies), states.repeat(copies));
        let kv = KvLayout { layers, states, ..self.kv.clone() };
        Program { graph, weights, kv, max_batch_tokens: tokens, max_output_rows: tokens }
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.name, self.bound)
    }
}
