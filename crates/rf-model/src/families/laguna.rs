//! Laguna: query heads per layer, a softplus gate on the output of attention, windows with another
//! RoPE, experts after dense layers.

use rf_graph::layer::QkNormGroup;
use rf_graph::{Gating, RopeStyle};

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::WeightTable;

pub(super) const LAGUNA: Family = Family {
    name: "laguna",
    config: laguna,
    weights: &[
        rows::PRE_NORMS,
        rows::ATTENTION,
        rows::QK_NORM,
        rows::OUTPUT_GATE,
        rows::GATED,
        rows::EXPERTS,
        rows::SELECTION_BIAS,
        rows::SHARED_EXPERT,
    ],
};

fn laguna(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    config.set_qk_norm(QkNormGroup::Head, false);
    config.set_output_gate(keys, Gating::Softplus);
    let windowed = config.set_windows_after_full(keys)?;
    config.set_window_rope(keys, &windowed, RopeStyle::Neox)?;
    config.set_leading_dense(keys)?;
    config.set_sigmoid_router(keys)?;
    Ok(config)
}
