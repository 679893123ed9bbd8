//! Granite 3 and 4.2: a Llama with factors on embedding, residual, scores and logits. The latter
//! has windows with sinks.

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

pub(super) const GRANITE_SWA: Family = Family {
    name: "granite_swa",
    config: granite_swa,
    weights: &[
        rows::PRE_NORMS,
        rows::ATTENTION_OPTIONAL_BIAS,
        rows::SINKS,
        rows::GATED_OPTIONAL_BIAS,
        rows::EXPERTS,
        &[
            row(Role::SharedGate, "ffn_up_shexp").part_of(SHARED_GATE_UP),
            row(Role::SharedUp, "ffn_up_shexp").part_of(SHARED_GATE_UP),
            row(Role::SharedDown, "ffn_down_shexp"),
        ],
    ],
};

const SHARED_GATE_UP: &[Role] = &[Role::SharedGate, Role::SharedUp];

fn granite(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    with_factors(keys, transformer(keys, weights, RopeStyle::Normal)?)
}

/// Lists say which layers have a window, and which have RoPE.
fn granite_swa(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = granite(keys, weights)?;
    config.set_windows(keys, None, 4)?;
    let rotated = keys.flags("attention.rope_pattern")?;
    for (attention, rotated) in config.attentions_mut().zip(rotated.into_iter().flatten()) {
        if !rotated {
            attention.rope = None;
        }
    }
    Ok(config)
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
