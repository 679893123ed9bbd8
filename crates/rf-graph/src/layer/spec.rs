//! The hyper-parameters of a layer.

use crate::kv::{KvLayer, StateShape};
use crate::op::{
    Activation, DeltaDecay, DeltaHeads, ExpertGroups, GateFunction, Gating, PositionScale, Rope,
    StateSpaceHeads, Xielu,
};

/// One layer of a transformer, or of a recurrent model. What is not here follows from the weights
/// that the layer has, see [`Role`](super::Role).
#[derive(Clone, Debug, PartialEq)]
pub struct LayerSpec {
    /// Width of the residual.
    pub hidden_size: usize,
    /// The kind of all norms over the residual.
    pub norm: NormKind,
    /// Constant that is added to the mean square or variance in every norm.
    pub norm_eps: f32,
    /// As `norm_eps`, in the norms on the outputs of attention and feed-forward.
    pub post_norm_eps: f32,
    /// The part that sees other tokens.
    pub mixer: Mixer,
    /// A feed-forward layer that every token passes. A layer with neither this nor experts has no
    /// feed-forward part.
    pub dense: Option<DenseSpec>,
    /// A mixture of experts; its output is added to that of the dense layer, if there is one.
    pub experts: Option<ExpertSpec>,
    /// True if attention and feed-forward read the same residual (Cohere, Falcon). Otherwise the
    /// feed-forward layer reads the residual after attention.
    pub parallel: bool,
    /// Factor on the output of attention and feed-forward before they are added to the residual.
    pub residual_scale: f32,
    /// Factor on the residual after the layer.
    pub output_scale: f32,
    /// Width of the per-layer input, an embedding of the token for this layer alone (Gemma 3n, 4).
    pub per_layer_input: Option<usize>,
    /// Several residuals, of which the layer computes one (Gemma 3n).
    pub altup: Option<AltUpSpec>,
}

/// `AltUp` and `LAuReL` (Gemma 3n): the layer's input and output are several streams side by side,
/// and a projection of low rank is parallel to attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AltUpSpec {
    /// Streams, of the width of the residual each.
    pub streams: usize,
    /// Width between the matrices of the parallel projection.
    pub laurel_rank: usize,
    /// Gates of the feed-forward layer below their mean plus so many standard deviations are 0, and
    /// the others are above that sum by as much as the activation function reads.
    pub sparsity: Option<f32>,
}

/// The part of a layer that sees other tokens.
#[derive(Clone, Debug, PartialEq)]
pub enum Mixer {
    /// Attention.
    Attention(AttentionSpec),
    /// Attention over a latent (`DeepSeek`).
    Latent(LatentSpec),
    /// A gated short convolution (LFM2).
    ShortConv(ShortConvSpec),
    /// A gated delta rule after a convolution (Qwen 3.5, Kimi Linear).
    DeltaNet(DeltaNetSpec),
    /// A selective state space after a convolution (Mamba 2).
    Mamba(MambaSpec),
    /// Attention and a selective state space of the same input, whose outputs are added (Falcon
    /// H1).
    AttentionAndMamba(AttentionSpec, MambaSpec),
    /// A selective scan after a convolution (Mamba 1).
    Scan(ScanSpec),
    /// A matrix, [`Role::AttentionOutput`](super::Role::AttentionOutput), in the place of attention
    /// (Deci).
    Projection,
    /// None: the layer is a feed-forward layer (Nemotron H), or empty (Deci).
    None,
}

impl LayerSpec {
    /// The attention of the layer, if it has one.
    pub fn attention(&self) -> Option<&AttentionSpec> {
        match &self.mixer {
            Mixer::Attention(attention) | Mixer::AttentionAndMamba(attention, _) => Some(attention),
            _ => None,
        }
    }

    /// The attention of the layer to change, if it has one.
    pub fn attention_mut(&mut self) -> Option<&mut AttentionSpec> {
        match &mut self.mixer {
            Mixer::Attention(attention) | Mixer::AttentionAndMamba(attention, _) => Some(attention),
            _ => None,
        }
    }

    /// Returns true if the layer has a feed-forward part.
    pub fn has_feed_forward(&self) -> bool {
        self.dense.is_some() || self.experts.is_some()
    }

    /// The layer of the KV cache that the layer fills, if it fills one.
    pub fn kv_layer(&self) -> Option<KvLayer> {
        match &self.mixer {
            Mixer::Attention(a) | Mixer::AttentionAndMamba(a, _) if a.kv != KvSource::Cache => {
                Some(KvLayer::new(a.num_kv_heads, a.head_dim))
            }
            Mixer::Latent(a) => Some(KvLayer::latent(a.latent_dim + a.shared_dim, a.latent_dim)),
            _ => None,
        }
    }

    /// Sets the index of the layer of the KV cache that the layer fills, if it fills one.
    pub fn set_kv_layer(&mut self, index: usize) {
        match &mut self.mixer {
            Mixer::Attention(attention) | Mixer::AttentionAndMamba(attention, _) => {
                attention.kv_layer = index;
            }
            Mixer::Latent(latent) => latent.kv_layer = index,
            Mixer::ShortConv(_)
            | Mixer::DeltaNet(_)
            | Mixer::Mamba(_)
            | Mixer::Scan(_)
            | Mixer::Projection
            | Mixer::None => {}
        }
    }

    /// The shapes of the layer's recurrent states.
    pub fn states(&self) -> Vec<StateShape> {
        match self.mixer {
            Mixer::Attention(_) | Mixer::Latent(_) | Mixer::Projection | Mixer::None => Vec::new(),
            Mixer::ShortConv(conv) => vec![tail(conv.taps, self.hidden_size)],
            Mixer::DeltaNet(delta) => {
                vec![tail(delta.taps, delta.heads.qkv_width()), delta.heads.state()]
            }
            Mixer::Mamba(mamba) | Mixer::AttentionAndMamba(_, mamba) => {
                vec![tail(mamba.taps, mamba.heads.xbc_width()), mamba.heads.state()]
            }
            Mixer::Scan(scan) => vec![tail(scan.taps, scan.channels), scan.state()],
        }
    }

    /// Sets the indices of the layer's recurrent states, which follow each other.
    pub fn set_first_state(&mut self, first: usize) {
        match &mut self.mixer {
            Mixer::Attention(_) | Mixer::Latent(_) | Mixer::Projection | Mixer::None => {}
            Mixer::ShortConv(conv) => conv.state = first,
            Mixer::DeltaNet(delta) => delta.first_state = first,
            Mixer::Mamba(mamba) | Mixer::AttentionAndMamba(_, mamba) => mamba.first_state = first,
            Mixer::Scan(scan) => scan.first_state = first,
        }
    }
}

/// A gated short convolution: `(c ⊙ conv(b ⊙ x)) · Wₒ`, where b, c and x are projections of the
/// layer's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortConvSpec {
    /// Tokens that the convolution sees.
    pub taps: usize,
    /// Index into [`KvLayout::states`](crate::KvLayout::states).
    pub state: usize,
}

/// A gated delta rule: `(norm(delta(conv(qkv), α, β)) ⊙ silu(z)) · Wₒ`, where qkv, α, β and z are
/// projections of the layer's input. With a decay per channel, q, k and v have a matrix each, and z
/// passes a sigmoid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeltaNetSpec {
    /// The heads.
    pub heads: DeltaHeads,
    /// The decay as a function of α.
    pub decay: DeltaDecay,
    /// Width of the latents of α and z; without it they are projections of the layer's input.
    pub gate_rank: Option<usize>,
    /// Tokens that the convolution sees.
    pub taps: usize,
    /// Index into [`KvLayout::states`](crate::KvLayout::states) of the convolution's state; the one
    /// of the delta rule follows.
    pub first_state: usize,
}

/// A selective state space: `norm(ssm(conv(xbc), Δ) ⊙ silu(z)) · Wₒ`, where xbc, Δ and z are
/// projections of the layer's input. Some models have no norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MambaSpec {
    /// The heads.
    pub heads: StateSpaceHeads,
    /// Tokens that the convolution sees.
    pub taps: usize,
    /// Index into [`KvLayout::states`](crate::KvLayout::states) of the convolution's state; the one
    /// of the state space follows.
    pub first_state: usize,
}

/// A selective scan: `(scan(x, Δ, B, C) ⊙ silu(z)) · Wₒ`, where z and the input of the convolution
/// are projections of the layer's input, x is the convolution's output, and Δ, B and C are
/// projections of x: that of Δ has a low rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanSpec {
    /// Columns of x.
    pub channels: usize,
    /// Elements of B and C.
    pub state_dim: usize,
    /// Columns of the latent of the time steps.
    pub time_step_rank: usize,
    /// True if B, C and the latent of the time steps are normalised; they have weights where the
    /// layer has them.
    pub normalized: bool,
    /// The number of heads if the channels of a head share a time step and a decay (`PLaMo` 2).
    /// Then the rows of z and x take turns by head, and those of B and C come before Δ's. Otherwise
    /// each channel has a time step, and each element of the state a decay (Mamba 1).
    pub heads: Option<usize>,
    /// Tokens that the convolution sees.
    pub taps: usize,
    /// Index into [`KvLayout::states`](crate::KvLayout::states) of the convolution's state; the one
    /// of the scan follows.
    pub first_state: usize,
}

impl ScanSpec {
    /// The heads as those of a state space, whose one group has B and C.
    pub(super) fn state_space(self) -> Option<StateSpaceHeads> {
        let (num_heads, state_dim) = (self.heads?, self.state_dim);
        let head_dim = self.channels / num_heads;
        Some(StateSpaceHeads { num_heads, head_dim, num_groups: 1, state_dim })
    }

    fn state(self) -> StateShape {
        let of_channels = StateShape { rows: self.state_dim, columns: self.channels };
        self.state_space().map_or(of_channels, StateSpaceHeads::state)
    }
}

/// The state of a convolution: the rows before the next token.
fn tail(taps: usize, columns: usize) -> StateShape {
    StateShape { rows: taps - 1, columns }
}

/// The kind of a norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// [`Op::RmsNorm`](crate::Op::RmsNorm).
    Rms,
    /// [`Op::LayerNorm`](crate::Op::LayerNorm).
    Layer,
}

/// Attention of a layer.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "independent properties of a layer")]
pub struct AttentionSpec {
    /// Query heads.
    pub num_heads: usize,
    /// Key and value heads; divides `num_heads`.
    pub num_kv_heads: usize,
    /// Elements per head of queries and keys, and of values in the cache.
    pub head_dim: usize,
    /// Elements per head of values and of the output, at most `head_dim`: values that are shorter
    /// than keys have zeros at the end in the cache (`MiMo` V2).
    pub value_dim: usize,
    /// Factor on the values.
    pub value_scale: f32,
    /// Index into [`KvLayout::layers`](crate::KvLayout::layers).
    pub kv_layer: usize,
    /// The source of keys and values.
    pub kv: KvSource,
    /// True if the output is multiplied by the sigmoid of a gate, whose rows follow those of the
    /// query in each head of the query matrix.
    pub gated: bool,
    /// A gate of the output, computed from the input of attention.
    pub output_gate: Option<OutputGate>,
    /// Rotary embedding of q and k, if any.
    pub rope: Option<Rope>,
    /// Norm of q and k, if any.
    pub qk_norm: Option<QkNormSpec>,
    /// True if each head of v is divided by its root mean square (Gemma 4).
    pub normalizes_values: bool,
    /// Factor on q as a function of the position.
    pub position_scale: Option<PositionScale>,
    /// Factor on the scores, usually `1/√head_dim`.
    pub scale: f32,
    /// See [`Attention::causal`](crate::Attention::causal).
    pub causal: bool,
    /// See [`Attention::non_causal_media`](crate::Attention::non_causal_media).
    pub non_causal_media: bool,
    /// Sliding window, see [`Attention::window`](crate::Attention::window).
    pub window: Option<usize>,
    /// Chunks, see [`Attention::chunk`](crate::Attention::chunk).
    pub chunk: Option<usize>,
    /// Softcap of the scores, see [`Attention::softcap`](crate::Attention::softcap).
    pub softcap: Option<f32>,
    /// The largest bias of `ALiBi`, see [`Attention::alibi`](crate::Attention::alibi).
    pub alibi: Option<f32>,
    /// Bound of the magnitudes of q, k and v before anything else, if any (`OLMo`, MPT, DBRX).
    pub clamp: Option<f32>,
}

impl AttentionSpec {
    /// The common form: scores are divided by `√head_dim`, every earlier position is visible, no
    /// norms.
    pub fn new(num_heads: usize, num_kv_heads: usize, head_dim: usize, kv_layer: usize) -> Self {
        Self {
            num_heads,
            num_kv_heads,
            head_dim,
            value_dim: head_dim,
            value_scale: 1.0,
            kv_layer,
            kv: KvSource::Projections,
            gated: false,
            output_gate: None,
            rope: None,
            qk_norm: None,
            normalizes_values: false,
            position_scale: None,
            scale: 1.0 / (head_dim as f32).sqrt(),
            causal: true,
            non_causal_media: false,
            window: None,
            chunk: None,
            softcap: None,
            alibi: None,
            clamp: None,
        }
    }
}

/// A gate of the output of attention, before its last matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputGate {
    /// The function of the gate.
    pub function: Gating,
    /// The number of gates: one per head, or one per element.
    pub width: usize,
}

/// Attention whose cache is a latent and one key, which all heads share (MLA).
#[derive(Clone, Debug, PartialEq)]
pub struct LatentSpec {
    /// Heads.
    pub num_heads: usize,
    /// Width of the latent of the queries; without it they are a projection of the layer's input.
    pub query_rank: Option<usize>,
    /// Elements of the latent of keys and values.
    pub latent_dim: usize,
    /// Elements of a head's query and key that are not rotated.
    pub nope_dim: usize,
    /// Elements of a head's value.
    pub value_dim: usize,
    /// The other elements of a head's query, which meet a key that all heads share.
    pub shared_dim: usize,
    /// Rotary embedding of these elements and of the shared key, if any.
    pub rope: Option<Rope>,
    /// Factor on the queries as a function of the position (Mistral 4).
    pub position_scale: Option<PositionScale>,
    /// Factor on the scores.
    pub scale: f32,
    /// A gate of the output, computed from the input of attention.
    pub output_gate: Option<OutputGate>,
    /// Index into [`KvLayout::layers`](crate::KvLayout::layers).
    pub kv_layer: usize,
}

/// The source of a layer's keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvSource {
    /// Projections of the layer's input.
    Projections,
    /// One projection, which is both: keys are normalised and rotated, values are not.
    SharedProjection,
    /// The cache of an earlier layer.
    Cache,
}

/// Norm of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QkNormSpec {
    /// The elements that are normalised together.
    pub group: QkNormGroup,
    /// True if RoPE comes first.
    pub after_rope: bool,
}

/// The elements of queries and keys that a norm covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QkNormGroup {
    /// Each head.
    Head,
    /// Each head, with a separate weight.
    EachHead,
    /// Each head, without a weight.
    UnweightedHead,
    /// All heads together.
    Row,
}

/// A feed-forward layer: `down(activation(gate(x)) ⊙ up(x))`, or `down(activation(up(x)))`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DenseSpec {
    /// Width between the matrices.
    pub intermediate_size: usize,
    /// The non-linearity.
    pub activation: Activation,
    /// True if there is a gate.
    pub gated: bool,
    /// The non-linearity of a layer without a gate, if it has parameters (Apertus).
    pub xielu: Option<Xielu>,
    /// Bound of the two factors of a gated unit, if any: that of the activation from above, that of
    /// `up` in magnitude (Step 3.5).
    pub clamp: Option<f32>,
}

/// A mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpertSpec {
    /// Number of experts.
    pub count: usize,
    /// Experts that each token is routed to.
    pub experts_per_token: usize,
    /// Width between the matrices of an expert.
    pub intermediate_size: usize,
    /// The non-linearity.
    pub activation: Activation,
    /// True if experts have a gate, the shared one too.
    pub gated: bool,
    /// See [`DenseSpec::clamp`]; not for the shared expert.
    pub clamp: Option<f32>,
    /// Probabilities from the router's logits.
    pub gate: GateFunction,
    /// Selection limited to groups.
    pub groups: Option<ExpertGroups>,
    /// True if the weights of the selected experts are divided by their sum.
    pub normalize: bool,
    /// Factor on the weights.
    pub scale: f32,
    /// True if an expert's weight multiplies its input instead of its output (Llama 4).
    pub scales_input: bool,
    /// Width of the shared expert, which every token passes.
    pub shared_intermediate_size: Option<usize>,
    /// See [`DenseSpec::clamp`], for the shared expert.
    pub shared_clamp: Option<f32>,
    /// Factor on the sum of the experts and the shared one (Cohere 2 with experts).
    pub output_scale: f32,
    /// The part that reads the layer's input instead of the residual after attention.
    pub before_attention: BeforeAttention,
    /// A second set of experts, which groups of these share.
    pub adjugates: Option<AdjugateSpec>,
}

/// The part of a mixture of experts that reads the layer's input instead of the residual after
/// attention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BeforeAttention {
    /// None.
    #[default]
    Nothing,
    /// The router, without a norm (`SmallThinker`).
    Router,
    /// Router and experts, after their own norm (Arctic).
    Experts,
}

/// Experts that groups of a mixture's experts share (`GroveMoE`). Those of the selected experts
/// read the output of the mixture, and their sum times a factor is added to it. The weight of group
/// `g` is that of expert `g`, see [`Router::group`](crate::Router::group). This is what llama.cpp
/// computes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdjugateSpec {
    /// Successive experts that share an adjugate expert.
    pub group: usize,
    /// Width between the matrices of an adjugate expert.
    pub intermediate_size: usize,
    /// Factor on their sum.
    pub scale: f32,
}
