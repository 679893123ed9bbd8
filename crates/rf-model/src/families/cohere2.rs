//! Command R7B: attention and feed-forward in parallel, windows with RoPE, full layers without.

use rf_graph::RopeStyle;
use rf_graph::layer::Role;

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::{WeightTable, row};

pub(super) const COHERE2: Family = Family {
    name: "cohere2",
    config: cohere2,
    weights: &[&[row(Role::AttentionNorm, "attn_norm")], rows::ATTENTION, rows::GATED],
};

fn cohere2(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Normal)?;
    config.logit_scale = keys.factor("logit_scale", 1.0)?;
    let windowed = config.set_windows(keys, None, 4)?;
    for layer in &mut config.layers {
        layer.parallel = true;
    }
    for (attention, windowed) in config.attentions_mut().zip(windowed) {
        if !windowed {
            attention.rope = None;
        }
    }
    Ok(config)
}
