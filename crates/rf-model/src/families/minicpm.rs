//! `MiniCPM`: a Llama with factors on embedding, residual and logits. `MiniCPM` 3 has latent
//! attention.

use rf_graph::RopeStyle;
use rf_graph::layer::{LatentSpec, Mixer};

use super::deepseek2::{LATENT_ATTENTION, latent_attention};
use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, hybrid, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::WeightTable;

pub(super) const MINICPM: Family = Family {
    name: "minicpm",
    config: minicpm,
    weights: &[rows::PRE_NORMS, rows::ATTENTION_OPTIONAL_BIAS, rows::GATED, rows::EXPERTS],
};

pub(super) const MINICPM3: Family = Family {
    name: "minicpm3",
    config: minicpm3,
    weights: &[rows::PRE_NORMS, LATENT_ATTENTION, rows::GATED],
};

fn minicpm(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    with_factors(keys, transformer(keys, weights, RopeStyle::Normal)?)
}

/// The reference expands the latents to keys and values of each head.
fn minicpm3(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let latent = latent_attention(keys, RopeStyle::Neox, 0)?;
    let mixer = |kv_layer, _| Ok(Some(Mixer::Latent(LatentSpec { kv_layer, ..latent.clone() })));
    let mut config = hybrid(keys, weights, RopeStyle::Neox, mixer)?;
    config.set_long_rope(keys, latent.shared_dim, RopeStyle::Neox)?;
    with_factors(keys, config)
}

/// Old files lack the factors. Those of the first models apply: 12 on the embedding, `1.4/√layers`
/// on the residual, and `256/hidden_size` on the logits.
fn with_factors(keys: &Keys<'_>, mut config: ModelConfig) -> Result<ModelConfig, Error> {
    let residual_scale = 1.4 / (config.num_layers() as f32).sqrt();
    let residual_scale = keys.factor("residual_scale", residual_scale)?;
    config.embedding_scale = keys.factor("embedding_scale", 12.0)?;
    config.logit_scale = 1.0 / keys.factor("logit_scale", config.hidden_size as f32 / 256.0)?;
    for layer in &mut config.layers {
        layer.residual_scale = residual_scale;
    }
    Ok(config)
}
