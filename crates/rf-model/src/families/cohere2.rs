//! Command R and R7B: attention and feed-forward in parallel, in R7B windows with
//! RoPE, full layers without.

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

pub(super) const COMMAND_R: Family = Family { name: "command-r", config: command_r, ..COHERE2 };

fn command_r(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Normal)?;
    config.logit_scale = keys.factor("logit_scale", 1.0)?;
    config.set_parallel();
    Ok(config)
}

fn cohere2(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = command_r(keys, weights)?;
    let windowed = config.set_windows(keys, None, 4)?;
    for (attention, windowed) in config.attentions_mut().zip(windowed) {
        if !windowed {
            attention.rope = None;
        }
    }
    Ok(config)
}
