//! DBRX: bounded queries, keys and values, layer norms, experts everywhere.

use rf_graph::RopeStyle;
use rf_graph::layer::Role;

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::{WeightTable, row};

pub(super) const DBRX: Family = Family {
    name: "dbrx",
    config: dbrx,
    weights: &[
        &[row(Role::AttentionNorm, "attn_norm"), row(Role::FeedForwardNorm, "attn_output_norm")],
        rows::ATTENTION,
        rows::EXPERTS,
    ],
};

fn dbrx(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    config.set_clamp(keys)?;
    Ok(config)
}
