//! `StarCoder` 2: layer norms, biases on every matrix, GELU without a gate.

use rf_graph::layer::Role;
use rf_graph::{Activation, RopeStyle};

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::{WeightTable, row};

pub(super) const STARCODER2: Family = Family {
    name: "starcoder2",
    config: starcoder2,
    weights: &[
        &[
            row(Role::AttentionNorm, "attn_norm").with_bias(),
            row(Role::FeedForwardNorm, "ffn_norm").with_bias(),
        ],
        rows::ATTENTION_OPTIONAL_BIAS,
        rows::UNGATED,
    ],
};

fn starcoder2(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    config.set_ungated(Activation::GeluTanh);
    Ok(config)
}
