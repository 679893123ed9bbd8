//! Command R, R7B and A, dense and with experts: attention and feed-forward in parallel, in all but
//! Command R windows with RoPE and full layers without.

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

pub(super) const COMMAND_R: Family = Family { name: "command-r", config: parallel, ..COHERE2 };

pub(super) const COHERE2_MOE: Family = Family {
    name: "cohere2moe",
    config: cohere2_moe,
    weights: &[
        &[row(Role::AttentionNorm, "attn_norm")],
        rows::ATTENTION,
        rows::GATED,
        rows::EXPERTS,
        rows::SHARED_EXPERT,
    ],
};

fn cohere2(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = parallel(keys, weights)?;
    let windowed = config.set_windows(keys, None, 4)?;
    for (attention, windowed) in config.attentions_mut().zip(windowed) {
        if !windowed {
            attention.rope = None;
        }
    }
    Ok(config)
}

fn parallel(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Normal)?;
    config.logit_scale = keys.factor("logit_scale", 1.0)?;
    for layer in &mut config.layers {
        layer.parallel = true;
    }
    Ok(config)
}

/// The first layers are dense, and have RoPE whether they have a window or not. With a shared
/// expert, the output is the mean of its output and that of the others.
fn cohere2_moe(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = parallel(keys, weights)?;
    let windowed = config.set_windows_after_full(keys)?;
    config.rotate_only_windows(&windowed);
    config.set_leading_dense(keys)?;
    config.set_sigmoid_router(keys)?;
    for experts in config.experts_mut().filter(|e| e.shared_intermediate_size.is_some()) {
        experts.output_scale = 0.5;
    }
    let rope = keys.rope(config.head_dim())?.build(RopeStyle::Normal, None);
    let leading_dense = keys.count("leading_dense_block_count")?;
    for attention in config.attentions_mut().take(leading_dense) {
        attention.rope = Some(rope.clone());
    }
    Ok(config)
}
