//! The op vocabulary. This file is the only description of each op: its operands with their shapes,
//! its builder method, its name in telemetry and the arithmetic of ops over rows.
//!
//! [`Op::operands`] lists all reads and writes of an op. Liveness, renumbering, placement of
//! weights and memory traffic follow from this list.

mod attention;
mod matmul;

pub use attention::{Attention, QkNorm, Rope, RopeStyle};
pub use matmul::{Activation, Epilogue, MatMul, Projection, Prologue, RowNorm};

use crate::value::{RowKind, Storage, Value, ValueId, WeightId};
use crate::weight::{Weight, WeightShape};

/// One operation. Values are matrices of f32 `[rows, width]`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Op {
    /// `out[t] = table[ids[t]] · scale`.
    Embed {
        /// `[vocab_size, width]`, any format.
        table: WeightId,
        /// Factor on every element (Gemma: `√hidden_size`, otherwise 1).
        scale: f32,
        /// Fused: the norm before the first matmul.
        norm: Option<RowNorm>,
        /// `[tokens, width]`.
        out: ValueId,
    },
    /// Rows that the caller passes with the batch ([`Batch::input`](crate::Batch)).
    Input {
        /// `[tokens, width]`.
        out: ValueId,
    },
    /// `out = x / √(mean(x²) + eps) · weight`, over groups of `weight.len()` columns: the whole
    /// row, or each head when the weight is as long as a head.
    RmsNorm {
        /// `[rows, width]`.
        x: ValueId,
        /// `[group]`, `group` divides `width`.
        weight: WeightId,
        /// Constant that is added to the mean square.
        eps: f32,
        /// Shape of `x`.
        out: ValueId,
    },
    /// `out = (x − mean(x)) / √(var(x) + eps) · weight (+ bias)` over the whole row, with the
    /// variance `mean((x − mean(x))²)`.
    LayerNorm {
        /// `[rows, width]`.
        x: ValueId,
        /// `[width]`.
        weight: WeightId,
        /// `[width]`.
        bias: Option<WeightId>,
        /// Constant that is added to the variance.
        eps: f32,
        /// Shape of `x`.
        out: ValueId,
    },
    /// `epilogue(prologue(x) · Wᵢᵀ (+ biasᵢ) (+ residual))`.
    MatMul(MatMul),
    /// Rotary position embedding of each head.
    Rope {
        /// `[tokens, num_heads · head_dim]`.
        x: ValueId,
        /// Frequencies and pairing.
        rope: Rope,
        /// Shape of `x`.
        out: ValueId,
    },
    /// Stores keys and values of the batch in the cache of a layer.
    KvAppend {
        /// `[tokens, num_kv_heads · head_dim]`, after RoPE.
        k: ValueId,
        /// `[tokens, num_kv_heads · head_dim]`.
        v: ValueId,
        /// Index into [`KvLayout::layers`](crate::KvLayout::layers).
        layer: usize,
    },
    /// Causal attention of the queries over the cache of a layer.
    Attention {
        /// `[tokens, num_heads · head_dim]`, after RoPE.
        q: ValueId,
        /// Heads, scale, window, softcap and sinks.
        attention: Attention,
        /// Shape of `q`.
        out: ValueId,
    },
    /// `out = activation(gate) · up`.
    Glu {
        /// The gate's non-linearity.
        activation: Activation,
        /// `[rows, intermediate_size]`.
        gate: ValueId,
        /// Shape of `gate`.
        up: ValueId,
        /// Shape of `gate`.
        out: ValueId,
    },
    /// `out = a + b`.
    Add {
        /// `[rows, width]`.
        a: ValueId,
        /// Shape of `a`.
        b: ValueId,
        /// Shape of `a`.
        out: ValueId,
    },
    /// `out = x · factor`.
    Scale {
        /// `[rows, width]`.
        x: ValueId,
        /// Factor on every element.
        factor: f32,
        /// Shape of `x`.
        out: ValueId,
    },
    /// Selects the rows whose logits the caller requested ([`Batch::output_rows`](crate::Batch)).
    SelectRows {
        /// `[tokens, width]`.
        x: ValueId,
        /// `[output rows, width]`.
        out: ValueId,
    },
    /// Selects the `experts_per_token` experts of the largest softmax probabilities; the lower
    /// index wins a tie. The selected probabilities are divided by their sum.
    Route {
        /// `[tokens, experts]`.
        logits: ValueId,
        /// Selected experts per token.
        experts_per_token: usize,
        /// `[tokens, 2 · experts_per_token]`: expert indices as f32, then probabilities.
        out: ValueId,
    },
    /// Slot `s` of `out` is `xₛ · Wᵀ` of the expert in slot `s` of the route.
    ExpertMatMul {
        /// `[tokens, columns]` for all slots, or `[tokens, experts_per_token · columns]`.
        x: ValueId,
        /// Output of [`Op::Route`].
        route: ValueId,
        /// One matrix `[rows, columns]` per expert.
        weights: Vec<WeightId>,
        /// `[tokens, experts_per_token · rows]`.
        out: ValueId,
    },
    /// `out = Σₛ pₛ · xₛ` in the order of the slots.
    CombineExperts {
        /// `[tokens, experts_per_token · width]`.
        x: ValueId,
        /// Output of [`Op::Route`].
        route: ValueId,
        /// `[tokens, width]`.
        out: ValueId,
    },
    /// Fused: per-head norms of q and k (if any), RoPE of q and k, and [`Op::KvAppend`].
    RopeAppend {
        /// `[tokens, num_heads · head_dim]`.
        q: ValueId,
        /// `[tokens, num_kv_heads · head_dim]`.
        k: ValueId,
        /// `[tokens, num_kv_heads · head_dim]`.
        v: ValueId,
        /// Norm of each query and key head before RoPE.
        qk_norm: Option<QkNorm>,
        /// Frequencies and pairing.
        rope: Rope,
        /// Index into [`KvLayout::layers`](crate::KvLayout::layers).
        layer: usize,
        /// Queries after RoPE; shape of `q`.
        q_out: ValueId,
    },
}

/// Builds a graph op by op. Shapes follow from the operands.
///
/// A shape mismatch is a bug in the model architecture and panics. The shapes of a file are checked
/// earlier, when its weights are looked up.
#[derive(Debug, Default)]
pub struct GraphBuilder {
    pub(crate) ops: Vec<Op>,
    pub(crate) values: Vec<Value>,
    pub(crate) weights: Vec<Weight>,
}

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

    fn shape(&self, id: WeightId) -> WeightShape {
        self.weights[id.index()].shape()
    }

    fn width(&self, id: ValueId) -> usize {
        self.values[id.index()].width
    }

    fn rows(&self, id: ValueId) -> RowKind {
        self.values[id.index()].rows
    }

    /// A new value.
    fn value(&mut self, rows: RowKind, width: usize) -> ValueId {
        self.values.push(Value { rows, width, storage: Storage::F32 });
        ValueId(self.values.len() as u32 - 1)
    }

    /// A new value of the shape of `x`.
    fn like(&mut self, x: ValueId) -> ValueId {
        self.value(self.rows(x), self.width(x))
    }

    /// Appends an op and returns its output.
    fn push(&mut self, op: Op, out: ValueId) -> ValueId {
        self.ops.push(op);
        out
    }
}

/// The builder method of each op.
#[expect(clippy::missing_panics_doc, reason = "documented once, on the type")]
impl GraphBuilder {
    /// Appends [`Op::Embed`].
    pub fn embed(&mut self, table: WeightId, scale: f32) -> ValueId {
        let out = self.value(RowKind::Token, self.shape(table).columns);
        self.push(Op::Embed { table, scale, norm: None, out }, out)
    }

    /// Appends [`Op::Input`].
    pub fn input(&mut self, width: usize) -> ValueId {
        let out = self.value(RowKind::Token, width);
        self.push(Op::Input { out }, out)
    }

    /// Appends [`Op::RmsNorm`].
    pub fn rms_norm(&mut self, x: ValueId, weight: WeightId, eps: f32) -> ValueId {
        assert!(self.width(x).is_multiple_of(self.shape(weight).columns));
        let out = self.like(x);
        self.push(Op::RmsNorm { x, weight, eps, out }, out)
    }

    /// Appends [`Op::LayerNorm`].
    pub fn layer_norm(
        &mut self,
        x: ValueId,
        weight: WeightId,
        bias: Option<WeightId>,
        eps: f32,
    ) -> ValueId {
        let mut vectors = [Some(weight), bias].into_iter().flatten();
        assert!(vectors.all(|id| self.shape(id).columns == self.width(x)));
        let out = self.like(x);
        self.push(Op::LayerNorm { x, weight, bias, eps, out }, out)
    }

    /// Appends [`Op::MatMul`] with one weight and nothing fused.
    pub fn matmul(&mut self, x: ValueId, weight: WeightId) -> ValueId {
        self.linear(x, weight, None)
    }

    /// Appends [`Op::MatMul`] with one weight and an optional bias.
    pub fn linear(&mut self, x: ValueId, weight: WeightId, bias: Option<WeightId>) -> ValueId {
        let w = self.shape(weight);
        assert_eq!(self.width(x), w.columns, "{w:?}");
        let out = self.value(self.rows(x), w.rows);
        let projections = vec![Projection { weight, bias, out }];
        let prologue = Prologue::Plain(x);
        let epilogue = Epilogue::None;
        self.push(Op::MatMul(MatMul { prologue, projections, residual: None, epilogue }), out)
    }

    /// Appends [`Op::Rope`].
    pub fn rope(&mut self, x: ValueId, rope: &Rope) -> ValueId {
        assert!(self.width(x).is_multiple_of(rope.head_dim) && rope.dims() <= rope.head_dim);
        let out = self.like(x);
        self.push(Op::Rope { x, rope: rope.clone(), out }, out)
    }

    /// Appends [`Op::KvAppend`] and [`Op::Attention`].
    pub fn attention(&mut self, q: ValueId, k: ValueId, v: ValueId, a: &Attention) -> ValueId {
        assert_eq!(self.width(q), a.num_heads * a.head_dim);
        assert_eq!(self.width(k), a.num_kv_heads * a.head_dim);
        assert_eq!(self.width(v), a.num_kv_heads * a.head_dim);
        assert!(a.num_heads.is_multiple_of(a.num_kv_heads));
        let out = self.like(q);
        self.push(Op::KvAppend { k, v, layer: a.layer }, out);
        self.push(Op::Attention { q, attention: a.clone(), out }, out)
    }

    /// Appends [`Op::Glu`].
    pub fn glu(&mut self, activation: Activation, gate: ValueId, up: ValueId) -> ValueId {
        assert_eq!(self.width(gate), self.width(up));
        let out = self.like(gate);
        self.push(Op::Glu { activation, gate, up, out }, out)
    }

    /// Appends [`Op::Add`].
    pub fn add(&mut self, a: ValueId, b: ValueId) -> ValueId {
        assert_eq!((self.rows(a), self.width(a)), (self.rows(b), self.width(b)));
        let out = self.like(a);
        self.push(Op::Add { a, b, out }, out)
    }

    /// Appends [`Op::Scale`].
    pub fn scale(&mut self, x: ValueId, factor: f32) -> ValueId {
        let out = self.like(x);
        self.push(Op::Scale { x, factor, out }, out)
    }

    /// Appends [`Op::SelectRows`].
    pub fn select_rows(&mut self, x: ValueId) -> ValueId {
        let out = self.value(RowKind::Output, self.width(x));
        self.push(Op::SelectRows { x, out }, out)
    }

    /// Appends [`Op::Route`].
    pub fn route(&mut self, logits: ValueId, experts_per_token: usize) -> ValueId {
        assert!(experts_per_token <= self.width(logits));
        let out = self.value(RowKind::Token, 2 * experts_per_token);
        self.push(Op::Route { logits, experts_per_token, out }, out)
    }

    /// Appends [`Op::ExpertMatMul`].
    pub fn expert_matmul(&mut self, x: ValueId, route: ValueId, weights: Vec<WeightId>) -> ValueId {
        let slots = self.width(route) / 2;
        let w = self.shape(weights[0]);
        assert!([w.columns, slots * w.columns].contains(&self.width(x)), "{w:?}");
        let out = self.value(RowKind::Token, slots * w.rows);
        self.push(Op::ExpertMatMul { x, route, weights, out }, out)
    }

    /// Appends [`Op::CombineExperts`].
    pub fn combine_experts(&mut self, x: ValueId, route: ValueId) -> ValueId {
        let slots = self.width(route) / 2;
        assert!(self.width(x).is_multiple_of(slots));
        let out = self.value(RowKind::Token, self.width(x) / slots);
        self.push(Op::CombineExperts { x, route, out }, out)
    }
}

/// One operand of an op. The parameters are ids, or references to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand<V = ValueId, W = WeightId, L = usize> {
    /// A value that the op reads.
    Input(V),
    /// A value that the op writes.
    Output(V),
    /// A value that the op may use as work space; no other op reads it.
    Scratch(V),
    /// A weight that the op multiplies by.
    Matrix(W),
    /// A weight from which the op reads single rows.
    Table(W),
    /// A weight that is added or multiplied element by element: norm weight, bias, sinks.
    Vector(W),
    /// A layer of the KV cache.
    KvLayer(L),
}

/// The operands of an op as a list of references: shared for `&Op`, mutable for `&mut Op`.
macro_rules! operands {
    ($op:expr) => {{
        use Operand::{Input, KvLayer, Matrix, Output, Scratch, Table, Vector};
        let mut list = Vec::with_capacity(8);
        match $op {
            Op::Embed { table, norm, out, .. } => {
                list.extend([Table(table), Output(out)]);
                if let Some(RowNorm { weight, out, .. }) = norm {
                    list.extend([Vector(weight), Output(out)]);
                }
            }
            Op::Input { out } => list.push(Output(out)),
            Op::RmsNorm { x, weight, out, .. } => {
                list.extend([Input(x), Vector(weight), Output(out)]);
            }
            Op::LayerNorm { x, weight, bias, out, .. } => {
                list.extend([Input(x), Vector(weight), Output(out)]);
                list.extend(bias.into_iter().map(Vector));
            }
            Op::MatMul(MatMul { prologue, projections, residual, epilogue }) => {
                match prologue {
                    Prologue::Plain(x) => list.push(Input(x)),
                    Prologue::RmsNorm { x, weight, .. } => {
                        list.extend([Input(x), Vector(weight)]);
                    }
                    Prologue::Glu { gate, up, .. } => list.extend([Input(gate), Input(up)]),
                }
                list.extend(residual.into_iter().map(Input));
                let mut is_scratch = false;
                match epilogue {
                    Epilogue::None => {}
                    Epilogue::RmsNorm(RowNorm { weight, out, .. }) => {
                        list.extend([Vector(weight), Output(out)]);
                    }
                    Epilogue::Glu { out, .. } => {
                        is_scratch = true;
                        list.push(Output(out));
                    }
                }
                for Projection { weight, bias, out } in projections {
                    list.push(Matrix(weight));
                    list.extend(bias.into_iter().map(Vector));
                    list.push(if is_scratch { Scratch(out) } else { Output(out) });
                }
            }
            Op::Rope { x, out, .. } | Op::Scale { x, out, .. } | Op::SelectRows { x, out } => {
                list.extend([Input(x), Output(out)]);
            }
            Op::KvAppend { k, v, layer } => list.extend([Input(k), Input(v), KvLayer(layer)]),
            Op::Attention { q, attention: Attention { layer, sinks, .. }, out } => {
                list.extend([Input(q), KvLayer(layer), Output(out)]);
                list.extend(sinks.into_iter().map(Vector));
            }
            Op::Glu { gate: a, up: b, out, .. } | Op::Add { a, b, out } => {
                list.extend([Input(a), Input(b), Output(out)]);
            }
            Op::Route { logits, out, .. } => list.extend([Input(logits), Output(out)]),
            Op::ExpertMatMul { x, route, weights, out } => {
                list.extend([Input(x), Input(route), Output(out)]);
                list.extend(weights.into_iter().map(Matrix));
            }
            Op::CombineExperts { x, route, out } => {
                list.extend([Input(x), Input(route), Output(out)]);
            }
            Op::RopeAppend { q, k, v, qk_norm, layer, q_out, .. } => {
                list.extend([Input(q), Input(k), Input(v), KvLayer(layer), Output(q_out)]);
                if let Some(QkNorm { q, k, .. }) = qk_norm {
                    list.extend([Vector(q), Vector(k)]);
                }
            }
        }
        list
    }};
}

impl Op {
    /// All values, weights and KV layers that the op reads or writes.
    pub fn operands(&self) -> Vec<Operand<&ValueId, &WeightId, &usize>> {
        operands!(self)
    }

    /// The operands by mutable reference, for renumbering.
    pub(crate) fn operands_mut(&mut self) -> Vec<Operand<&mut ValueId, &mut WeightId, &mut usize>> {
        operands!(self)
    }

    /// Values that the op reads.
    pub fn inputs(&self) -> Vec<ValueId> {
        self.values(|operand| matches!(operand, Operand::Input(_)))
    }

    /// Values that the op writes for others to read.
    pub fn outputs(&self) -> Vec<ValueId> {
        self.values(|operand| matches!(operand, Operand::Output(_)))
    }

    /// Values that need memory while the op runs and that no earlier op wrote: outputs and scratch.
    pub(crate) fn written(&self) -> Vec<ValueId> {
        self.values(|operand| !matches!(operand, Operand::Input(_)))
    }

    fn values(
        &self,
        includes: impl Fn(&Operand<&ValueId, &WeightId, &usize>) -> bool,
    ) -> Vec<ValueId> {
        let operands = self.operands().into_iter().filter(includes);
        let ids = operands.filter_map(|operand| match operand {
            Operand::Input(id) | Operand::Output(id) | Operand::Scratch(id) => Some(*id),
            _ => None,
        });
        ids.collect()
    }

    /// A short name for telemetry.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Embed { norm: None, .. } => "embed",
            Self::Embed { norm: Some(_), .. } => "embed+rms_norm",
            Self::Input { .. } => "input",
            Self::RmsNorm { .. } => "rms_norm",
            Self::LayerNorm { .. } => "layer_norm",
            Self::MatMul(m) => m.name(),
            Self::Rope { .. } => "rope",
            Self::KvAppend { .. } => "kv_append",
            Self::Attention { .. } => "attention",
            Self::Glu { .. } => "glu",
            Self::Add { .. } => "add",
            Self::Scale { .. } => "scale",
            Self::SelectRows { .. } => "select_rows",
            Self::Route { .. } => "route",
            Self::ExpertMatMul { .. } => "expert_matmul",
            Self::CombineExperts { .. } => "combine_experts",
            Self::RopeAppend { .. } => "rope+kv_append",
        }
    }

    /// Arithmetic operations per element of the output, for ops whose arithmetic depends only on
    /// the size of the output. A multiply-add counts as two, an activation function as one.
    pub(crate) fn operations_per_element(&self) -> usize {
        match self {
            // Square, sum, and two factors.
            Self::RmsNorm { .. } => 4,
            // Sum, difference, square, sum, and two factors.
            Self::LayerNorm { .. } => 6,
            // The activation function and a multiplication.
            Self::Glu { .. } => 2,
            Self::Embed { .. } | Self::Add { .. } | Self::Scale { .. } => 1,
            _ => 0,
        }
    }
}
