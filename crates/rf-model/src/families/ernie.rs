//! ERNIE 4.5, dense and with experts.

use rf_graph::RopeStyle;

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::WeightTable;

pub(super) const ERNIE4_5: Family = Family {
    name: "ernie4_5",
    config: |keys, weights| transformer(keys, weights, RopeStyle::Normal),
    weights: &[rows::PRE_NORMS, rows::ATTENTION_OPTIONAL_BIAS, rows::GATED],
};

pub(super) const ERNIE4_5_MOE: Family = Family {
    name: "ernie4_5-moe",
    config: ernie4_5_moe,
    weights: &[
        rows::PRE_NORMS,
        rows::ATTENTION_OPTIONAL_BIAS,
        rows::GATED,
        rows::EXPERTS,
        rows::SELECTION_BIAS,
        rows::SHARED_EXPERT,
    ],
};

fn ernie4_5_moe(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Normal)?;
    let leading_dense = keys.count("leading_dense_block_count")?;
    let step = keys.optional_size("interleave_moe_layer_step")?.unwrap_or(1);
    config
        .dense_layers(keys, |layer| layer < leading_dense || !(layer + 1).is_multiple_of(step))?;
    Ok(config)
}
