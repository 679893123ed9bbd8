//! `OLMo` 1: layer norms without weights, and bounded queries, keys and values.

use rf_graph::RopeStyle;
use rf_graph::layer::Role;

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, OutputNorm, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::{WeightTable, unweighted};

pub(super) const OLMO: Family = Family {
    name: "olmo",
    config: olmo,
    weights: &[
        &[unweighted(Role::AttentionNorm), unweighted(Role::FeedForwardNorm)],
        rows::ATTENTION,
        rows::GATED,
    ],
};

fn olmo(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Normal)?;
    config.output_norm = OutputNorm::Unweighted;
    config.set_clamp(keys)?;
    Ok(config)
}
