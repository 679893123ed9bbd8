//! GPT-2: learned positions, fused q, k and v, GELU without a gate.

use rf_graph::layer::Role;
use rf_graph::{Activation, RopeStyle};

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::{WeightTable, row};

pub(super) const GPT2: Family = Family {
    name: "gpt2",
    config: gpt2,
    weights: &[
        &[
            row(Role::AttentionNorm, "attn_norm").with_bias(),
            row(Role::FeedForwardNorm, "ffn_norm").with_bias(),
        ],
        rows::FUSED_ATTENTION,
        rows::UNGATED,
    ],
};

fn gpt2(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    config.set_ungated(Activation::GeluTanh);
    config.learned_positions = true;
    config.max_context_length = Some(config.context_length);
    for attention in config.attentions_mut() {
        attention.rope = None;
    }
    Ok(config)
}
