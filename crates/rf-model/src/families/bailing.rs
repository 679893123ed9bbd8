//! Ling and Ring 1 and 2: experts with a shared one.

use rf_graph::RopeStyle;
use rf_graph::layer::QkNormGroup;

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::WeightTable;

pub(super) const BAILING_MOE: Family = Family {
    name: "bailingmoe",
    config: bailing_moe,
    weights: &[
        rows::PRE_NORMS,
        rows::ATTENTION_OPTIONAL_BIAS,
        rows::GATED,
        rows::EXPERTS,
        rows::SHARED_EXPERT,
    ],
};

pub(super) const BAILING_MOE2: Family = Family {
    name: "bailingmoe2",
    config: bailing_moe2,
    weights: &[
        rows::PRE_NORMS,
        rows::ATTENTION_OPTIONAL_BIAS,
        rows::QK_NORM,
        rows::GATED,
        rows::EXPERTS,
        rows::SELECTION_BIAS,
        rows::SHARED_EXPERT,
    ],
};

fn bailing_moe(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Normal)?;
    config.set_leading_dense(keys)?;
    if !keys.flag("expert_weights_norm")?.unwrap_or(false) {
        config.set_unnormalized_router();
    }
    Ok(config)
}

/// Norms of the heads of queries and keys, and experts in groups that sigmoids with a bias select.
fn bailing_moe2(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    config.set_qk_norm(QkNormGroup::Head, false);
    config.set_leading_dense(keys)?;
    config.set_sigmoid_router(keys)?;
    Ok(config)
}
