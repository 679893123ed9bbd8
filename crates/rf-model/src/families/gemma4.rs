//! Gemma 4: two head sizes and KV shapes in one model, per-layer embeddings, layers that share a
//! cache, experts beside a dense feed-forward layer.

use rf_graph::layer::{AttentionSpec, DenseSpec, KvSource, QkNormGroup, QkNormSpec, Role};
use rf_graph::{Activation, RopeStyle};

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, check_value_length, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::{WeightTable, row};

pub(super) const GEMMA4: Family = Family {
    name: "gemma4",
    config: gemma4,
    weights: &[
        rows::PRE_NORMS,
        rows::POST_NORMS,
        rows::ATTENTION,
        rows::QK_NORM,
        rows::GATED,
        rows::EXPERTS,
        &[
            row(Role::DenseOutputNorm, "post_ffw_norm_1").optional(),
            row(Role::ExpertNorm, "pre_ffw_norm_2"),
            row(Role::RouterNorm, "ffn_gate_inp").suffix("scale"),
            row(Role::ExpertScale, "ffn_down_exps").suffix("scale").optional(),
            row(Role::ExpertOutputNorm, "post_ffw_norm_2"),
            row(Role::PerLayerGate, "inp_gate"),
            row(Role::PerLayerProjection, "proj"),
            row(Role::PerLayerNorm, "post_norm"),
        ],
    ],
};

fn gemma4(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    let num_layers = config.num_layers();
    config.embedding_scale = (config.hidden_size as f32).sqrt();
    config.logit_softcap = keys.softcap("final_logit_softcapping", None)?;
    let windowed = config.set_windows(keys, None, 6)?;

    let window_head_dim = keys.size("attention.key_length_swa")?;
    check_value_length(keys, "attention.value_length_swa", window_head_dim)?;
    let window_rope = {
        let theta = keys.rope_theta("rope.freq_base_swa", 10_000.0)?;
        let mut rope = keys.rope(window_head_dim.max(keys.size("attention.key_length")?))?;
        rope.head_dim = window_head_dim;
        rope.dims = keys.rope_dims("rope.dimension_count_swa", window_head_dim)?;
        rope.unscaled(theta).build(RopeStyle::Neox, None)
    };
    let own_kv_layers = num_layers.saturating_sub(keys.count("attention.shared_kv_layers")?);
    if own_kv_layers < 2 && own_kv_layers < num_layers {
        let reason = format!("two of the {num_layers} layers must have keys and values");
        let shared = num_layers - own_kv_layers;
        return Err(keys.invalid("attention.shared_kv_layers", &shared, &reason));
    }
    let sizes = keys.per_layer("feed_forward_length", num_layers)?;
    let sizes = sizes.ok_or_else(|| keys.missing("feed_forward_length"))?;
    let per_layer_input = keys.count("embedding_length_per_layer_input")?;
    let activation = Activation::GeluTanh;

    for (index, layer) in config.layers.iter_mut().enumerate() {
        let Some(a) = layer.attention_mut() else { continue };
        if windowed[index] {
            *a = AttentionSpec {
                rope: Some(window_rope.clone()),
                window: a.window,
                ..AttentionSpec::new(a.num_heads, a.num_kv_heads, window_head_dim, index)
            };
        }
        a.scale = 1.0;
        a.normalizes_values = true;
        a.qk_norm = Some(QkNormSpec { group: QkNormGroup::Head, after_rope: false });
        if index >= own_kv_layers {
            // The last layers of the two kinds that have keys and values.
            a.kv = KvSource::Cache;
            a.kv_layer = own_kv_layers - if windowed[index] { 2 } else { 1 };
        } else if !keys.has_tensor(&format!("blk.{index}.attn_v.weight")) {
            a.kv = KvSource::SharedProjection;
        }
        let intermediate_size = sizes[index];
        layer.dense = Some(DenseSpec {
            intermediate_size,
            activation,
            gated: true,
            xielu: None,
            clamp: None,
        });
        layer.per_layer_input = (per_layer_input > 0).then_some(per_layer_input);
        let scale = keys.values(&format!("blk.{index}.layer_output_scale.weight"), 1)?;
        layer.output_scale = scale.map_or(1.0, |scale| scale[0]);
    }
    config.set_activation(activation);
    config.set_non_causal_media(|attention| attention.window.is_some());
    Ok(config)
}
