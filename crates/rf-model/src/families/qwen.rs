//! Qwen 1 to 3, dense and with experts, for text and for pictures.

use rf_graph::RopeStyle;
use rf_graph::layer::{QkNormGroup, Role};

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::rope::RopeSections;
use crate::weights::{WeightTable, row};

pub(super) const QWEN: Family = Family {
    name: "qwen",
    config: qwen,
    weights: &[rows::PRE_NORMS, rows::FUSED_ATTENTION, rows::GATED],
};

pub(super) const QWEN2: Family = Family {
    name: "qwen2",
    config: |keys, weights| transformer(keys, weights, RopeStyle::Neox),
    weights: &[rows::PRE_NORMS, rows::ATTENTION_OPTIONAL_BIAS, rows::GATED],
};

pub(super) const QWEN2_MOE: Family = Family {
    name: "qwen2moe",
    config: qwen2_moe,
    weights: &[
        rows::PRE_NORMS,
        rows::ATTENTION_OPTIONAL_BIAS,
        rows::EXPERTS,
        rows::SHARED_EXPERT,
        &[row(Role::SharedRouter, "ffn_gate_inp_shexp")],
    ],
};

pub(super) const QWEN3: Family = Family {
    name: "qwen3",
    config: qwen3,
    weights: &[rows::PRE_NORMS, rows::ATTENTION_OPTIONAL_BIAS, rows::QK_NORM, rows::GATED],
};

pub(super) const QWEN3_MOE: Family = Family {
    name: "qwen3moe",
    config: qwen3,
    weights: &[rows::PRE_NORMS, rows::ATTENTION, rows::QK_NORM, rows::EXPERTS],
};

pub(super) const QWEN2_VL: Family = Family {
    name: "qwen2vl",
    config: |keys, weights| {
        let mut config = transformer(keys, weights, RopeStyle::Neox)?;
        config.set_rope_sections(keys, RopeSections::Successive)?;
        Ok(config)
    },
    weights: QWEN2.weights,
};

pub(super) const QWEN3_VL: Family =
    Family { name: "qwen3vl", config: qwen3_vl, weights: QWEN3.weights };

pub(super) const QWEN3_VL_MOE: Family =
    Family { name: "qwen3vlmoe", config: qwen3_vl, weights: QWEN3_MOE.weights };
/// The width of gate and up together is in the file.
fn qwen(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    for dense in config.layers.iter_mut().filter_map(|layer| layer.dense.as_mut()) {
        dense.intermediate_size /= 2;
    }
    Ok(config)
}

/// The weights of the selected experts are their probabilities, not normalised.
fn qwen2_moe(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    for experts in config.layers.iter_mut().filter_map(|layer| layer.experts.as_mut()) {
        experts.normalize = false;
    }
    Ok(config)
}

/// Each head of q and k has a norm.
fn qwen3(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    config.set_qk_norm(QkNormGroup::Head, false);
    Ok(config)
}

/// Parts of the rows of a picture are added after the first layers.
fn qwen3_vl(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = qwen3(keys, weights)?;
    config.set_rope_sections(keys, RopeSections::Interleaved)?;
    config.deepstack_layers = keys.count("n_deepstack_layers")?;
    if config.deepstack_layers > config.num_layers() {
        let reason = format!("the model has {} layers", config.num_layers());
        return Err(keys.invalid("n_deepstack_layers", &config.deepstack_layers, &reason));
    }
    Ok(config)
}
