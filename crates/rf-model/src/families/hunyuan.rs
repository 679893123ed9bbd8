//! Hunyuan, dense: norms of queries and keys after RoPE.

use rf_graph::RopeStyle;
use rf_graph::layer::QkNormGroup;

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::WeightTable;

pub(super) const HUNYUAN_DENSE: Family = Family {
    name: "hunyuan-dense",
    config: hunyuan_dense,
    weights: &[rows::PRE_NORMS, rows::ATTENTION_OPTIONAL_BIAS, rows::QK_NORM, rows::GATED],
};

fn hunyuan_dense(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    config.set_qk_norm(QkNormGroup::Head, true);
    Ok(config)
}
