//! `StableLM`: layer norms with biases, RoPE of a part of each head.

use rf_graph::RopeStyle;
use rf_graph::layer::Role;

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::{WeightTable, row};

pub(super) const STABLELM: Family = Family {
    name: "stablelm",
    config: stablelm,
    weights: &[
        &[
            row(Role::AttentionNorm, "attn_norm").with_bias(),
            row(Role::FeedForwardNorm, "ffn_norm").with_bias().optional(),
        ],
        rows::ATTENTION_OPTIONAL_BIAS,
        rows::GATED,
    ],
};

fn stablelm(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    let parallel = keys.flag("use_parallel_residual")?.unwrap_or(false);
    for layer in &mut config.layers {
        layer.parallel = parallel;
    }
    Ok(config)
}
