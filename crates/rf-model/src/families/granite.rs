//! Granite 3: a Llama with factors on embedding, residual, scores and logits.

use rf_graph::RopeStyle;
use rf_graph::layer::Role;

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::{WeightTable, row};

pub(super) const GRANITE: Family = Family {
    name: "granite",
    config: granite,
    weights: &[rows::PRE_NORMS, rows::ATTENTION_OPTIONAL_BIAS, rows::GATED_OPTIONAL_BIAS],
};

pub(super) const GRANITE_MOE: Family = Family {
    name: "granitemoe",
    config: granite,
    weights: &[
        rows::PRE_NORMS,
        rows::ATTENTION_OPTIONAL_BIAS,
        rows::EXPERTS,
        &[
            row(Role::SharedGate, "ffn_gate_shexp").optional(),
            row(Role::SharedUp, "ffn_up_shexp").optional(),
            row(Role::SharedDown, "ffn_down_shexp").optional(),
        ],
    ],
};

fn granite(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    with_factors(keys, transformer(keys, weights, RopeStyle::Normal)?)
}

/// Adds the factors of Granite.
pub(super) fn with_factors(keys: &Keys<'_>, mut config: ModelConfig) -> Result<ModelConfig, Error> {
    config.embedding_scale = keys.factor("embedding_scale", 1.0)?;
    config.logit_scale = 1.0 / keys.factor("logit_scale", 1.0)?;
    let residual_scale = keys.factor("residual_scale", 1.0)?;
    for layer in &mut config.layers {
        layer.residual_scale = residual_scale;
    }
    for attention in config.attentions_mut() {
        attention.scale = keys.factor("attention.scale", attention.scale)?;
    }
    Ok(config)
}
