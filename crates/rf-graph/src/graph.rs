//! The graph and the builder with which architectures write it.

use crate::op::{Activation, Attention, MatMul, Op, Projection, Prologue, Rope, ValueId, WeightId};
use crate::weight::Weight;

/// Number of rows of a value, known only per batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RowKind {
    /// One row per token of the batch.
    Token,
    /// One row per row of logits asked for.
    Output,
}

/// Shape of a value: `[rows, width]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// What a row stands for.
    pub rows: RowKind,
    /// Columns.
    pub width: usize,
}

/// Ops in the order of execution.
#[derive(Clone, Debug)]
pub struct Graph {
    pub(crate) ops: Vec<Op>,
    pub(crate) values: Vec<Value>,
    pub(crate) output: ValueId,
    pub(crate) weight_columns: Vec<usize>,
}

impl Graph {
    /// Ops; each reads only values that earlier ones wrote.
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// Shapes by [`ValueId::index`].
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// Shape of a value.
    pub fn value(&self, id: ValueId) -> Value {
        self.values[id.index()]
    }

    /// Columns of a weight: for a norm, the elements that it normalises together.
    pub fn weight_columns(&self, id: WeightId) -> usize {
        self.weight_columns[id.index()]
    }

    /// The value that a run returns: the logits.
    pub fn output(&self) -> ValueId {
        self.output
    }
}

/// Writes a graph op by op. Shapes follow from the operands; a shape that does not fit is a bug of
/// the architecture and panics (files are checked before, when weights are looked up).
#[derive(Debug, Default)]
pub struct GraphBuilder {
    ops: Vec<Op>,
    values: Vec<Value>,
    weights: Vec<Weight>,
}

#[expect(clippy::missing_panics_doc, reason = "said once, on the type")]
impl GraphBuilder {
    /// An empty graph.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a weight.
    pub fn weight(&mut self, weight: Weight) -> WeightId {
        self.weights.push(weight);
        WeightId(self.weights.len() as u32 - 1)
    }

    /// [`Op::Embed`].
    pub fn embed(&mut self, table: WeightId, scale: f32) -> ValueId {
        let out = self.value(RowKind::Token, self.weights[table.index()].columns());
        self.push(Op::Embed { table, scale, out }, out)
    }

    /// [`Op::Input`].
    pub fn input(&mut self, width: usize) -> ValueId {
        let out = self.value(RowKind::Token, width);
        self.push(Op::Input { out }, out)
    }

    /// [`Op::RmsNorm`].
    pub fn rms_norm(&mut self, x: ValueId, weight: WeightId, eps: f32) -> ValueId {
        assert!(self.width(x).is_multiple_of(self.weights[weight.index()].columns()));
        let out = self.like(x);
        self.push(Op::RmsNorm { x, weight, eps, out }, out)
    }

    /// [`Op::MatMul`] with one weight and nothing fused.
    pub fn matmul(&mut self, x: ValueId, weight: WeightId) -> ValueId {
        self.linear(x, weight, None)
    }

    /// [`Op::MatMul`] with one weight and an optional bias.
    pub fn linear(&mut self, x: ValueId, weight: WeightId, bias: Option<WeightId>) -> ValueId {
        let w = &self.weights[weight.index()];
        assert_eq!(self.width(x), w.columns(), "{w:?}");
        let out = self.value(self.values[x.index()].rows, w.rows());
        let projections = vec![Projection { weight, bias, out }];
        let prologue = Prologue::Plain(x);
        self.push(Op::MatMul(MatMul { prologue, projections, residual: None }), out)
    }

    /// [`Op::Rope`].
    pub fn rope(&mut self, x: ValueId, rope: &Rope) -> ValueId {
        assert!(self.width(x).is_multiple_of(rope.head_dim) && rope.dims() <= rope.head_dim);
        let out = self.like(x);
        self.push(Op::Rope { x, rope: rope.clone(), out }, out)
    }

    /// [`Op::KvAppend`] followed by [`Op::Attention`].
    pub fn attention(&mut self, q: ValueId, k: ValueId, v: ValueId, a: &Attention) -> ValueId {
        assert_eq!(self.width(q), a.num_heads * a.head_dim);
        assert_eq!(self.width(k), a.num_kv_heads * a.head_dim);
        assert_eq!(self.width(v), a.num_kv_heads * a.head_dim);
        assert!(a.num_heads.is_multiple_of(a.num_kv_heads));
        self.ops.push(Op::KvAppend { k, v, layer: a.layer });
        let out = self.like(q);
        self.push(Op::Attention { q, attention: a.clone(), out }, out)
    }

    /// [`Op::Glu`].
    pub fn glu(&mut self, activation: Activation, gate: ValueId, up: ValueId) -> ValueId {
        assert_eq!(self.width(gate), self.width(up));
        let out = self.like(gate);
        self.push(Op::Glu { activation, gate, up, out }, out)
    }

    /// [`Op::Add`].
    pub fn add(&mut self, a: ValueId, b: ValueId) -> ValueId {
        assert_eq!(self.values[a.index()], self.values[b.index()]);
        let out = self.like(a);
        self.push(Op::Add { a, b, out }, out)
    }

    /// [`Op::Scale`].
    pub fn scale(&mut self, x: ValueId, factor: f32) -> ValueId {
        let out = self.like(x);
        self.push(Op::Scale { x, factor, out }, out)
    }

    /// [`Op::Route`].
    pub fn route(&mut self, logits: ValueId, used: usize) -> ValueId {
        assert!(used <= self.width(logits));
        let out = self.value(RowKind::Token, 2 * used);
        self.push(Op::Route { logits, used, out }, out)
    }

    /// [`Op::ExpertMatMul`].
    pub fn expert_matmul(&mut self, x: ValueId, route: ValueId, weights: Vec<WeightId>) -> ValueId {
        let used = self.width(route) / 2;
        let w = &self.weights[weights[0].index()];
        let (rows, columns) = (w.rows(), w.columns());
        assert!([columns, used * columns].contains(&self.width(x)), "{w:?}");
        let out = self.value(RowKind::Token, used * rows);
        self.push(Op::ExpertMatMul { x, route, weights, out }, out)
    }

    /// [`Op::CombineExperts`].
    pub fn combine_experts(&mut self, x: ValueId, route: ValueId) -> ValueId {
        let used = self.width(route) / 2;
        assert!(self.width(x).is_multiple_of(used));
        let out = self.value(RowKind::Token, self.width(x) / used);
        self.push(Op::CombineExperts { x, route, out }, out)
    }

    /// [`Op::SelectRows`].
    pub fn select_rows(&mut self, x: ValueId) -> ValueId {
        let out = self.value(RowKind::Output, self.width(x));
        self.push(Op::SelectRows { x, out }, out)
    }

    /// The finished graph, and the weights by [`WeightId::index`].
    pub fn finish(self, output: ValueId) -> (Graph, Vec<Weight>) {
        let weight_columns = self.weights.iter().map(Weight::columns).collect();
        (Graph { ops: self.ops, values: self.values, output, weight_columns }, self.weights)
    }

    fn width(&self, id: ValueId) -> usize {
        self.values[id.index()].width
    }

    fn value(&mut self, rows: RowKind, width: usize) -> ValueId {
        self.values.push(Value { rows, width });
        ValueId(self.values.len() as u32 - 1)
    }

    fn like(&mut self, x: ValueId) -> ValueId {
        let Value { rows, width } = self.values[x.index()];
        self.value(rows, width)
    }

    fn push(&mut self, op: Op, out: ValueId) -> ValueId {
        self.ops.push(op);
        out
    }
}
