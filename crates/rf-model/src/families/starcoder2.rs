//! `StarCoder` 2: layer norms, biases on every matrix, GELU without a gate.

use rf_graph::{Activation, RopeStyle};

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::WeightTable;

pub(super) const STARCODER2: Family = Family {
    name: "starcoder2",
    config: starcoder2,
    weights: &[rows::PRE_NORMS_WITH_BIAS, rows::ATTENTION_OPTIONAL_BIAS, rows::UNGATED],
};

fn starcoder2(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    config.set_ungated(Activation::GeluTanh);
    Ok(config)
}
