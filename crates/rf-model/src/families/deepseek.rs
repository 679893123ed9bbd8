//! The first `DeepSeek`: a Llama with experts after some dense layers.

use rf_graph::RopeStyle;

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::WeightTable;

pub(super) const DEEPSEEK: Family = Family {
    name: "deepseek",
    config: deepseek,
    weights: &[rows::PRE_NORMS, rows::ATTENTION, rows::GATED, rows::EXPERTS, rows::SHARED_EXPERT],
};

fn deepseek(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Normal)?;
    config.set_leading_dense(keys)?;
    config.set_unnormalized_router();
    Ok(config)
}
