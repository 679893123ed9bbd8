//! Phi-3, 3.5 and 4: fused q, k and v, fused gate and up, longrope.

use rf_graph::RopeStyle;

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::WeightTable;

pub(super) const PHI3: Family = Family {
    name: "phi3",
    config: phi3,
    weights: &[rows::PRE_NORMS, rows::FUSED_ATTENTION, rows::FUSED_GATED],
};

/// The window that some files declare is not used, as in llama.cpp.
fn phi3(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    config.set_long_rope(keys, config.head_dim(), RopeStyle::Neox)?;
    Ok(config)
}
