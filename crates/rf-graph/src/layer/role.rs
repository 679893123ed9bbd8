//! The weights of a layer: roles and shapes.

use super::spec::{LayerSpec, Mixer, QkNormGroup, ScanSpec};
use crate::op::{DeltaHeads, StateSpaceHeads};

/// The role of a weight in a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "named after the weights")]
pub enum Role {
    AttentionNorm,
    Query,
    Key,
    Value,
    QueryNorm,
    KeyNorm,
    Sinks,
    /// The projection to the latent of the queries.
    QueryLatent,
    QueryLatentNorm,
    /// The projection to the latent of keys and values, and to the shared key.
    Latent,
    LatentNorm,
    /// From the latent to the keys of a head, transposed: a matrix per head.
    LatentKey,
    /// From the latent to the values of a head: a matrix per head.
    LatentValue,
    /// On the output of attention, before its matrix.
    AttentionSubNorm,
    /// The gate of the output of attention, [`AttentionSpec::output_gate`](super::AttentionSpec).
    AttentionGate,
    AttentionOutput,
    /// Multiplies the input of a short convolution.
    ConvInputGate,
    /// Multiplies the output of a short convolution.
    ConvOutputGate,
    /// The projection that a convolution reads.
    MixerInput,
    /// A filter per column: `[taps, width]`.
    ConvFilter,
    /// The projection to the latent that [`Self::MixerGate`] reads.
    MixerGateLatent,
    /// The projection whose `SiLU` or sigmoid multiplies the output of a recurrence.
    MixerGate,
    /// The projection to the latent that [`Self::Alpha`] reads.
    AlphaLatent,
    /// The input of the decay of a delta rule.
    Alpha,
    /// The input of the correction of a delta rule.
    Beta,
    /// For each key head, the rows of beta and then those of alpha of its value heads.
    BetaAlpha,
    /// The logarithm of the decay of a recurrence.
    Decay,
    DecayBias,
    /// The time step of a state space.
    TimeStep,
    /// The factor with which the input of a state space reaches its output directly.
    Skip,
    /// The projection to the latent of the time steps and to B and C of a scan.
    ScanProjection,
    /// The norm of the latent of the time steps.
    TimeStepNorm,
    StateInputNorm,
    StateOutputNorm,
    ConvBias,
    /// The norm of the output of a recurrence.
    MixerNorm,
    MixerOutput,
    /// A factor per column on the output of attention.
    AttentionScale,
    /// On the output of attention, before the residual.
    PostAttentionNorm,
    /// After the residual of attention (BERT).
    AttentionResidualNorm,
    FeedForwardNorm,
    Gate,
    Up,
    /// On what the last matrix of the dense layer reads.
    FeedForwardSubNorm,
    Down,
    /// On the output of the dense layer, before that of the experts is added.
    DenseOutputNorm,
    /// The experts' own norm; without it they read what the dense layer reads.
    ExpertNorm,
    /// A norm of the residual that only the router reads.
    RouterNorm,
    Router,
    SelectionBias,
    ExpertGate,
    ExpertUp,
    ExpertDown,
    /// A factor per expert.
    ExpertScale,
    AdjugateGate,
    AdjugateUp,
    AdjugateDown,
    ExpertOutputNorm,
    SharedGate,
    SharedUp,
    SharedDown,
    /// Gates the output of the shared expert by a sigmoid.
    SharedRouter,
    /// On the output of the feed-forward layer, before the residual.
    PostFeedForwardNorm,
    /// A factor per column on the output of the feed-forward layer, after its norm.
    FeedForwardScale,
    /// After the residual of the feed-forward layer (BERT).
    FeedForwardResidualNorm,
    /// A factor per column on the output of the layer.
    OutputScale,
    PerLayerGate,
    PerLayerProjection,
    PerLayerNorm,
    AltUpRouterNorm,
    /// From the active stream to a value per stream.
    AltUpRouter,
    AltUpPredict,
    AltUpCorrect,
    /// A factor per column of the stream that the per-layer input gates.
    AltUpScale,
    LaurelLeft,
    LaurelRight,
    LaurelNorm,
}

/// The shape of a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleShape {
    /// `[len]`.
    Vector(usize),
    /// `[rows, columns]`.
    Matrix([usize; 2]),
    /// A matrix per expert, or per head: `[count, rows, columns]`.
    Experts([usize; 3]),
}

impl RoleShape {
    /// Rows of the matrix, or of each expert's or head's; 1 for a vector.
    pub fn rows(self) -> usize {
        match self {
            Self::Vector(_) => 1,
            Self::Matrix([rows, _]) | Self::Experts([_, rows, _]) => rows,
        }
    }
}

impl Role {
    /// The shape of the weight in a layer.
    #[expect(clippy::too_many_lines, reason = "a table with a row for each role")]
    pub fn shape(self, layer: &LayerSpec) -> RoleShape {
        use RoleShape::{Experts, Matrix, Vector};
        let hidden = layer.hidden_size;
        let (mut num_heads, mut head_dim, mut q, mut kv) = (0, 0, 0, 0);
        let (mut kv_values, mut gates) = (0, 0);
        let (mut q_columns, mut attended) = (hidden, 0);
        let (mut query_rank, mut latent, mut nope, mut shared_key, mut value) = (0, 0, 0, 0, 0);
        let (mut by_row, mut by_head, mut gated) = (false, false, false);
        let (mut taps, mut conv, mut inner_size, mut heads, mut norm) = (0, 0, 0, 0, [0; 2]);
        let (mut gate_rank, mut gate_columns, mut alphas) = (0, hidden, 0);
        if let Mixer::Scan(scan) = &layer.mixer
            && let Some(shape) = self.shape_of_scan(hidden, *scan)
        {
            return shape;
        }
        if let Some(a) = layer.attention() {
            (num_heads, head_dim) = (a.num_heads, a.head_dim);
            (q, kv) = (num_heads * head_dim, a.num_kv_heads * head_dim);
            by_row = a.qk_norm.is_some_and(|norm| norm.group == QkNormGroup::Row);
            by_head = a.qk_norm.is_some_and(|norm| norm.group == QkNormGroup::EachHead);
            gated = a.gated;
            kv_values = a.num_kv_heads * a.value_dim;
            attended = num_heads * a.value_dim;
            gates = a.output_gate.map_or(0, |gate| gate.width);
        }
        if let Mixer::Mamba(mamba) | Mixer::AttentionAndMamba(_, mamba) = &layer.mixer {
            let StateSpaceHeads { num_heads, num_groups, .. } = mamba.heads;
            (taps, conv) = (mamba.taps, mamba.heads.xbc_width());
            (heads, inner_size) = (num_heads, mamba.heads.inner_width());
            alphas = heads;
            norm = [num_groups, inner_size / num_groups];
        }
        match &layer.mixer {
            Mixer::None
            | Mixer::Mamba(_)
            | Mixer::Attention(_)
            | Mixer::AttentionAndMamba(..)
            | Mixer::Scan(_) => {}
            Mixer::Projection => attended = hidden,
            Mixer::Latent(a) => {
                (num_heads, latent, nope) = (a.num_heads, a.latent_dim, a.nope_dim);
                (shared_key, value) = (a.shared_dim, a.value_dim);
                (q, attended) = (num_heads * (nope + shared_key), num_heads * value);
                gates = a.output_gate.map_or(0, |gate| gate.width);
                query_rank = a.query_rank.unwrap_or(0);
                q_columns = a.query_rank.unwrap_or(hidden);
            }
            Mixer::ShortConv(short) => (taps, conv, inner_size) = (short.taps, hidden, hidden),
            Mixer::DeltaNet(delta) => {
                let DeltaHeads { num_value_heads, value_dim, .. } = delta.heads;
                (taps, conv) = (delta.taps, delta.heads.qkv_width());
                (heads, inner_size) = (num_value_heads, delta.heads.value_width());
                (q, kv) = (delta.heads.key_width(), delta.heads.key_width());
                (kv_values, alphas) = (inner_size, delta.decay.width(delta.heads));
                gate_rank = delta.gate_rank.unwrap_or(0);
                gate_columns = delta.gate_rank.unwrap_or(hidden);
                norm = [1, value_dim];
            }
        }
        let dense = layer.dense.map_or(0, |dense| dense.intermediate_size);
        let (streams, rank) = layer.altup.map_or((0, 0), |a| (a.streams, a.laurel_rank));
        let per_layer = layer.per_layer_input.unwrap_or(0);
        match self {
            Self::AttentionNorm
            | Self::PostAttentionNorm
            | Self::AttentionResidualNorm
            | Self::FeedForwardNorm
            | Self::DenseOutputNorm
            | Self::ExpertNorm
            | Self::RouterNorm
            | Self::ExpertOutputNorm
            | Self::PostFeedForwardNorm
            | Self::FeedForwardResidualNorm
            | Self::AttentionScale
            | Self::FeedForwardScale
            | Self::OutputScale
            | Self::PerLayerNorm
            | Self::AltUpRouterNorm
            | Self::AltUpScale
            | Self::LaurelNorm => Vector(hidden),
            Self::AltUpRouter => Matrix([streams, hidden]),
            Self::AltUpPredict => Matrix([streams * streams, streams]),
            Self::AltUpCorrect => Matrix([streams, streams]),
            Self::LaurelLeft => Matrix([rank, hidden]),
            Self::LaurelRight => Matrix([hidden, rank]),
            Self::Query => Matrix([if gated { 2 * q } else { q }, q_columns]),
            Self::Key => Matrix([kv, hidden]),
            Self::Value => Matrix([kv_values, hidden]),
            Self::QueryNorm if by_head => Matrix([num_heads, head_dim]),
            Self::KeyNorm if by_head => Matrix([kv / head_dim, head_dim]),
            Self::QueryNorm => Vector(if by_row { q } else { head_dim }),
            Self::KeyNorm => Vector(if by_row { kv } else { head_dim }),
            Self::Sinks => Vector(num_heads),
            Self::AttentionSubNorm => Vector(attended),
            Self::QueryLatent => Matrix([query_rank, hidden]),
            Self::QueryLatentNorm => Vector(query_rank),
            Self::Latent => Matrix([latent + shared_key, hidden]),
            Self::LatentNorm => Vector(latent),
            Self::LatentKey => Experts([num_heads, latent, nope]),
            Self::LatentValue => Experts([num_heads, value, latent]),
            Self::AttentionGate => Matrix([gates, hidden]),
            Self::AttentionOutput => Matrix([hidden, attended]),
            Self::ConvInputGate | Self::ConvOutputGate | Self::MixerInput => Matrix([conv, hidden]),
            Self::ConvFilter => Matrix([taps, conv]),
            Self::MixerGateLatent | Self::AlphaLatent => Matrix([gate_rank, hidden]),
            Self::MixerGate => Matrix([inner_size, gate_columns]),
            Self::Alpha => Matrix([alphas, gate_columns]),
            Self::Beta | Self::TimeStep => Matrix([heads, hidden]),
            Self::BetaAlpha => Matrix([2 * heads, hidden]),
            Self::DecayBias => Vector(alphas),
            Self::Decay | Self::Skip => Vector(heads),
            Self::ConvBias => Vector(conv),
            Self::MixerNorm => Matrix(norm),
            Self::MixerOutput => Matrix([hidden, inner_size]),
            Self::Gate | Self::Up => Matrix([dense, hidden]),
            Self::FeedForwardSubNorm => Vector(dense),
            Self::Down => Matrix([hidden, dense]),
            Self::PerLayerGate => Matrix([per_layer, hidden]),
            Self::PerLayerProjection => Matrix([hidden, per_layer]),
            _ => self.shape_of_experts(layer),
        }
    }

    /// The shapes of the weights of experts. Other weights are empty.
    fn shape_of_experts(self, layer: &LayerSpec) -> RoleShape {
        use RoleShape::{Experts, Matrix, Vector};
        let Some(experts) = layer.experts else { return Vector(0) };
        let (hidden, count, inner) = (layer.hidden_size, experts.count, experts.intermediate_size);
        let shared = experts.shared_intermediate_size.unwrap_or(0);
        let (adjugates, narrow) = experts
            .adjugates
            .map_or((0, 0), |adjugates| (count / adjugates.group, adjugates.intermediate_size));
        match self {
            Self::Router => Matrix([count, hidden]),
            Self::SelectionBias | Self::ExpertScale => Vector(count),
            Self::ExpertGate | Self::ExpertUp => Experts([count, inner, hidden]),
            Self::ExpertDown => Experts([count, hidden, inner]),
            Self::AdjugateGate | Self::AdjugateUp => Experts([adjugates, narrow, hidden]),
            Self::AdjugateDown => Experts([adjugates, hidden, narrow]),
            Self::SharedGate | Self::SharedUp => Matrix([shared, hidden]),
            Self::SharedDown => Matrix([hidden, shared]),
            Self::SharedRouter => Matrix([1, hidden]),
            _ => Vector(0),
        }
    }

    /// The shapes of a layer that scans, where they differ from those of others.
    fn shape_of_scan(self, hidden: usize, scan: ScanSpec) -> Option<RoleShape> {
        use RoleShape::{Matrix, Vector};
        let ScanSpec { channels, state_dim, time_step_rank, heads, taps, .. } = scan;
        Some(match (self, heads) {
            (Self::MixerInput, Some(_)) => Matrix([2 * channels, hidden]),
            (Self::MixerInput | Self::MixerGate, _) => Matrix([channels, hidden]),
            (Self::ConvFilter, _) => Matrix([taps, channels]),
            (Self::ConvBias, _) => Vector(channels),
            (Self::ScanProjection, _) => Matrix([time_step_rank + 2 * state_dim, channels]),
            (Self::TimeStepNorm, _) => Vector(time_step_rank),
            (Self::StateInputNorm | Self::StateOutputNorm, _) => Vector(state_dim),
            (Self::TimeStep, _) => Matrix([heads.unwrap_or(channels), time_step_rank]),
            (Self::Decay, None) => Matrix([state_dim, channels]),
            (Self::Decay | Self::DecayBias | Self::Skip, _) => Vector(heads.unwrap_or(channels)),
            (Self::MixerOutput, _) => Matrix([hidden, channels]),
            _ => return None,
        })
    }
}
