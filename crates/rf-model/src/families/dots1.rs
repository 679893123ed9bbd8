//! dots.llm1: norms of the heads of queries and keys, experts after some dense layers.

use rf_graph::RopeStyle;
use rf_graph::layer::QkNormGroup;

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::WeightTable;

pub(super) const DOTS1: Family = Family {
    name: "dots1",
    config: dots1,
    weights: &[
        rows::PRE_NORMS,
        rows::ATTENTION,
        rows::QK_NORM,
        rows::GATED,
        rows::EXPERTS,
        rows::SELECTION_BIAS,
        rows::SHARED_EXPERT,
    ],
};

fn dots1(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    config.set_qk_norm(QkNormGroup::Head, false);
    config.set_leading_dense(keys)?;
    config.set_sigmoid_router(keys)?;
    Ok(config)
}
