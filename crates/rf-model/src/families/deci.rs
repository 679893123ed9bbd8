//! Deci and Llama Nemotron: a Llama whose layers differ in heads and widths, or lack a part.

use rf_graph::RopeStyle;
use rf_graph::layer::Mixer;

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, hybrid};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::WeightTable;

pub(super) const DECI: Family = Family {
    name: "deci",
    config: deci,
    weights: &[rows::PRE_NORMS, rows::ATTENTION_OPTIONAL_BIAS, rows::GATED_OPTIONAL_BIAS],
};

/// A layer without heads has no attention, one with query heads alone has a matrix in its place. A
/// width of 0 stands for no feed-forward layer.
fn deci(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    const HEADS: &str = "attention.head_count";
    let mut config = hybrid(keys, weights, RopeStyle::Normal, |layer, num_kv_heads| {
        let num_heads = keys.counts_per_layer(HEADS, keys.size("block_count")?)?;
        let num_heads = num_heads.ok_or_else(|| keys.missing(HEADS))?;
        Ok(match (num_heads[layer], num_kv_heads) {
            (0, _) => Some(Mixer::None),
            (_, 0) => Some(Mixer::Projection),
            _ => None,
        })
    })?;
    for layer in &mut config.layers {
        layer.dense = layer.dense.filter(|dense| dense.intermediate_size > 0);
        if layer.dense.is_none() {
            // llama.cpp drops the attention of such a layer. Published models have none there.
            layer.residual_scale = 0.0;
        }
    }
    Ok(config)
}
