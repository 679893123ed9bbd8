//! Phi-3, 3.5 and 4, dense and with experts: longrope.

use rf_graph::RopeStyle;
use rf_graph::layer::Role;

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::{WeightTable, row};

pub(super) const PHI3: Family = Family {
    name: "phi3",
    config: phi3,
    weights: &[rows::PRE_NORMS, rows::FUSED_ATTENTION, rows::FUSED_GATED],
};

/// Norms and matrices have biases.
pub(super) const PHI_MOE: Family = Family {
    name: "phimoe",
    config: phi3,
    weights: &[
        &[
            row(Role::AttentionNorm, "attn_norm").with_bias(),
            row(Role::FeedForwardNorm, "ffn_norm").with_bias(),
        ],
        rows::ATTENTION_OPTIONAL_BIAS,
        rows::EXPERTS,
    ],
};

/// The window that some files declare is not used, as in llama.cpp.
fn phi3(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    config.set_long_rope(keys, config.head_dim(), RopeStyle::Neox)?;
    Ok(config)
}
