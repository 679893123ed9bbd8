//! EXAONE 4: norms only after attention and feed-forward. K-EXAONE: norms before them, and experts.

use rf_graph::RopeStyle;
use rf_graph::layer::QkNormGroup;

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::WeightTable;

pub(super) const EXAONE4: Family = Family {
    name: "exaone4",
    config: exaone4,
    weights: &[rows::POST_NORMS, rows::ATTENTION, rows::QK_NORM, rows::GATED],
};

pub(super) const EXAONE_MOE: Family = Family {
    name: "exaone-moe",
    config: exaone_moe,
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

/// Layers of the only size that has windows, the 32 B.
const LAYERS_WITH_WINDOWS: usize = 64;

/// In the 32 B, three of four layers have a window, and only these have RoPE.
fn exaone4(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    config.set_qk_norm(QkNormGroup::Head, false);
    if config.num_layers() == LAYERS_WITH_WINDOWS {
        let windowed = config.set_windows(keys, Some(4096), 4)?;
        config.rotate_only_windows(&windowed);
    }
    Ok(config)
}

fn exaone_moe(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    config.set_qk_norm(QkNormGroup::Head, false);
    let windowed = config.set_windows(keys, None, 4)?;
    config.rotate_only_windows(&windowed);
    config.set_leading_dense(keys)?;
    config.set_sigmoid_router(keys)?;
    Ok(config)
}
