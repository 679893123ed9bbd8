//! The op vocabulary. This file is the only description of each op: its operands with their shapes,
//! its name in telemetry and the arithmetic of ops over rows. `builder.rs` appends ops to a graph.
//!
//! [`Op::operands`] lists all reads and writes of an op. Liveness, renumbering, placement of
//! weights and memory traffic follow from this list.

mod attention;
mod builder;
mod experts;
mod function;
mod low_rank;
mod matmul;
mod recurrent;
mod router;

pub use attention::{
    Attention, Position, PositionScale, QkNorm, Rope, RopeAppend, RopeAxis, RopeStyle,
    text_position,
};
pub use builder::GraphBuilder;
pub use experts::{Combine, ExpertMatMul, ExpertProjection, combine_experts};
pub use function::{Activation, Function, Gating, Xielu};
pub use low_rank::LowRank;
pub use matmul::{Epilogue, MatMul, Projection, Prologue, RowNorm};
pub use recurrent::{
    CausalConv, DeltaDecay, DeltaHeads, DeltaNet, SelectiveScan, StateSpace, StateSpaceHeads,
};
pub use router::{ExpertGroups, GateFunction, Router};

use crate::value::{ValueId, WeightId};

/// One operation. Values are matrices of f32 `[rows, width]`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Op {
    /// `out[t] = table[ids[t]] · scale`, or the row that the batch has instead of a token.
    Embed {
        /// `[vocab_size, width]`, any format.
        table: WeightId,
        /// Factor on every element (Gemma: `√hidden_size`, otherwise 1).
        scale: f32,
        /// True if the first `width` elements of a row of [media](crate::Media) are its output.
        /// Otherwise media rows have token ids here, too.
        takes_media: bool,
        /// Fused: the norm before the first matmul.
        norm: Option<RowNorm>,
        /// `[tokens, width]`.
        out: ValueId,
    },
    /// `out[t] = table[position of t]`: learned positions. A position beyond the table reads its
    /// last row.
    EmbedPosition {
        /// `[positions, width]`, any format.
        table: WeightId,
        /// `[tokens, width]`.
        out: ValueId,
    },
    /// Rows that the caller passes with the batch ([`Batch::input`](crate::Batch)). Before it in
    /// its stage are only other ops `Input`.
    Input {
        /// `[tokens, width]`.
        out: ValueId,
    },
    /// `out[t] = x[t] + ` part `part` of the row of [media](crate::Media), and `x[t]` for tokens.
    AddMedia {
        /// `[tokens, width]`.
        x: ValueId,
        /// The part begins at element `part · width` of the row.
        part: usize,
        /// Shape of `x`.
        out: ValueId,
    },
    /// Rows that the caller receives. Consecutive ones are the end of a stage
    /// ([`Graph::stages`](crate::Graph::stages)).
    Output {
        /// `[rows, width]`.
        x: ValueId,
    },
    /// `out = x / √(mean(x²) + eps) · weight`, over groups of as many columns as the weight has:
    /// the whole row, or each head when the weight is as long as a head.
    RmsNorm {
        /// `[rows, width]`.
        x: ValueId,
        /// `[1, group]`, `group` divides `width`; or a row for each group.
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
        /// `[tokens, num_kv_heads · head_dim]`; `None` where values are a part of the keys.
        v: Option<ValueId>,
        /// Index into [`KvLayout::layers`](crate::KvLayout::layers).
        layer: usize,
    },
    /// Attention of the queries over the cache of a layer.
    Attention {
        /// Fused: the op that writes `q`, which is scratch then.
        append: Option<RopeAppend>,
        /// `[tokens, num_heads · head_dim]`, after RoPE.
        q: ValueId,
        /// Heads, scale, mask, softcap and sinks.
        attention: Attention,
        /// `[tokens, num_heads · value_dim]`.
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
    /// Fused: `out = activation(gate) · rms_norm(x)`, the norm over groups of as many columns as
    /// the weight has.
    GatedNorm {
        /// The gate's non-linearity.
        activation: Activation,
        /// `[rows, width]`.
        gate: ValueId,
        /// Shape of `gate`.
        x: ValueId,
        /// `[1, group]`; `group` divides `width`.
        weight: WeightId,
        /// Constant that is added to the mean square.
        eps: f32,
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
    /// `out = a · b`, element by element.
    Mul {
        /// `[rows, width]`.
        a: ValueId,
        /// Shape of `a`.
        b: ValueId,
        /// Shape of `a`.
        out: ValueId,
    },
    /// `out = function(x)`, element by element.
    Map {
        /// `[rows, width]`.
        x: ValueId,
        /// The function.
        function: Function,
        /// Shape of `x`.
        out: ValueId,
    },
    /// `out = function(gate) · x`.
    Gate {
        /// The function of the gate.
        function: Gating,
        /// `[rows, width]`.
        x: ValueId,
        /// `[rows, gates]`: a gate for each group of `width / gates` successive columns.
        gate: ValueId,
        /// Shape of `x`.
        out: ValueId,
    },
    /// `out[t] = x[t] · scale(position of t)`.
    ScaleByPosition {
        /// `[tokens, width]`.
        x: ValueId,
        /// The factor as a function of the position.
        scale: PositionScale,
        /// Shape of `x`.
        out: ValueId,
    },
    /// The columns of `x` from `start` on.
    Slice {
        /// `[rows, columns]`.
        x: ValueId,
        /// The first column.
        start: usize,
        /// `[rows, width]`.
        out: ValueId,
    },
    /// From each group of successive columns of `x`, as many columns from `start` on as `out` has
    /// per group.
    SliceGroups {
        /// `[rows, groups · columns]`.
        x: ValueId,
        /// Columns of a group.
        group: usize,
        /// The first column of a group.
        start: usize,
        /// `[rows, groups · width]`.
        out: ValueId,
    },
    /// Group `g` of `out` is group `g` of `a` and then group `g` of `b`.
    JoinGroups {
        /// `[rows, groups · columns]`.
        a: ValueId,
        /// `[rows, groups · other columns]`.
        b: ValueId,
        /// Groups of successive columns.
        groups: usize,
        /// `[rows, width of a + width of b]`.
        out: ValueId,
    },
    /// Head `h` of `out` is `xₕ · Wₕᵀ`: each head has its own matrix.
    HeadMatMul {
        /// `[rows, heads · columns]`.
        x: ValueId,
        /// A matrix `[rows of W, columns]` per head; all of one format.
        weights: Vec<WeightId>,
        /// `[rows, heads · rows of W]`.
        out: ValueId,
    },
    /// Selects the rows whose logits the caller requested ([`Batch::output_rows`](crate::Batch)).
    SelectRows {
        /// `[tokens, width]`.
        x: ValueId,
        /// `[output rows, width]`.
        out: ValueId,
    },
    /// Selects experts and their weights.
    Route {
        /// `[tokens, experts]`.
        logits: ValueId,
        /// `[tokens, 1]`: the gate of the shared expert, before the sigmoid.
        shared_gate: Option<ValueId>,
        /// Selection and weighting of experts.
        router: Router,
        /// `[tokens, 2 · slots]`: expert indices as f32, then weights.
        out: ValueId,
    },
    /// Slot `s` of `outᵢ` is `xₛ · Wᵢᵀ (+ biasᵢ)` of the expert in slot `s` of the route.
    ExpertMatMul(ExpertMatMul),
    /// Slot `s` of `out` is `pₛ · xₛ`, with the weights `p` of the route.
    ScaleExperts {
        /// `[tokens, experts_per_token · width]`.
        x: ValueId,
        /// Output of [`Op::Route`].
        route: ValueId,
        /// Shape of `x`.
        out: ValueId,
    },
    /// `out = Σₛ pₛ · xₛ (+ residual)` in the order of the slots.
    CombineExperts {
        /// `[tokens, experts_per_token · width]`.
        x: ValueId,
        /// Output of [`Op::Route`].
        route: ValueId,
        /// Fused: `[tokens, width]`.
        residual: Option<ValueId>,
        /// `[tokens, width]`.
        out: ValueId,
    },
    /// Causal convolution of each column, which keeps the last rows of each sequence.
    CausalConv(CausalConv),
    /// Gated delta rule over the tokens of each sequence.
    DeltaNet(DeltaNet),
    /// Selective state space of Mamba 2 over the tokens of each sequence.
    StateSpace(StateSpace),
    /// Selective scan of Mamba 1 over the tokens of each sequence.
    SelectiveScan(SelectiveScan),
    /// `out = Σₚ xₚ (+ residual)` over the parts of a program that is [divided](crate::tensor), in
    /// the order of the parts. Every part gets the sum.
    AllReduce {
        /// `[rows, width]`: the summand of this part.
        x: ValueId,
        /// Fused: shape of `x`, equal on all parts.
        residual: Option<ValueId>,
        /// Fused: the norm of `out`.
        norm: Option<RowNorm>,
        /// Shape of `x`.
        out: ValueId,
    },
    /// Fused: per-head norms of q and k (if any), RoPE of q and k, and [`Op::KvAppend`].
    RopeAppend {
        /// The heads.
        heads: RopeAppend,
        /// Queries after RoPE; shape of `q`.
        q_out: ValueId,
    },
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
    /// A recurrent state, which the op reads and replaces.
    State(L),
}

/// The operands of an op as a list of references: shared for `&Op`, mutable for `&mut Op`.
macro_rules! operands {
    ($op:expr) => {{
        use Operand::{Input, KvLayer, Matrix, Output, Scratch, State, Table, Vector};
        let mut list = Vec::with_capacity(8);
        match $op {
            Op::Embed { table, norm, out, .. } => {
                list.extend([Table(table), Output(out)]);
                if let Some(RowNorm { weight, out, .. }) = norm {
                    list.extend([Vector(weight), Output(out)]);
                }
            }
            Op::EmbedPosition { table, out } => list.extend([Table(table), Output(out)]),
            Op::Input { out } => list.push(Output(out)),
            Op::Output { x } => list.push(Input(x)),
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
                    Epilogue::Route { router, out } => {
                        is_scratch = true;
                        let Router { selection_bias, expert_scale, .. } = router;
                        list.push(Output(out));
                        list.extend(selection_bias.into_iter().chain(expert_scale).map(Vector));
                    }
                }
                for Projection { weight, bias, out } in projections {
                    list.push(Matrix(weight));
                    list.extend(bias.into_iter().map(Vector));
                    list.push(if is_scratch { Scratch(out) } else { Output(out) });
                }
            }
            Op::Rope { x, out, .. }
            | Op::Map { x, out, .. }
            | Op::AddMedia { x, out, .. }
            | Op::ScaleByPosition { x, out, .. }
            | Op::Slice { x, out, .. }
            | Op::SliceGroups { x, out, .. }
            | Op::SelectRows { x, out } => {
                list.extend([Input(x), Output(out)]);
            }
            Op::AllReduce { x, residual, norm, out } => {
                list.extend([Input(x), Output(out)]);
                list.extend(residual.into_iter().map(Input));
                if let Some(RowNorm { weight, out, .. }) = norm {
                    list.extend([Vector(weight), Output(out)]);
                }
            }
            Op::KvAppend { k, v, layer } => {
                list.extend([Input(k), KvLayer(layer)]);
                list.extend(v.into_iter().map(Input));
            }
            Op::Attention { append, q, attention: Attention { layer, sinks, .. }, out } => {
                list.push(if append.is_some() { Scratch(q) } else { Input(q) });
                list.extend([KvLayer(layer), Output(out)]);
                list.extend(sinks.into_iter().map(Vector));
                if let Some(RopeAppend { q, k, v, qk_norm, layer, .. }) = append {
                    list.extend([Input(q), Input(k), Input(v), KvLayer(layer)]);
                    if let Some(QkNorm { q, k, .. }) = qk_norm {
                        list.extend([Vector(q), Vector(k)]);
                    }
                }
            }
            Op::HeadMatMul { x, weights, out } => {
                list.extend([Input(x), Output(out)]);
                list.extend(weights.into_iter().map(Matrix));
            }
            Op::Glu { gate: a, up: b, out, .. }
            | Op::Add { a, b, out }
            | Op::JoinGroups { a, b, out, .. }
            | Op::Mul { a, b, out }
            | Op::Gate { x: a, gate: b, out, .. } => {
                list.extend([Input(a), Input(b), Output(out)]);
            }
            Op::GatedNorm { gate, x, weight, out, .. } => {
                list.extend([Input(gate), Input(x), Vector(weight), Output(out)]);
            }
            Op::Route { logits, shared_gate, router, out } => {
                let Router { selection_bias, expert_scale, .. } = router;
                list.extend([Input(logits), Output(out)]);
                list.extend(shared_gate.into_iter().map(Input));
                list.extend(selection_bias.into_iter().chain(expert_scale).map(Vector));
            }
            Op::ExpertMatMul(ExpertMatMul { x, route, projections, glu, combine }) => {
                list.extend([Input(x), Input(route)]);
                let is_scratch = glu.is_some() || combine.is_some();
                list.extend(glu.into_iter().map(|(_, out)| Output(out)));
                if let Some(Combine { residual, out, norm }) = combine {
                    list.push(Output(out));
                    list.extend(residual.into_iter().map(Input));
                    if let Some(RowNorm { weight, out, .. }) = norm {
                        list.extend([Vector(weight), Output(out)]);
                    }
                }
                for ExpertProjection { weights, bias, out } in projections {
                    list.extend(weights.into_iter().map(Matrix));
                    list.extend(bias.into_iter().map(Vector));
                    list.push(if is_scratch { Scratch(out) } else { Output(out) });
                }
            }
            Op::ScaleExperts { x, route, out } => {
                list.extend([Input(x), Input(route), Output(out)]);
            }
            Op::CombineExperts { x, route, residual, out } => {
                list.extend([Input(x), Input(route), Output(out)]);
                list.extend(residual.into_iter().map(Input));
            }
            Op::CausalConv(CausalConv { x, filter, bias, state, out, .. }) => {
                list.extend([Input(x), Vector(filter), State(state), Output(out)]);
                list.extend(bias.into_iter().map(Vector));
            }
            Op::DeltaNet(DeltaNet { qkv, alpha, beta, decay, decay_bias, state, out, .. }) => {
                list.extend([Input(qkv), Input(alpha), Input(beta), State(state), Output(out)]);
                list.extend([Vector(decay), Vector(decay_bias)]);
            }
            Op::StateSpace(StateSpace { xbc, dt, dt_bias, decay, skip, state, out, .. }) => {
                list.extend([Input(xbc), Input(dt), State(state), Output(out)]);
                list.extend([Vector(dt_bias), Vector(decay), Vector(skip)]);
            }
            Op::SelectiveScan(SelectiveScan { x, dt, b, c, decay, skip, state, out }) => {
                list.extend([Input(x), Input(dt), Input(b), Input(c), State(state), Output(out)]);
                list.extend([Vector(decay), Vector(skip)]);
            }
            Op::RopeAppend { heads: RopeAppend { q, k, v, qk_norm, layer, .. }, q_out } => {
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
    /// All values, weights, KV layers and states that the op reads or writes.
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
            Self::EmbedPosition { .. } => "embed_position",
            Self::Input { .. } => "input",
            Self::AddMedia { .. } => "add_media",
            Self::Output { .. } => "output",
            Self::RmsNorm { .. } => "rms_norm",
            Self::LayerNorm { .. } => "layer_norm",
            Self::MatMul(m) => m.name(),
            Self::Rope { .. } => "rope",
            Self::KvAppend { .. } => "kv_append",
            Self::Attention { append: None, .. } => "attention",
            Self::Attention { append: Some(_), .. } => "rope+attention",
            Self::Glu { .. } => "glu",
            Self::GatedNorm { .. } => "rms_norm+glu",
            Self::Add { .. } => "add",
            Self::Mul { .. } => "mul",
            Self::Map { function, .. } => function.name(),
            Self::Gate { function: Gating::Sigmoid, .. } => "sigmoid_gate",
            Self::Gate { function: Gating::Softplus, .. } => "softplus_gate",
            Self::ScaleByPosition { .. } => "scale_by_position",
            Self::Slice { .. } => "slice",
            Self::SliceGroups { .. } => "slice_groups",
            Self::JoinGroups { .. } => "join_groups",
            Self::HeadMatMul { .. } => "head_matmul",
            Self::SelectRows { .. } => "select_rows",
            Self::AllReduce { norm: None, .. } => "all_reduce",
            Self::AllReduce { norm: Some(_), .. } => "all_reduce+rms_norm",
            Self::Route { .. } => "route",
            Self::ExpertMatMul(m) => m.name(),
            Self::ScaleExperts { .. } => "scale_experts",
            Self::CombineExperts { .. } => "combine_experts",
            Self::CausalConv(_) => "causal_conv",
            Self::DeltaNet(_) => "delta_net",
            Self::StateSpace(_) => "state_space",
            Self::SelectiveScan(_) => "selective_scan",
            Self::RopeAppend { .. } => "rope+kv_append",
        }
    }

    /// Arithmetic operations per element of the output, for ops whose arithmetic depends only on
    /// the size of the output. A multiply-add counts as two, an activation function as one.
    pub(crate) fn operations_per_element(&self) -> usize {
        match self {
            // Square, sum, and two factors.
            Self::RmsNorm { .. } => 4,
            // Sum, difference, square, sum, and two factors; or an RMSNorm and a gated unit.
            Self::LayerNorm { .. } | Self::GatedNorm { .. } => 6,
            // The activation function and a multiplication.
            Self::Glu { .. } | Self::Gate { .. } => 2,
            Self::Map { function, .. } => function.operations(),
            Self::Embed { .. }
            | Self::Add { .. }
            | Self::AddMedia { .. }
            | Self::Mul { .. }
            | Self::ScaleByPosition { .. }
            | Self::ScaleExperts { .. } => 1,
            _ => 0,
        }
    }
}
