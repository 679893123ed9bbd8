//! Arcee (AFM): a Llama with a squared `ReLU` without a gate.

use rf_graph::{Activation, RopeStyle};

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::WeightTable;

pub(super) const ARCEE: Family = Family {
    name: "arcee",
    config: arcee,
    weights: &[rows::PRE_NORMS, rows::ATTENTION, rows::UNGATED],
};

fn arcee(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Normal)?;
    config.set_ungated(Activation::SquaredRelu);
    Ok(config)
}
