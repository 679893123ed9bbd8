//! `ModernBERT`: norms before attention and feed-forward, GELU with a gate, symmetric windows.

use rf_graph::layer::Role;
use rf_graph::{Activation, RopeStyle};

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, ScoreHead, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::{WeightTable, row};

pub(super) const MODERN_BERT: Family = Family {
    name: "modern-bert",
    config: modern_bert,
    weights: &[
        &[
            // The norm of the embedding is that of the first layer.
            row(Role::AttentionNorm, "attn_norm").optional(),
            row(Role::FeedForwardNorm, "ffn_norm"),
        ],
        rows::ATTENTION,
        rows::FUSED_GATED,
    ],
};

/// Every third layer sees all tokens, beginning with the first one. The others have a window and a
/// RoPE of their own.
fn modern_bert(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    config.set_encoder(keys)?;
    config.embedding_norm = true;
    config.set_activation(activation(keys)?);
    if keys.has_tensor("cls.output.weight") {
        config.score_head = ScoreHead::Mean;
        if config.head_dim() == 0 || !config.hidden_size.is_multiple_of(config.head_dim()) {
            let reason = "it must divide embedding_length";
            return Err(keys.unsupported("attention.key_length", &config.head_dim(), reason));
        }
    }
    let Some(window) = keys.optional_size("attention.sliding_window")? else { return Ok(config) };
    let period = keys.optional_size("attention.sliding_window_pattern")?.unwrap_or(3);
    let layers = config.attentions_mut().enumerate();
    for (_, attention) in layers.filter(|(layer, _)| !layer.is_multiple_of(period)) {
        let rope = keys.rope(attention.head_dim)?;
        let rope = rope.unscaled(keys.rope_theta("rope.freq_base_swa", rope.theta)?);
        attention.rope = Some(rope.build(RopeStyle::Neox, None));
        attention.window = Some(window);
    }
    Ok(config)
}

fn activation(keys: &Keys<'_>) -> Result<Activation, Error> {
    const NAME: &str = "hidden_activation";
    match keys.text(NAME)? {
        None | Some("gelu") => Ok(Activation::GeluErf),
        Some("silu") => Ok(Activation::Silu),
        Some(other) => Err(keys.unsupported(NAME, &other, "supported are gelu and silu")),
    }
}
