//! Qwen 3.5 and Qwen 3 Next: three of four layers are gated delta rules, the fourth has gated
//! attention.

use rf_graph::layer::{DeltaNetSpec, Mixer, QkNormGroup, Role};
use rf_graph::{DeltaDecay, DeltaHeads, RopeStyle};

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, hybrid};
use crate::error::Error;
use crate::keys::Keys;
use crate::rope::RopeSections;
use crate::weights::{WeightRow, WeightTable, row};

/// The weights that all of them have. The norm before the feed-forward layer is named after
/// attention.
const LAYER: &[WeightRow] = &[
    row(Role::AttentionNorm, "attn_norm"),
    row(Role::FeedForwardNorm, "post_attention_norm"),
    row(Role::Query, "attn_q"),
    row(Role::Key, "attn_k"),
    row(Role::Value, "attn_v"),
    row(Role::AttentionOutput, "attn_output"),
    row(Role::MixerInput, "attn_qkv"),
    row(Role::MixerGate, "attn_gate"),
    row(Role::ConvFilter, "ssm_conv1d"),
    row(Role::Decay, "ssm_a").suffix(""),
    row(Role::DecayBias, "ssm_dt").suffix("bias"),
    row(Role::MixerNorm, "ssm_norm"),
    row(Role::MixerOutput, "ssm_out"),
];

const ALPHA_BETA: &[WeightRow] = &[row(Role::Alpha, "ssm_alpha"), row(Role::Beta, "ssm_beta")];

const SHARED_ROUTER: &[WeightRow] = &[row(Role::SharedRouter, "ffn_gate_inp_shexp")];

pub(super) const QWEN35: Family = Family {
    name: "qwen35",
    config: |keys, weights| qwen35(keys, weights, true),
    weights: &[LAYER, ALPHA_BETA, rows::QK_NORM, rows::GATED],
};

pub(super) const QWEN35_MOE: Family = Family {
    name: "qwen35moe",
    config: |keys, weights| qwen35(keys, weights, true),
    weights: &[LAYER, ALPHA_BETA, rows::QK_NORM, rows::EXPERTS, rows::SHARED_EXPERT, SHARED_ROUTER],
};

pub(super) const QWEN3_NEXT: Family = Family {
    name: "qwen3next",
    config: |keys, weights| qwen35(keys, weights, false),
    weights: &[
        LAYER,
        &[row(Role::BetaAlpha, "ssm_ba")],
        rows::QK_NORM,
        rows::EXPERTS,
        rows::SHARED_EXPERT,
        SHARED_ROUTER,
    ],
};

/// `interleaved` is the order of value heads.
fn qwen35(keys: &Keys<'_>, weights: WeightTable, interleaved: bool) -> Result<ModelConfig, Error> {
    let delta = DeltaNetSpec {
        heads: heads(keys, interleaved)?,
        decay: DeltaDecay::Head,
        gate_rank: None,
        taps: keys.small_size("ssm.conv_kernel")?,
        first_state: 0,
    };
    let period = keys.optional_size("full_attention_interval")?.unwrap_or(4);
    let listed = keys.flags("attention.recurrent_layers")?;
    let mut config = hybrid(keys, weights, RopeStyle::Neox, |layer, _| {
        let is_recurrent = match &listed {
            Some(flags) => flags.get(layer).copied().unwrap_or(false),
            None => !(layer + 1).is_multiple_of(period),
        };
        Ok(is_recurrent.then_some(Mixer::DeltaNet(delta)))
    })?;
    config.set_qk_norm(QkNormGroup::Head, false);
    config.set_rope_sections(keys, RopeSections::Interleaved)?;
    for attention in config.attentions_mut() {
        attention.gated = true;
    }
    Ok(config)
}

fn heads(keys: &Keys<'_>, interleaved: bool) -> Result<DeltaHeads, Error> {
    let num_key_heads = keys.small_size("ssm.group_count")?;
    let num_value_heads = keys.small_size("ssm.time_step_rank")?;
    let key_dim = keys.small_size("ssm.state_size")?;
    let inner_size = keys.size("ssm.inner_size")?;
    if !num_value_heads.is_multiple_of(num_key_heads) {
        let reason = format!("it must divide the {num_value_heads} value heads");
        return Err(keys.invalid("ssm.group_count", &num_key_heads, &reason));
    }
    if !inner_size.is_multiple_of(num_value_heads) {
        let reason = format!("it must be a multiple of the {num_value_heads} value heads");
        return Err(keys.invalid("ssm.inner_size", &inner_size, &reason));
    }
    let value_dim = inner_size / num_value_heads;
    Ok(DeltaHeads { num_key_heads, num_value_heads, key_dim, value_dim, interleaved })
}
