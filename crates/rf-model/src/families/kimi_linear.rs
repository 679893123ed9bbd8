//! Kimi Linear: three of four layers are delta rules with a decay per channel (KDA), the fourth
//! attends to a latent without positions. Experts follow some dense layers.

use rf_graph::layer::{DeltaNetSpec, LatentSpec, Mixer, Role};
use rf_graph::{DeltaDecay, DeltaHeads, RopeStyle};

use super::deepseek2::{LATENT_ATTENTION, latent_attention};
use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, hybrid};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::{WeightRow, WeightTable, row};

/// The weights of a delta rule, apart from its gates.
pub(super) const DELTA: &[WeightRow] = &[
    row(Role::ConvFilter, "ssm_conv1d_q").followed_by(&["ssm_conv1d_k", "ssm_conv1d_v"]),
    row(Role::Beta, "ssm_beta"),
    row(Role::Decay, "ssm_a").suffix(""),
    row(Role::DecayBias, "ssm_dt").suffix("bias"),
    row(Role::MixerNorm, "ssm_norm"),
    row(Role::MixerOutput, "attn_output"),
];

/// The gates are projections of low rank.
const GATES: &[WeightRow] = &[
    row(Role::AlphaLatent, "ssm_f_a"),
    row(Role::Alpha, "ssm_f_b"),
    row(Role::MixerGateLatent, "ssm_g_a"),
    row(Role::MixerGate, "ssm_g_b"),
];

pub(super) const KIMI_LINEAR: Family = Family {
    name: "kimi-linear",
    config: kimi_linear,
    weights: &[
        rows::PRE_NORMS,
        rows::ATTENTION,
        DELTA,
        GATES,
        LATENT_ATTENTION,
        rows::GATED,
        rows::EXPERTS,
        rows::SELECTION_BIAS,
        rows::SHARED_EXPERT,
    ],
};

fn kimi_linear(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let delta = delta(keys, DeltaDecay::Channel)?;
    let delta = DeltaNetSpec { gate_rank: Some(delta.heads.key_dim), ..delta };
    let mut config = delta_and_latent(keys, weights, delta, |layer| {
        let latent = latent_attention(keys, RopeStyle::Normal, layer)?;
        Ok(LatentSpec { rope: None, ..latent })
    })?;
    // Whatever the key says.
    for experts in config.experts_mut() {
        experts.normalize = true;
    }
    Ok(config)
}

/// The delta rule of every layer that has one, whose gates have no latent.
pub(super) fn delta(keys: &Keys<'_>, decay: DeltaDecay) -> Result<DeltaNetSpec, Error> {
    let num_heads = keys.small_size("attention.head_count")?;
    let head_dim = keys.small_size("kda.head_dim")?;
    let heads = DeltaHeads {
        num_key_heads: num_heads,
        num_value_heads: num_heads,
        key_dim: head_dim,
        value_dim: head_dim,
        interleaved: false,
    };
    let taps = keys.small_size("ssm.conv_kernel")?;
    Ok(DeltaNetSpec { heads, decay, gate_rank: None, taps, first_state: 0 })
}

/// Layers without key and value heads are delta rules, the others attend to latents. Sigmoids
/// select experts after some dense layers.
pub(super) fn delta_and_latent(
    keys: &Keys<'_>,
    weights: WeightTable,
    delta: DeltaNetSpec,
    latent: impl Fn(usize) -> Result<LatentSpec, Error>,
) -> Result<ModelConfig, Error> {
    let mut config = hybrid(keys, weights, RopeStyle::Normal, |layer, num_kv_heads| {
        Ok(Some(match num_kv_heads {
            0 => Mixer::DeltaNet(delta),
            _ => Mixer::Latent(latent(layer)?),
        }))
    })?;
    let attend = config.layers.iter_mut().filter(|layer| layer.kv_layer().is_some());
    for (index, layer) in attend.enumerate() {
        layer.set_kv_layer(index);
    }
    config.set_leading_dense(keys)?;
    config.set_sigmoid_router(keys)?;
    Ok(config)
}
