//! GPT-2 and `StarCoder`: learned positions, fused q, k and v, GELU without a gate.

use rf_graph::{Activation, RopeStyle};

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::WeightTable;

pub(super) const GPT2: Family = Family {
    name: "gpt2",
    config: gpt2,
    weights: &[rows::PRE_NORMS_WITH_BIAS, rows::FUSED_ATTENTION, rows::UNGATED],
};

/// Its heads share keys and values.
pub(super) const STARCODER: Family = Family { name: "starcoder", ..GPT2 };

fn gpt2(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    config.set_ungated(Activation::GeluTanh);
    config.learned_positions = true;
    config.max_context_length = Some(config.context_length);
    for attention in config.attentions_mut() {
        attention.rope = None;
    }
    Ok(config)
}
