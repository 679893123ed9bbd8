//! Hunyuan, dense and with experts: norms of queries and keys after RoPE. Hy 3: norms before it.

use rf_graph::RopeStyle;
use rf_graph::layer::{QkNormGroup, Role};

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::{WeightTable, row};

pub(super) const HUNYUAN_DENSE: Family = Family {
    name: "hunyuan-dense",
    config: hunyuan,
    weights: &[rows::PRE_NORMS, rows::ATTENTION_OPTIONAL_BIAS, rows::QK_NORM, rows::GATED],
};

pub(super) const HUNYUAN_MOE: Family = Family {
    name: "hunyuan-moe",
    config: hunyuan,
    weights: &[
        rows::PRE_NORMS,
        rows::ATTENTION_OPTIONAL_BIAS,
        rows::QK_NORM,
        rows::EXPERTS,
        rows::SHARED_EXPERT,
    ],
};

pub(super) const HY_V3: Family = Family {
    name: "hy_v3",
    config: hy_v3,
    weights: &[
        rows::PRE_NORMS,
        rows::ATTENTION,
        rows::QK_NORM,
        rows::GATED,
        rows::EXPERTS,
        rows::SELECTION_BIAS,
        &[row(Role::SelectionBias, "exp_probs_b").suffix("").optional()],
        rows::SHARED_EXPERT,
    ],
};

fn hunyuan(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    config.set_qk_norm(QkNormGroup::Head, true);
    Ok(config)
}

/// Sigmoids with a bias select experts, after some dense layers.
fn hy_v3(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    config.set_qk_norm(QkNormGroup::Head, false);
    config.set_dense_without_router(keys)?;
    config.set_sigmoid_router(keys)?;
    Ok(config)
}
