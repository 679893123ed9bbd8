//! `PLaMo` 2 and 3: norms before and after, a norm of queries and keys, fused matrices. `PLaMo` 2
//! has layers with a state space whose inputs are normalised.

use rf_graph::RopeStyle;
use rf_graph::layer::{Mixer, QkNormGroup, Role, ScanSpec};

use super::family::Family;
use super::jamba::{SCAN, scan};
use super::rows;
use crate::config::{ModelConfig, hybrid, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::{WeightRow, WeightTable, row};

pub(super) const PLAMO2: Family = Family {
    name: "plamo2",
    config: plamo2,
    weights: &[
        rows::PRE_NORMS,
        POST_NORMS,
        rows::FUSED_ATTENTION,
        rows::QK_NORM,
        &[row(Role::MixerInput, "ssm_in")],
        SCAN,
        rows::FUSED_GATED,
    ],
};

pub(super) const PLAMO3: Family = Family {
    name: "plamo3",
    config: plamo3,
    weights: &[
        rows::PRE_NORMS,
        POST_NORMS,
        rows::FUSED_ATTENTION,
        rows::QK_NORM,
        rows::FUSED_GATED,
    ],
};

const POST_NORMS: &[WeightRow] = &[
    row(Role::PostAttentionNorm, "post_attention_norm").suffix(""),
    row(Role::PostFeedForwardNorm, "post_ffw_norm").suffix(""),
    row(Role::PostAttentionNorm, "post_attention_norm"),
    row(Role::PostFeedForwardNorm, "post_ffw_norm"),
];

/// Layers without key and value heads are state spaces.
fn plamo2(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let scan = scan(keys)?;
    let num_heads = keys.small_size("ssm.time_step_rank")?;
    if !scan.channels.is_multiple_of(num_heads) {
        let reason = format!("it must be a multiple of the {num_heads} heads");
        return Err(keys.invalid("ssm.inner_size", &scan.channels, &reason));
    }
    // The width of the latent follows from that of the model.
    let time_step_rank = (keys.size("embedding_length")? / 16).max(64);
    let scan = ScanSpec { heads: Some(num_heads), time_step_rank, normalized: true, ..scan };
    let mut config = hybrid(keys, weights, RopeStyle::Neox, |_, num_kv_heads| {
        Ok((num_kv_heads == 0).then_some(Mixer::Scan(scan)))
    })?;
    config.set_qk_norm(QkNormGroup::EachHead, false);
    Ok(config)
}

/// Layers with a window have a RoPE base of their own.
fn plamo3(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    config.set_qk_norm(QkNormGroup::Head, false);
    let windowed = config.set_windows(keys, None, 0)?;
    let theta = keys.rope_theta("rope.freq_base_swa", 10_000.0)?;
    let attentions = config.attentions_mut().zip(windowed);
    for (attention, _) in attentions.filter(|(_, windowed)| *windowed) {
        let rope = keys.rope(attention.head_dim)?.unscaled(theta);
        attention.rope = Some(rope.build(RopeStyle::Neox, None));
    }
    Ok(config)
}
