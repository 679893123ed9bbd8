//! `MiMo` V2: values shorter than keys, key and value heads per layer, windows with sinks.

use rf_graph::{GateFunction, RopeStyle};

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::WeightTable;

pub(super) const MIMO2: Family = Family {
    name: "mimo2",
    config: mimo2,
    weights: &[
        rows::PRE_NORMS,
        rows::ATTENTION,
        rows::SINKS,
        rows::GATED,
        rows::EXPERTS,
        rows::SELECTION_BIAS,
    ],
};

fn mimo2(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    let value_scale = keys.factor("attention.value_scale", 1.0)?;
    for attention in config.attentions_mut() {
        attention.value_scale = value_scale;
    }
    let windowed = config.set_windows(keys, None, 4)?;
    config.set_window_rope(keys, &windowed, RopeStyle::Neox)?;
    config.set_dense_without_router(keys)?;
    for experts in config.experts_mut() {
        experts.gate = GateFunction::Sigmoid;
        experts.normalize = true;
    }
    Ok(config)
}
