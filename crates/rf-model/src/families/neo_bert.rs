//! `NeoBERT`: an encoder of Llama's layers with q, k and v, and gate and up, in one tensor each.

use rf_graph::RopeStyle;

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, OutputNorm, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::WeightTable;

pub(super) const NEO_BERT: Family = Family {
    name: "neo-bert",
    config: neo_bert,
    weights: &[rows::PRE_NORMS, rows::ATTENTION, rows::FUSED_GATED],
};

fn neo_bert(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Normal)?;
    config.set_encoder(keys)?;
    config.output_norm = OutputNorm::Tensor("enc.output_norm");
    Ok(config)
}
