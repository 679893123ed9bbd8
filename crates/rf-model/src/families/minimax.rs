//! `MiniMax` M2: norms over whole rows of queries and keys, experts that sigmoids with a bias
//! select.

use rf_graph::layer::QkNormGroup;
use rf_graph::{GateFunction, RopeStyle};

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::WeightTable;

pub(super) const MINIMAX_M2: Family = Family {
    name: "minimax-m2",
    config: minimax_m2,
    weights: &[
        rows::PRE_NORMS,
        rows::ATTENTION,
        rows::QK_NORM,
        rows::EXPERTS,
        rows::SELECTION_BIAS,
    ],
};

fn minimax_m2(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    config.set_qk_norm(QkNormGroup::Row, false);
    let has_gate = keys.count("expert_gating_func")? != 0;
    for experts in config.experts_mut().filter(|_| !has_gate) {
        experts.gate = GateFunction::Sigmoid;
    }
    Ok(config)
}
