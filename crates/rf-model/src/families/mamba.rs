//! Mamba 2 and the hybrids with it: Nemotron H, Granite 4, Falcon H1.

use rf_graph::layer::{MambaSpec, Mixer, Role};
use rf_graph::{Activation, GateFunction, RopeStyle, StateSpaceHeads};

use super::family::Family;
use super::granite::with_factors;
use super::rows;
use crate::config::{ModelConfig, hybrid, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::{WeightRow, WeightTable, row};

const IN_PROJECTION: &[Role] = &[Role::MixerGate, Role::MixerInput, Role::TimeStep];

const MAMBA: &[WeightRow] = &[
    row(Role::MixerGate, "ssm_in").part_of(IN_PROJECTION),
    row(Role::MixerInput, "ssm_in").part_of(IN_PROJECTION),
    row(Role::TimeStep, "ssm_in").part_of(IN_PROJECTION),
    row(Role::ConvFilter, "ssm_conv1d"),
    row(Role::ConvBias, "ssm_conv1d").suffix("bias").optional(),
    row(Role::DecayBias, "ssm_dt").suffix("bias"),
    row(Role::Decay, "ssm_a").suffix(""),
    row(Role::Skip, "ssm_d").suffix(""),
    row(Role::MixerNorm, "ssm_norm").optional(),
    row(Role::MixerOutput, "ssm_out"),
];

pub(super) const MAMBA2: Family = Family {
    name: "mamba2",
    config: mamba2,
    weights: &[&[row(Role::AttentionNorm, "attn_norm")], MAMBA],
};

/// The only norm of a layer.
const ONE_NORM: &[WeightRow] =
    &[row(Role::AttentionNorm, "attn_norm"), row(Role::FeedForwardNorm, "attn_norm")];

pub(super) const NEMOTRON_H: Family = Family {
    name: "nemotron_h",
    config: nemotron_h,
    weights: &[ONE_NORM, MAMBA, rows::ATTENTION_OPTIONAL_BIAS, rows::UNGATED],
};

pub(super) const NEMOTRON_H_MOE: Family = Family {
    name: "nemotron_h_moe",
    config: nemotron_h,
    weights: &[
        ONE_NORM,
        MAMBA,
        rows::ATTENTION_OPTIONAL_BIAS,
        &[
            row(Role::Router, "ffn_gate_inp"),
            row(Role::ExpertUp, "ffn_up_exps"),
            row(Role::ExpertDown, "ffn_down_exps"),
            row(Role::SharedUp, "ffn_up_shexp"),
            row(Role::SharedDown, "ffn_down_shexp"),
        ],
        rows::SELECTION_BIAS,
    ],
};

pub(super) const GRANITE_HYBRID: Family = Family {
    name: "granitehybrid",
    config: granite_hybrid,
    weights: &[
        rows::PRE_NORMS,
        MAMBA,
        rows::ATTENTION_OPTIONAL_BIAS,
        rows::GATED_OPTIONAL_BIAS,
        rows::EXPERTS,
        rows::SHARED_EXPERT,
    ],
};

/// Attention and a state space in every layer.
pub(super) const FALCON_H1: Family = Family {
    name: "falcon-h1",
    config: falcon_h1,
    weights: &[
        &[
            row(Role::AttentionNorm, "attn_norm"),
            row(Role::FeedForwardNorm, "ffn_norm").suffix(""),
            row(Role::FeedForwardNorm, "ffn_norm"),
        ],
        MAMBA,
        rows::ATTENTION_OPTIONAL_BIAS,
        rows::GATED_OPTIONAL_BIAS,
    ],
};

fn mamba2(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mamba = mamba(keys)?;
    let mixer = |_, _| Ok(Some(Mixer::Mamba(mamba)));
    let mut config = hybrid(keys, weights, RopeStyle::Neox, mixer)?;
    for layer in &mut config.layers {
        (layer.dense, layer.experts) = (None, None);
    }
    Ok(config)
}

/// A layer has one part: attention if it has key and value heads, a feed-forward layer if that has
/// a width, otherwise a state space. There are no positions.
fn nemotron_h(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mamba = mamba(keys)?;
    let num_blocks = keys.size("block_count")?;
    let sizes = keys.counts_per_layer("feed_forward_length", num_blocks)?;
    let sizes = sizes.ok_or_else(|| keys.missing("feed_forward_length"))?;
    let mut config = hybrid(keys, weights, RopeStyle::Neox, |layer, num_kv_heads| {
        let is_feed_forward = sizes.get(layer).is_some_and(|size| *size > 0);
        Ok(match num_kv_heads {
            0 if is_feed_forward => Some(Mixer::None),
            0 => Some(Mixer::Mamba(mamba)),
            _ => None,
        })
    })?;
    let is_sigmoid = keys.count("expert_gating_func")? == 0;
    for layer in &mut config.layers {
        if layer.mixer != Mixer::None {
            (layer.dense, layer.experts) = (None, None);
        }
        if let Some(experts) = &mut layer.experts {
            (experts.activation, experts.gated) = (Activation::SquaredRelu, false);
            if is_sigmoid {
                experts.gate = GateFunction::Sigmoid;
            }
        }
    }
    config.set_ungated(Activation::SquaredRelu);
    for attention in config.attentions_mut() {
        attention.rope = None;
    }
    Ok(config)
}

/// Layers without key and value heads are state spaces.
fn granite_hybrid(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mamba = mamba(keys)?;
    let config = hybrid(keys, weights, RopeStyle::Normal, |_, num_kv_heads| {
        Ok((num_kv_heads == 0).then_some(Mixer::Mamba(mamba)))
    })?;
    let mut config = with_factors(keys, config)?;
    if !keys.flag("rope.scaling.finetuned")?.unwrap_or(true) {
        for attention in config.attentions_mut() {
            attention.rope = None;
        }
    }
    Ok(config)
}

fn falcon_h1(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mamba = mamba(keys)?;
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    for (index, layer) in config.layers.iter_mut().enumerate() {
        if let Mixer::Attention(attention) = &layer.mixer {
            layer.mixer = Mixer::AttentionAndMamba(attention.clone(), mamba);
            layer.set_first_state(index * layer.states().len());
        }
    }
    Ok(config)
}

fn mamba(keys: &Keys<'_>) -> Result<MambaSpec, Error> {
    let num_heads = keys.small_size("ssm.time_step_rank")?;
    let num_groups = keys.small_size("ssm.group_count")?;
    let state_dim = keys.small_size("ssm.state_size")?;
    let inner_size = keys.size("ssm.inner_size")?;
    if !num_heads.is_multiple_of(num_groups) {
        let reason = format!("it must divide the {num_heads} heads");
        return Err(keys.invalid("ssm.group_count", &num_groups, &reason));
    }
    if !inner_size.is_multiple_of(num_heads) {
        let reason = format!("it must be a multiple of the {num_heads} heads");
        return Err(keys.invalid("ssm.inner_size", &inner_size, &reason));
    }
    let head_dim = inner_size / num_heads;
    let heads = StateSpaceHeads { num_heads, head_dim, num_groups, state_dim };
    Ok(MambaSpec { heads, taps: keys.small_size("ssm.conv_kernel")?, first_state: 0 })
}
