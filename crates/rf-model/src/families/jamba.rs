//! Mamba 1, and Jamba, which has attention in some layers and experts in others.

use rf_graph::RopeStyle;
use rf_graph::layer::{Mixer, Role, ScanSpec};

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, hybrid};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::{WeightRow, WeightTable, row};

const IN_PROJECTION: &[Role] = &[Role::MixerInput, Role::MixerGate];

const IN: &[WeightRow] = &[
    row(Role::MixerInput, "ssm_in").part_of(IN_PROJECTION),
    row(Role::MixerGate, "ssm_in").part_of(IN_PROJECTION),
];

/// The weights of a scan, apart from its first projection.
pub(super) const SCAN: &[WeightRow] = &[
    row(Role::ConvFilter, "ssm_conv1d"),
    row(Role::ConvBias, "ssm_conv1d").suffix("bias").optional(),
    row(Role::ScanProjection, "ssm_x"),
    row(Role::TimeStepNorm, "ssm_dt_norm").suffix("").optional(),
    row(Role::StateInputNorm, "ssm_b_norm").suffix("").optional(),
    row(Role::StateOutputNorm, "ssm_c_norm").suffix("").optional(),
    row(Role::TimeStepNorm, "ssm_dt_norm").optional(),
    row(Role::StateInputNorm, "ssm_b_norm").optional(),
    row(Role::StateOutputNorm, "ssm_c_norm").optional(),
    row(Role::TimeStep, "ssm_dt").with_optional_bias(),
    row(Role::DecayBias, "ssm_dt").suffix("bias"),
    row(Role::Decay, "ssm_a").suffix(""),
    row(Role::Skip, "ssm_d").suffix(""),
    row(Role::MixerOutput, "ssm_out"),
];

pub(super) const MAMBA: Family = Family {
    name: "mamba",
    config: mamba,
    weights: &[&[row(Role::AttentionNorm, "attn_norm")], IN, SCAN],
};

pub(super) const JAMBA: Family = Family {
    name: "jamba",
    config: jamba,
    weights: &[rows::PRE_NORMS, IN, SCAN, rows::ATTENTION, rows::GATED, rows::EXPERTS],
};

/// Some models (Falcon Mamba) normalise the inputs of the scan, without weights.
fn mamba(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let normalized = keys.flag("ssm.dt_b_c_rms")?.unwrap_or(false);
    let scan = ScanSpec { normalized, ..scan(keys)? };
    let mut config = hybrid(keys, weights, RopeStyle::Neox, |_, _| Ok(Some(Mixer::Scan(scan))))?;
    for layer in &mut config.layers {
        (layer.dense, layer.experts) = (None, None);
    }
    Ok(config)
}

/// Layers without key and value heads are scans, whose inputs have norms. There are no positions.
/// Layers without a router are dense.
fn jamba(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let scan = ScanSpec { normalized: true, ..scan(keys)? };
    let mut config = hybrid(keys, weights, RopeStyle::Neox, |_, num_kv_heads| {
        Ok((num_kv_heads == 0).then_some(Mixer::Scan(scan)))
    })?;
    config.dense_layers(keys, |layer| {
        !keys.has_tensor(&format!("blk.{layer}.ffn_gate_inp.weight"))
    })?;
    for attention in config.attentions_mut() {
        attention.rope = None;
    }
    for experts in config.layers.iter_mut().filter_map(|layer| layer.experts.as_mut()) {
        experts.normalize = false;
    }
    Ok(config)
}

/// The scan of every layer that has one, without norms.
pub(super) fn scan(keys: &Keys<'_>) -> Result<ScanSpec, Error> {
    Ok(ScanSpec {
        channels: keys.small_size("ssm.inner_size")?,
        state_dim: keys.small_size("ssm.state_size")?,
        time_step_rank: keys.small_size("ssm.time_step_rank")?,
        normalized: false,
        heads: None,
        taps: keys.small_size("ssm.conv_kernel")?,
        first_state: 0,
    })
}
