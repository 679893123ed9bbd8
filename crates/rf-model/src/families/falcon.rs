//! Falcon: attention and feed-forward in parallel, GELU without a gate.

use rf_graph::layer::Role;
use rf_graph::{Activation, RopeStyle};

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::{WeightTable, row};

pub(super) const FALCON: Family = Family {
    name: "falcon",
    config: falcon,
    weights: &[
        &[row(Role::AttentionNorm, "attn_norm").with_bias()],
        rows::FUSED_ATTENTION,
        rows::UNGATED,
    ],
};

/// The larger models have a norm for each of the two branches.
const TWO_NORMS: WeightTable = &[
    &[
        row(Role::AttentionNorm, "attn_norm_2").with_bias(),
        row(Role::FeedForwardNorm, "attn_norm").with_bias(),
    ],
    rows::FUSED_ATTENTION,
    rows::UNGATED,
];

fn falcon(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let has_two_norms = keys.has_tensor("blk.0.attn_norm_2.weight");
    let weights = if has_two_norms { TWO_NORMS } else { weights };
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    config.set_ungated(Activation::GeluTanh);
    config.set_parallel();
    Ok(config)
}
