//! `SmallThinker`: the router reads the layer's input, and a `ReLU` gates.

use rf_graph::layer::BeforeAttention;
use rf_graph::{Activation, RopeStyle};

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::WeightTable;

pub(super) const SMALLTHINKER: Family = Family {
    name: "smallthinker",
    config: smallthinker,
    weights: &[rows::PRE_NORMS, rows::ATTENTION_OPTIONAL_BIAS, rows::EXPERTS],
};

/// In models with a window, every fourth layer from the first on has neither window nor RoPE. As in
/// llama.cpp, the window is always that of the first models, and a model of four layers has RoPE in
/// all of them.
fn smallthinker(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    config.set_activation(Activation::Relu);
    for experts in config.layers.iter_mut().filter_map(|layer| layer.experts.as_mut()) {
        experts.before_attention = BeforeAttention::Router;
    }
    if keys.count("attention.sliding_window")? > 0 {
        let num_layers = config.num_layers();
        for (index, attention) in config.attentions_mut().enumerate() {
            if index % 4 > 0 {
                attention.window = Some(4096);
            } else if num_layers != 4 {
                attention.rope = None;
            }
        }
    }
    Ok(config)
}
