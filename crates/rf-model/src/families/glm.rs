//! `ChatGLM` 2 and 3, GLM 4 and 4.5.

use rf_graph::layer::{QkNormGroup, Role};
use rf_graph::{GateFunction, RopeStyle};

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::{WeightTable, row};

pub(super) const CHATGLM: Family = Family {
    name: "chatglm",
    config: |keys, weights| transformer(keys, weights, RopeStyle::Normal),
    weights: &[rows::PRE_NORMS, rows::ATTENTION_OPTIONAL_BIAS, rows::FUSED_GATED],
};

pub(super) const GLM4: Family = Family {
    name: "glm4",
    config: |keys, weights| transformer(keys, weights, RopeStyle::Normal),
    weights: &[rows::PRE_NORMS, rows::POST_NORMS, rows::ATTENTION_OPTIONAL_BIAS, rows::FUSED_GATED],
};

pub(super) const GLM4_MOE: Family = Family {
    name: "glm4moe",
    config: glm4_moe,
    weights: &[
        &[
            row(Role::AttentionNorm, "attn_norm"),
            row(Role::FeedForwardNorm, "post_attention_norm"),
            row(Role::QueryNorm, "attn_q_norm").optional(),
            row(Role::KeyNorm, "attn_k_norm").optional(),
        ],
        rows::ATTENTION_OPTIONAL_BIAS,
        rows::GATED,
        rows::EXPERTS,
        rows::SELECTION_BIAS,
        rows::SHARED_EXPERT,
    ],
};

/// The first layers are dense, all others have experts that a sigmoid gates. Only some sizes have
/// norms of queries and keys.
fn glm4_moe(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    let leading_dense = keys.count("leading_dense_block_count")?;
    config.dense_layers(keys, |layer| layer < leading_dense)?;
    if keys.has_tensor("blk.0.attn_q_norm.weight") {
        config.set_qk_norm(QkNormGroup::Head, false);
    }
    if keys.count("expert_gating_func")? == 0 {
        for experts in config.layers.iter_mut().filter_map(|layer| layer.experts.as_mut()) {
            experts.gate = GateFunction::Sigmoid;
        }
    }
    Ok(config)
}
