//! Mellum 2: three of four layers have a window and a RoPE that is not scaled; experts everywhere.

use rf_graph::RopeStyle;
use rf_graph::layer::QkNormGroup;

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::WeightTable;

pub(super) const MELLUM: Family = Family {
    name: "mellum",
    config: mellum,
    weights: &[rows::PRE_NORMS, rows::ATTENTION, rows::QK_NORM, rows::EXPERTS],
};

fn mellum(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    config.set_qk_norm(QkNormGroup::Head, false);
    let windowed = config.set_windows(keys, None, 4)?;
    config.set_window_rope(keys, &windowed, RopeStyle::Neox)?;
    Ok(config)
}
