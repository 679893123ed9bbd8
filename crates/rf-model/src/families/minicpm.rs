//! `MiniCPM`: a Llama with factors on embedding, residual and logits.

use rf_graph::RopeStyle;

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::WeightTable;

pub(super) const MINICPM: Family = Family {
    name: "minicpm",
    config: minicpm,
    weights: &[rows::PRE_NORMS, rows::ATTENTION_OPTIONAL_BIAS, rows::GATED, rows::EXPERTS],
};

/// Old files lack the factors. Those of the first models apply: 12 on the embedding, `1.4/√layers`
/// on the residual, and `256/hidden_size` on the logits.
fn minicpm(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Normal)?;
    let residual_scale = 1.4 / (config.num_layers() as f32).sqrt();
    let residual_scale = keys.factor("residual_scale", residual_scale)?;
    config.embedding_scale = keys.factor("embedding_scale", 12.0)?;
    config.logit_scale = 1.0 / keys.factor("logit_scale", config.hidden_size as f32 / 256.0)?;
    for layer in &mut config.layers {
        layer.residual_scale = residual_scale;
    }
    Ok(config)
}
