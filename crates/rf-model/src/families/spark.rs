//! Spark X2.5: a gate per head on the output of attention, GELU, windows.

use rf_graph::{Activation, Gating, RopeStyle};

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::WeightTable;

pub(super) const SPARK2_5: Family = Family {
    name: "spark2_5",
    config: spark2_5,
    weights: &[rows::PRE_NORMS, rows::ATTENTION, rows::OUTPUT_GATE, rows::GATED],
};

fn spark2_5(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    config.set_output_gate(keys, Gating::Sigmoid);
    config.set_activation(Activation::GeluTanh);
    let windowed = config.set_windows(keys, None, 4)?;
    config.set_window_rope(keys, &windowed, RopeStyle::Neox)?;
    Ok(config)
}
