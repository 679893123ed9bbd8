//! Baichuan: a Llama, whose larger models have `ALiBi` instead of RoPE.

use rf_graph::RopeStyle;

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::WeightTable;

pub(super) const BAICHUAN: Family = Family {
    name: "baichuan",
    config: baichuan,
    weights: &[rows::PRE_NORMS, rows::ATTENTION, rows::GATED],
};

/// Files do not say which models have `ALiBi`. Those of 13 B parameters have it, known by their
/// number of layers.
fn baichuan(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Normal)?;
    if config.num_layers() == 40 {
        config.set_alibi(8.0);
    }
    Ok(config)
}
