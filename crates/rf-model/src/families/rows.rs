//! Rows of weight tables that families share.

use rf_graph::layer::Role;

use crate::weights::{WeightRow, row};

/// The norms before attention and feed-forward.
pub(super) const PRE_NORMS: &[WeightRow] =
    &[row(Role::AttentionNorm, "attn_norm"), row(Role::FeedForwardNorm, "ffn_norm")];

/// The layer norms before attention and feed-forward.
pub(super) const PRE_NORMS_WITH_BIAS: &[WeightRow] = &[
    row(Role::AttentionNorm, "attn_norm").with_bias(),
    row(Role::FeedForwardNorm, "ffn_norm").with_bias(),
];

/// The norms after attention and feed-forward, before the residual.
pub(super) const POST_NORMS: &[WeightRow] = &[
    row(Role::PostAttentionNorm, "post_attention_norm"),
    row(Role::PostFeedForwardNorm, "post_ffw_norm"),
];

const QKV: &[Role] = &[Role::Query, Role::Key, Role::Value];

/// Attention without biases. Some converters write q, k and v as one tensor.
pub(super) const ATTENTION: &[WeightRow] = &[
    row(Role::Query, "attn_q"),
    row(Role::Key, "attn_k"),
    row(Role::Value, "attn_v"),
    row(Role::Query, "attn_qkv").part_of(QKV),
    row(Role::Key, "attn_qkv").part_of(QKV),
    row(Role::Value, "attn_qkv").part_of(QKV),
    row(Role::AttentionOutput, "attn_output"),
];

/// Attention whose projections may have biases.
pub(super) const ATTENTION_OPTIONAL_BIAS: &[WeightRow] = &[
    row(Role::Query, "attn_q").with_optional_bias(),
    row(Role::Key, "attn_k").with_optional_bias(),
    row(Role::Value, "attn_v").with_optional_bias(),
    row(Role::Query, "attn_qkv").part_of(QKV).with_optional_bias(),
    row(Role::Key, "attn_qkv").part_of(QKV).with_optional_bias(),
    row(Role::Value, "attn_qkv").part_of(QKV).with_optional_bias(),
    row(Role::AttentionOutput, "attn_output").with_optional_bias(),
];

/// Attention with q, k and v in one tensor.
pub(super) const FUSED_ATTENTION: &[WeightRow] = &[
    row(Role::Query, "attn_qkv").part_of(QKV).with_optional_bias(),
    row(Role::Key, "attn_qkv").part_of(QKV).with_optional_bias(),
    row(Role::Value, "attn_qkv").part_of(QKV).with_optional_bias(),
    row(Role::AttentionOutput, "attn_output").with_optional_bias(),
];

/// Norms of queries and keys.
pub(super) const QK_NORM: &[WeightRow] =
    &[row(Role::QueryNorm, "attn_q_norm"), row(Role::KeyNorm, "attn_k_norm")];

/// A gated feed-forward layer.
pub(super) const GATED: &[WeightRow] =
    &[row(Role::Gate, "ffn_gate"), row(Role::Up, "ffn_up"), row(Role::Down, "ffn_down")];

/// A gated feed-forward layer that may have biases.
pub(super) const GATED_OPTIONAL_BIAS: &[WeightRow] = &[
    row(Role::Gate, "ffn_gate").with_optional_bias(),
    row(Role::Up, "ffn_up").with_optional_bias(),
    row(Role::Down, "ffn_down").with_optional_bias(),
];

const GATE_UP: &[Role] = &[Role::Gate, Role::Up];

/// A gated feed-forward layer with gate and up in one tensor.
pub(super) const FUSED_GATED: &[WeightRow] = &[
    row(Role::Gate, "ffn_up").part_of(GATE_UP),
    row(Role::Up, "ffn_up").part_of(GATE_UP),
    row(Role::Down, "ffn_down"),
];

/// A feed-forward layer without a gate.
pub(super) const UNGATED: &[WeightRow] = &[
    row(Role::Up, "ffn_up").with_optional_bias(),
    row(Role::Down, "ffn_down").with_optional_bias(),
];

const EXPERT_GATE_UP: &[Role] = &[Role::ExpertGate, Role::ExpertUp];

/// A mixture of experts. Some converters write gate and up as one tensor.
pub(super) const EXPERTS: &[WeightRow] = &[
    row(Role::Router, "ffn_gate_inp"),
    row(Role::ExpertGate, "ffn_gate_exps"),
    row(Role::ExpertUp, "ffn_up_exps"),
    row(Role::ExpertGate, "ffn_gate_up_exps").part_of(EXPERT_GATE_UP),
    row(Role::ExpertUp, "ffn_gate_up_exps").part_of(EXPERT_GATE_UP),
    row(Role::ExpertDown, "ffn_down_exps"),
];

/// The bias of the selection of experts.
pub(super) const SELECTION_BIAS: &[WeightRow] =
    &[row(Role::SelectionBias, "exp_probs_b").suffix("bias").optional()];

/// The shared expert.
pub(super) const SHARED_EXPERT: &[WeightRow] = &[
    row(Role::SharedGate, "ffn_gate_shexp"),
    row(Role::SharedUp, "ffn_up_shexp"),
    row(Role::SharedDown, "ffn_down_shexp"),
];

/// The gate of the output of attention.
pub(super) const OUTPUT_GATE: &[WeightRow] = &[row(Role::AttentionGate, "attn_gate")];

/// The sinks of attention.
pub(super) const SINKS: &[WeightRow] = &[row(Role::Sinks, "attn_sinks").optional()];
