//! `OLMo` 2 and 3: norms only after attention and feed-forward, and over all heads of q and k.

use rf_graph::RopeStyle;
use rf_graph::layer::QkNormGroup;

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::WeightTable;

pub(super) const OLMO2: Family = Family {
    name: "olmo2",
    config: olmo2,
    weights: &[rows::POST_NORMS, rows::ATTENTION, rows::QK_NORM, rows::GATED],
};

pub(super) const OLMOE: Family = Family {
    name: "olmoe",
    config: olmoe,
    weights: &[rows::PRE_NORMS, rows::ATTENTION, rows::QK_NORM, rows::EXPERTS],
};

/// In `OLMo` 3, three of four layers have a window and a RoPE that is not scaled.
fn olmo2(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    config.set_qk_norm(QkNormGroup::Row, false);
    let windowed = config.set_windows(keys, None, 4)?;
    let attentions = config.attentions_mut().zip(windowed);
    for (attention, _) in attentions.filter(|(_, windowed)| *windowed) {
        let rope = keys.rope(attention.head_dim)?;
        let unscaled = rope.unscaled(rope.theta);
        attention.rope = Some(unscaled.build(RopeStyle::Neox, None));
    }
    Ok(config)
}

/// The weights of the selected experts are their probabilities, not normalised.
fn olmoe(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    config.set_qk_norm(QkNormGroup::Row, false);
    config.set_unnormalized_router();
    Ok(config)
}
