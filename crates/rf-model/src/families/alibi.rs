//! Models with `ALiBi` instead of positions: BLOOM, MPT.

use rf_graph::layer::Role;
use rf_graph::{Activation, RopeStyle};

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::{WeightTable, row};

pub(super) const BLOOM: Family = Family {
    name: "bloom",
    config: bloom,
    weights: &[
        &[
            row(Role::AttentionNorm, "attn_norm").with_bias(),
            row(Role::FeedForwardNorm, "ffn_norm").with_bias(),
        ],
        rows::ATTENTION_OPTIONAL_BIAS,
        rows::UNGATED,
    ],
};

pub(super) const MPT: Family = Family {
    name: "mpt",
    config: mpt,
    weights: &[
        &[
            row(Role::AttentionNorm, "attn_norm").with_optional_bias(),
            row(Role::FeedForwardNorm, "ffn_norm").with_optional_bias(),
        ],
        rows::ATTENTION_OPTIONAL_BIAS,
        rows::UNGATED,
    ],
};

/// A norm follows the embedding.
fn bloom(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    config.set_ungated(Activation::GeluTanh);
    config.set_alibi(8.0);
    config.embedding_norm = true;
    Ok(config)
}

/// Queries, keys and values are cut to a bound. Without a bias of `ALiBi` there are learned
/// positions.
fn mpt(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    config.set_ungated(Activation::GeluTanh);
    config.set_alibi(keys.f64("attention.max_alibi_bias", 0.0)? as f32);
    config.learned_positions = keys.has_tensor("position_embd.weight");
    if config.learned_positions {
        config.max_context_length = Some(config.context_length);
    }
    config.set_clamp(keys)?;
    for attention in config.attentions_mut() {
        attention.alibi = attention.alibi.filter(|bias| *bias > 0.0);
    }
    Ok(config)
}
