//! Nemotron 3 and 4, Minitron: layer norms, RoPE of a part of each head, squared `ReLU` without a
//! gate.

use rf_graph::{Activation, RopeStyle};

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::WeightTable;

pub(super) const NEMOTRON: Family = Family {
    name: "nemotron",
    config: nemotron,
    weights: &[rows::PRE_NORMS_WITH_BIAS, rows::ATTENTION_OPTIONAL_BIAS, rows::UNGATED],
};

fn nemotron(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    config.set_ungated(Activation::SquaredRelu);
    Ok(config)
}
