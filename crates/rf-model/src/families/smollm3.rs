//! `SmolLM` 3: a Llama whose every fourth layer has no RoPE.

use rf_graph::RopeStyle;

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::WeightTable;

pub(super) const SMOLLM3: Family = Family {
    name: "smollm3",
    config: smollm3,
    weights: &[rows::PRE_NORMS, rows::ATTENTION, rows::GATED],
};

fn smollm3(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Normal)?;
    for attention in config.attentions_mut().skip(3).step_by(4) {
        attention.rope = None;
    }
    Ok(config)
}
