//! Gemma 3n: `AltUp`, `LAuReL`, per-layer embeddings, sparse gates, and layers that share a cache.

use rf_graph::layer::{AltUpSpec, KvSource, QkNormGroup, QkNormSpec, Role};
use rf_graph::{Activation, RopeStyle};

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::{WeightTable, row};

pub(super) const GEMMA3N: Family = Family {
    name: "gemma3n",
    config: gemma3n,
    weights: &[
        rows::PRE_NORMS,
        rows::POST_NORMS,
        rows::ATTENTION,
        rows::QK_NORM,
        rows::GATED,
        &[
            row(Role::PerLayerGate, "inp_gate"),
            row(Role::PerLayerProjection, "proj"),
            row(Role::PerLayerNorm, "post_norm"),
            row(Role::AltUpRouterNorm, "altup_router_norm"),
            row(Role::AltUpRouter, "altup_router"),
            row(Role::AltUpPredict, "altup_predict_coef"),
            row(Role::AltUpCorrect, "altup_correct_coef"),
            row(Role::AltUpScale, "altup_correct_scale"),
            row(Role::LaurelLeft, "laurel_l"),
            row(Role::LaurelRight, "laurel_r"),
            row(Role::LaurelNorm, "laurel_post_norm"),
        ],
    ],
};

/// Streams, and the width of per-layer embeddings.
const STREAMS: usize = 4;
const PER_LAYER_INPUT: usize = 256;

/// The gates of the first layers keep about the largest 5 %.
const SPARSE_LAYERS: usize = 10;
const SPARSITY: f32 = 1.644_853_4;

/// Later layers read the cache of the last of these of their kind.
const OWN_KV_LAYERS: usize = 20;

/// Files do not have these sizes, which are the same in all models.
fn gemma3n(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    config.embedding_scale = (config.hidden_size as f32).sqrt();
    config.set_activation(Activation::GeluTanh);
    config.logit_softcap = keys.softcap("final_logit_softcapping", Some(30.0))?;
    let windowed = config.set_windows(keys, None, 5)?;
    let theta = keys.rope_theta("rope.freq_base_swa", 10_000.0)?;
    let laurel_rank = keys.rows("blk.0.laurel_l.weight").unwrap_or(0);
    let laurel_rank = keys.checked_size("laurel_rank", laurel_rank as u64)?;
    for (index, layer) in config.layers.iter_mut().enumerate() {
        layer.per_layer_input = Some(PER_LAYER_INPUT);
        let sparsity = (index < SPARSE_LAYERS).then_some(SPARSITY);
        layer.altup = Some(AltUpSpec { streams: STREAMS, laurel_rank, sparsity });
        let Some(a) = layer.attention_mut() else { continue };
        a.scale = 1.0;
        a.normalizes_values = true;
        a.qk_norm = Some(QkNormSpec { group: QkNormGroup::Head, after_rope: false });
        if windowed[index] {
            let rope = keys.rope(a.head_dim)?.unscaled(theta);
            a.rope = Some(rope.build(RopeStyle::Neox, None));
        }
        if index >= OWN_KV_LAYERS {
            a.kv = KvSource::Cache;
            a.kv_layer = OWN_KV_LAYERS - if windowed[index] { 2 } else { 1 };
            for stem in ["attn_k", "attn_v", "attn_k_norm"] {
                keys.ignore(format!("blk.{index}.{stem}.weight"));
            }
        }
    }
    Ok(config)
}
