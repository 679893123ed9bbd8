//! Gemma 1 to 3 and `EmbeddingGemma`: GELU; from Gemma 2 on norms before and after, and alternating
//! windows.

use rf_graph::layer::QkNormGroup;
use rf_graph::{Activation, RopeStyle};

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::WeightTable;

pub(super) const GEMMA: Family = Family {
    name: "gemma",
    config: gemma,
    weights: &[rows::PRE_NORMS, rows::ATTENTION, rows::GATED],
};

pub(super) const GEMMA2: Family = Family {
    name: "gemma2",
    config: gemma2,
    weights: &[rows::PRE_NORMS, rows::POST_NORMS, rows::ATTENTION, rows::GATED],
};

pub(super) const GEMMA3: Family = Family {
    name: "gemma3",
    config: gemma3,
    weights: &[rows::PRE_NORMS, rows::POST_NORMS, rows::ATTENTION, rows::QK_NORM, rows::GATED],
};

/// Gemma 3 as an encoder.
pub(super) const GEMMA_EMBEDDING: Family =
    Family { name: "gemma-embedding", config: gemma_embedding, ..GEMMA3 };

fn gemma(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    config.embedding_scale = (config.hidden_size as f32).sqrt();
    config.set_activation(Activation::GeluTanh);
    Ok(config)
}

/// Every other layer has a window; scores and logits are capped.
fn gemma2(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = gemma(keys, weights)?;
    config.set_windows(keys, Some(4096), 2)?;
    config.logit_softcap = keys.softcap("final_logit_softcapping", Some(30.0))?;
    let softcap = keys.softcap("attn_logit_softcapping", Some(50.0))?;
    for attention in config.attentions_mut() {
        attention.softcap = softcap;
    }
    set_scale_of_27b(&mut config, 46);
    Ok(config)
}

/// Five of six layers have a window and a RoPE of their own, which is not scaled.
fn gemma3(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = gemma(keys, weights)?;
    config.set_qk_norm(QkNormGroup::Head, false);
    config.logit_softcap = keys.softcap("final_logit_softcapping", None)?;
    let windowed = config.set_windows(keys, None, 6)?;
    let theta = keys.rope_theta("rope.freq_base_swa", 10_000.0)?;
    let attentions = config.attentions_mut().zip(windowed);
    for (attention, _) in attentions.filter(|(_, windowed)| *windowed) {
        let rope = keys.rope(attention.head_dim)?.unscaled(theta);
        attention.rope = Some(rope.build(RopeStyle::Neox, None));
    }
    config.set_non_causal_media(|_| true);
    set_scale_of_27b(&mut config, 62);
    Ok(config)
}

fn gemma_embedding(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = gemma3(keys, weights)?;
    config.set_encoder(keys)?;
    Ok(config)
}

/// The 27 B models, known by their number of layers, divide scores by `√(hidden_size / num_heads)`,
/// which is not their head size.
fn set_scale_of_27b(config: &mut ModelConfig, num_layers: usize) {
    if config.num_layers() == num_layers {
        let hidden_size = config.hidden_size;
        for attention in config.attentions_mut() {
            let width = hidden_size / attention.num_heads;
            attention.scale = 1.0 / (width as f32).sqrt();
        }
    }
}
