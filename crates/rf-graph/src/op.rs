//! Ops: what can be asked of a backend.

use std::sync::Arc;

/// A value of the graph: a matrix `[rows, width]` of f32 with one row per token (or per output row).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub(crate) u32);

impl ValueId {
    /// Position in [`Graph::values`](crate::Graph::values).
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A weight of the program: a matrix `[rows, columns]` in any format, or a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WeightId(pub(crate) u32);

impl WeightId {
    /// Position in [`Program::weights`](crate::Program::weights).
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One operation. Values are matrices of f32 `[rows, width]`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Op {
    /// `out[t] = table[ids[t]] · scale`.
    Embed {
        /// `[vocab_size, width]`, any format.
        table: WeightId,
        /// Factor on every element (Gemma: `√hidden_size`, else 1).
        scale: f32,
        /// `[tokens, width]`.
        out: ValueId,
    },
    /// `out` is what the caller hands in with the batch ([`Batch::input`](crate::Batch)).
    Input {
        /// `[tokens, width]`.
        out: ValueId,
    },
    /// `out = x / √(mean(x²) + eps) · weight`, over groups of `weight.len()` columns: the whole row,
    /// or each head when the weight is as long as a head.
    RmsNorm {
        /// `[rows, width]`.
        x: ValueId,
        /// `[group]`, `group` divides `width`.
        weight: WeightId,
        /// Added to the mean square.
        eps: f32,
        /// Shape of `x`.
        out: ValueId,
    },
    /// `outᵢ = prologue(x) · Wᵢᵀ (+ biasᵢ) (+ residual)`.
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
        /// `[tokens, num_kv_heads · head_dim]`, already rotated.
        k: ValueId,
        /// `[tokens, num_kv_heads · head_dim]`.
        v: ValueId,
        /// Index into [`KvLayout::layers`](crate::KvLayout::layers).
        layer: usize,
    },
    /// Causal attention of the queries over the cache of a layer.
    Attention {
        /// `[tokens, num_heads · head_dim]`, already rotated.
        q: ValueId,
        /// Heads, scale, window.
        attention: Attention,
        /// Shape of `q`.
        out: ValueId,
    },
    /// `out = activation(gate) · up`.
    Glu {
        /// The gate's non-linearity.
        activation: Activation,
        /// `[tokens, intermediate_size]`.
        gate: ValueId,
        /// Shape of `gate`.
        up: ValueId,
        /// Shape of `gate`.
        out: ValueId,
    },
    /// `out = a + b`.
    Add {
        /// Left operand.
        a: ValueId,
        /// Shape of `a`.
        b: ValueId,
        /// Shape of `a`.
        out: ValueId,
    },
    /// `out = x · factor`.
    Scale {
        /// Operand.
        x: ValueId,
        /// Factor.
        factor: f32,
        /// Shape of `x`.
        out: ValueId,
    },
    /// Keeps the rows for which the caller wants logits ([`Batch::output_rows`](crate::Batch)).
    SelectRows {
        /// `[tokens, width]`.
        x: ValueId,
        /// `[output rows, width]`.
        out: ValueId,
    },
    /// Picks experts: softmax over all of them, the `used` largest (ties: the lower index first), their
    /// probabilities divided by their sum.
    Route {
        /// `[tokens, experts]`.
        logits: ValueId,
        /// Experts per token.
        used: usize,
        /// `[tokens, 2 · used]`: indices as f32, then probabilities.
        out: ValueId,
    },
    /// Slot `s` of `out` is `xₛ · Wᵀ` of the expert in slot `s` of the route.
    ExpertMatMul {
        /// `[tokens, columns]`, the same for each slot, or `[tokens, used · columns]`.
        x: ValueId,
        /// From [`Op::Route`].
        route: ValueId,
        /// One `[rows, columns]` per expert.
        weights: Vec<WeightId>,
        /// `[tokens, used · rows]`.
        out: ValueId,
    },
    /// `out = Σₛ pₛ · xₛ`, slots in order.
    CombineExperts {
        /// `[tokens, used · width]`.
        x: ValueId,
        /// From [`Op::Route`].
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
        /// Norm of each query and key head before the rotation.
        qk_norm: Option<QkNorm>,
        /// Frequencies and pairing.
        rope: Rope,
        /// Index into [`KvLayout::layers`](crate::KvLayout::layers).
        layer: usize,
        /// The rotated queries; shape of `q`.
        q_out: ValueId,
    },
}

/// Per-head RMSNorm of queries and keys (Qwen3, Gemma 3).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QkNorm {
    /// `[head_dim]` for the queries.
    pub q: WeightId,
    /// `[head_dim]` for the keys.
    pub k: WeightId,
    /// Added to the mean square.
    pub eps: f32,
}

/// Matrix product with what is fused before and after it.
#[derive(Clone, Debug, PartialEq)]
pub struct MatMul {
    /// What makes the left operand.
    pub prologue: Prologue,
    /// One product per weight matrix, all of the same left operand.
    pub projections: Vec<Projection>,
    /// Added to the (only) product: the residual stream.
    pub residual: Option<ValueId>,
}

/// The left operand of a [`MatMul`]: `[rows, columns]`.
#[derive(Clone, Debug, PartialEq)]
pub enum Prologue {
    /// A value as it is.
    Plain(ValueId),
    /// As [`Op::RmsNorm`] over the whole row.
    RmsNorm {
        /// `[rows, columns]`.
        x: ValueId,
        /// `[columns]`.
        weight: WeightId,
        /// Added to the mean square.
        eps: f32,
    },
    /// As [`Op::Glu`].
    Glu {
        /// The gate's non-linearity.
        activation: Activation,
        /// `[rows, columns]`.
        gate: ValueId,
        /// `[rows, columns]`.
        up: ValueId,
    },
}

/// One weight matrix of a [`MatMul`].
#[derive(Clone, Debug, PartialEq)]
pub struct Projection {
    /// `[width of out, columns]`.
    pub weight: WeightId,
    /// `[width of out]`.
    pub bias: Option<WeightId>,
    /// `[rows, width]`.
    pub out: ValueId,
}

/// The non-linearity of a gated unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Activation {
    /// `x · σ(x)`.
    Silu,
    /// `x · Φ(x)` in the tanh form: `½x(1 + tanh(√(2/π)(x + 0.044715x³)))`.
    GeluTanh,
}

/// Which elements of a head RoPE rotates together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RopeStyle {
    /// Pairs `(2i, 2i+1)`: the Llama family in GGUF.
    Normal,
    /// Pairs `(i, i + dims/2)`: Qwen, Phi, Gemma.
    Neox,
}

/// Rotary embedding: pair `i` of a head at position `p` turns by `p · inv_freq[i]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Pairing.
    pub style: RopeStyle,
    /// Elements per head.
    pub head_dim: usize,
    /// `[dims/2]` angles per position, every scaling applied; elements from `dims` on pass through.
    pub inv_freq: Arc<[f64]>,
    /// Factor on cos and sin (YaRN's attention factor), else 1.
    pub magnitude: f32,
}

impl Rope {
    /// Rotated elements per head.
    pub fn dims(&self) -> usize {
        self.inv_freq.len() * 2
    }

    /// Indices of the two elements of pair `i` within a head.
    pub fn pair(&self, i: usize) -> (usize, usize) {
        match self.style {
            RopeStyle::Normal => (2 * i, 2 * i + 1),
            RopeStyle::Neox => (i, i + self.inv_freq.len()),
        }
    }

    /// `(cos, sin)` of pair `i` at a position, magnitude applied.
    pub fn cos_sin(&self, position: usize, i: usize) -> (f32, f32) {
        let (sin, cos) = (position as f64 * self.inv_freq[i]).sin_cos();
        ((cos * f64::from(self.magnitude)) as f32, (sin * f64::from(self.magnitude)) as f32)
    }
}

/// `softmax(scale · q·kᵀ) · v` over the cached positions that a query may see.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// Index into [`KvLayout::layers`](crate::KvLayout::layers).
    pub layer: usize,
    /// Query heads.
    pub num_heads: usize,
    /// Key and value heads; divides `num_heads`.
    pub num_kv_heads: usize,
    /// Elements per head.
    pub head_dim: usize,
    /// Factor on the scores, mostly `1/√head_dim`.
    pub scale: f32,
    /// A key is seen if `query position − key position < window`.
    pub window: Option<usize>,
    /// Scores become `c · tanh(s / c)`.
    pub softcap: Option<f32>,
    /// `[num_heads]`: a logit per head that only joins the softmax's denominator (gpt-oss).
    pub sinks: Option<WeightId>,
}

impl Attention {
    /// As most models have it: scores are divided by `√head_dim`, every key up to the query's own is seen.
    pub fn new(layer: usize, num_heads: usize, num_kv_heads: usize, head_dim: usize) -> Self {
        Self {
            layer,
            num_heads,
            num_kv_heads,
            head_dim,
            scale: 1.0 / (head_dim as f32).sqrt(),
            window: None,
            softcap: None,
            sinks: None,
        }
    }
}

impl Op {
    /// Values that the op reads.
    pub fn inputs(&self) -> Vec<ValueId> {
        match self {
            Self::Embed { .. } | Self::Input { .. } => vec![],
            Self::RmsNorm { x, .. }
            | Self::Rope { x, .. }
            | Self::Scale { x, .. }
            | Self::SelectRows { x, .. } => vec![*x],
            Self::MatMul(m) => m.prologue.inputs().into_iter().chain(m.residual).collect(),
            Self::KvAppend { k, v, .. } => vec![*k, *v],
            Self::Attention { q, .. } => vec![*q],
            Self::Glu { gate, up, .. } => vec![*gate, *up],
            Self::Add { a, b, .. } => vec![*a, *b],
            Self::Route { logits, .. } => vec![*logits],
            Self::ExpertMatMul { x, route, .. } | Self::CombineExperts { x, route, .. } => {
                vec![*x, *route]
            }
            Self::RopeAppend { q, k, v, .. } => vec![*q, *k, *v],
        }
    }

    /// Values that the op writes.
    pub fn outputs(&self) -> Vec<ValueId> {
        match self {
            Self::KvAppend { .. } => vec![],
            Self::MatMul(m) => m.projections.iter().map(|p| p.out).collect(),
            Self::Embed { out, .. }
            | Self::Input { out }
            | Self::RmsNorm { out, .. }
            | Self::Rope { out, .. }
            | Self::Attention { out, .. }
            | Self::Glu { out, .. }
            | Self::Add { out, .. }
            | Self::Scale { out, .. }
            | Self::SelectRows { out, .. }
            | Self::Route { out, .. }
            | Self::ExpertMatMul { out, .. }
            | Self::CombineExperts { out, .. }
            | Self::RopeAppend { q_out: out, .. } => vec![*out],
        }
    }

    /// A short name for telemetry.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Embed { .. } => "embed",
            Self::Input { .. } => "input",
            Self::RmsNorm { .. } => "rms_norm",
            Self::MatMul(m) => match m.prologue {
                Prologue::Plain(_) => "matmul",
                Prologue::RmsNorm { .. } => "rms_norm+matmul",
                Prologue::Glu { .. } => "glu+matmul",
            },
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
}

impl Prologue {
    /// Values that the prologue reads.
    pub fn inputs(&self) -> Vec<ValueId> {
        match self {
            Self::Plain(x) | Self::RmsNorm { x, .. } => vec![*x],
            Self::Glu { gate, up, .. } => vec![*gate, *up],
        }
    }
}
