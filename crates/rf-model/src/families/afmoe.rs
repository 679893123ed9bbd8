//! Trinity: norms before and after, a gate on the output of attention, experts after dense layers.

use rf_graph::layer::QkNormGroup;
use rf_graph::{Gating, RopeStyle};

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::WeightTable;

pub(super) const AFMOE: Family = Family {
    name: "afmoe",
    config: afmoe,
    weights: &[
        rows::PRE_NORMS,
        rows::POST_NORMS,
        rows::ATTENTION,
        rows::QK_NORM,
        rows::OUTPUT_GATE,
        rows::GATED,
        rows::EXPERTS,
        rows::SELECTION_BIAS,
        rows::SHARED_EXPERT,
    ],
};

/// Every fourth layer has no RoPE, whichever layers have windows.
fn afmoe(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    config.embedding_scale = (config.hidden_size as f32).sqrt();
    config.set_qk_norm(QkNormGroup::Head, false);
    config.set_output_gate(keys, Gating::Sigmoid);
    config.set_windows(keys, None, 4)?;
    for attention in config.attentions_mut().skip(3).step_by(4) {
        attention.rope = None;
    }
    config.set_leading_dense(keys)?;
    config.set_sigmoid_router(keys)?;
    Ok(config)
}
