//! `DeepSeek` 2, 3, GLM 4.7 Flash and Mistral 4: latent attention, and experts after some dense
//! layers.

use rf_graph::layer::{LatentSpec, Mixer, Role};
use rf_graph::{GateFunction, PositionScale, Rope, RopeStyle};

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, hybrid};
use crate::error::Error;
use crate::keys::Keys;
use crate::rope::RopeScaling;
use crate::weights::{WeightRow, WeightTable, row};

pub(super) const DEEPSEEK2: Family =
    Family { name: "deepseek2", config: deepseek2, weights: WEIGHTS };

pub(super) const MISTRAL4: Family =
    Family { name: "mistral4", config: deepseek2, weights: WEIGHTS };

const WEIGHTS: WeightTable = &[
    rows::PRE_NORMS,
    LATENT_ATTENTION,
    rows::GATED,
    rows::EXPERTS,
    rows::SELECTION_BIAS,
    rows::SHARED_EXPERT,
];

/// Older files have the matrices of a head one after the other in one tensor.
pub(super) const LATENT_ATTENTION: &[WeightRow] = &[
    row(Role::QueryLatent, "attn_q_a"),
    row(Role::QueryLatentNorm, "attn_q_a_norm"),
    row(Role::Query, "attn_q_b"),
    row(Role::Query, "attn_q"),
    row(Role::Latent, "attn_kv_a_mqa"),
    row(Role::LatentNorm, "attn_kv_a_norm"),
    row(Role::LatentKey, "attn_k_b"),
    row(Role::LatentValue, "attn_v_b"),
    row(Role::LatentKey, "attn_kv_b").part_of(HEAD),
    row(Role::LatentValue, "attn_kv_b").part_of(HEAD),
    row(Role::AttentionOutput, "attn_output"),
];

const HEAD: &[Role] = &[Role::LatentKey, Role::LatentValue];

fn deepseek2(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let latent = latent_attention(keys, RopeStyle::Normal, 0)?;
    let mixer = |kv_layer, _| Ok(Some(Mixer::Latent(LatentSpec { kv_layer, ..latent.clone() })));
    let mut config = hybrid(keys, weights, RopeStyle::Normal, mixer)?;
    let leading_dense = keys.count("leading_dense_block_count")?;
    config.dense_layers(keys, |layer| layer < leading_dense)?;
    let normalize = keys.flag("expert_weights_norm")?.unwrap_or(false);
    // The first files of GLM 4.7 Flash lack the key. Only sigmoids come with a bias.
    let has_bias = keys.has_tensor(&format!("blk.{leading_dense}.exp_probs_b.bias"));
    let is_sigmoid = has_bias && keys.count("expert_gating_func")? == 0;
    for experts in config.layers.iter_mut().filter_map(|layer| layer.experts.as_mut()) {
        experts.normalize = normalize;
        if is_sigmoid {
            experts.gate = GateFunction::Sigmoid;
        }
    }
    Ok(config)
}

/// The attention of a layer, which is that of every layer that attends. Files with the matrices of
/// a head in one tensor have the sizes of heads in the keys that otherwise describe the cache.
pub(super) fn latent_attention(
    keys: &Keys<'_>,
    style: RopeStyle,
    layer: usize,
) -> Result<LatentSpec, Error> {
    let head_size = |name: &str| match keys.count(&format!("{name}_mla"))? {
        0 => keys.small_size(name),
        _ => keys.small_size(&format!("{name}_mla")),
    };
    let key_dim = head_size("attention.key_length")?;
    let value_dim = head_size("attention.value_length")?;
    let rope_dim = keys.small_size("rope.dimension_count")?;
    if rope_dim >= key_dim {
        let reason = format!("it must be less than the key length, {key_dim}");
        return Err(keys.invalid("rope.dimension_count", &rope_dim, &reason));
    }
    let has_latent = !keys.has_tensor(&format!("blk.{layer}.attn_q.weight"));
    let query_rank = has_latent.then(|| keys.small_size("attention.q_lora_rank")).transpose()?;
    let (rope, factor) = rope(keys, rope_dim, style)?;
    Ok(LatentSpec {
        num_heads: keys.small_size("attention.head_count")?,
        query_rank,
        latent_dim: keys.small_size("attention.kv_lora_rank")?,
        nope_dim: key_dim - rope_dim,
        value_dim,
        shared_dim: rope_dim,
        rope: Some(rope),
        position_scale: temperature(keys)?,
        scale: factor / (key_dim as f32).sqrt(),
        output_gate: None,
        kv_layer: 0,
    })
}

/// The factor of Mistral's queries.
fn temperature(keys: &Keys<'_>) -> Result<Option<PositionScale>, Error> {
    let factor = keys.f64("attention.temperature_scale", 0.0)? as f32;
    if factor == 0.0 {
        return Ok(None);
    }
    let period = match keys.count("attention.temperature_length")? {
        0 => keys.original_context()?,
        period => period,
    };
    Ok(Some(PositionScale { factor, period, offset: 0 }))
}

/// `RoPE`, and a factor on the scores. With YaRN and a multiplier m of the logarithm, scores are
/// multiplied by `(1 + m ln factor)²` instead of a magnitude of cos and sin.
fn rope(keys: &Keys<'_>, rope_dim: usize, style: RopeStyle) -> Result<(Rope, f32), Error> {
    let config = keys.rope(rope_dim)?;
    let rope = config.build(style, None);
    Ok(match config.scaling {
        RopeScaling::Yarn { factor, log_multiplier, .. } if log_multiplier != 0.0 => {
            let magnitude = 1.0 + log_multiplier * factor.max(1.0).ln();
            let rope = Rope { magnitude: config.magnitude as f32, ..rope };
            (rope, (magnitude * magnitude) as f32)
        }
        _ => (rope, 1.0),
    })
}
