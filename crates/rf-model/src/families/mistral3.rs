//! Mistral 3: a Llama whose queries grow with the position.

use rf_graph::{PositionScale, RopeStyle};

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::WeightTable;

pub(super) const MISTRAL3: Family = Family {
    name: "mistral3",
    config: mistral3,
    weights: &[rows::PRE_NORMS, rows::ATTENTION_OPTIONAL_BIAS, rows::GATED, rows::EXPERTS],
};

fn mistral3(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Normal)?;
    let factor = keys.f64("attention.temperature_scale", 0.0)? as f32;
    if factor != 0.0 {
        let period = keys.original_context()?;
        for attention in config.attentions_mut() {
            attention.position_scale = Some(PositionScale { factor, period, offset: 0 });
        }
    }
    Ok(config)
}
