//! Encoders of Llama's layers: `EuroBERT` and Llama Embed Nemotron.

use rf_graph::RopeStyle;

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::WeightTable;

pub(super) const EUROBERT: Family = Family {
    name: "eurobert",
    config: eurobert,
    weights: &[rows::PRE_NORMS, rows::ATTENTION, rows::GATED],
};

/// Files say that attention is not causal.
pub(super) const LLAMA_EMBED: Family = Family {
    name: "llama-embed",
    config: llama_embed,
    weights: &[rows::PRE_NORMS, rows::ATTENTION_OPTIONAL_BIAS, rows::GATED_OPTIONAL_BIAS],
};

fn eurobert(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    config.set_encoder(keys)?;
    Ok(config)
}

fn llama_embed(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Normal)?;
    config.is_encoder = true;
    Ok(config)
}
