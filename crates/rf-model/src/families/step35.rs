//! Step 3.5: query heads per layer, a gate per head on the output of attention, gated units with
//! bounds.

use rf_graph::layer::QkNormGroup;
use rf_graph::{Gating, RopeStyle};

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::WeightTable;

pub(super) const STEP35: Family = Family {
    name: "step35",
    config: step35,
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

/// Full layers rotate half as many elements as those with a window, and only they divide the
/// frequencies by factors.
fn step35(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    config.set_qk_norm(QkNormGroup::Head, false);
    config.set_output_gate(keys, Gating::Sigmoid);
    let mut rope = keys.rope(config.head_dim())?;
    let factors = keys.divisors("rope_freqs.weight", rope.dims / 2)?;
    rope.dims /= 2;
    let rope = rope.build(RopeStyle::Neox, factors.as_deref());
    let windowed = config.set_windows(keys, None, 4)?;
    for attention in config.attentions_mut() {
        attention.rope = Some(rope.clone());
    }
    config.set_window_rope(keys, &windowed, RopeStyle::Neox)?;
    config.set_dense_without_router(keys)?;
    config.set_sigmoid_router(keys)?;
    config.set_expert_clamps(keys)?;
    Ok(config)
}
