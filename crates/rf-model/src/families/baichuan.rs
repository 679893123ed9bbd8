//! Baichuan: a Llama. The 7 B models have RoPE, the 13 B models biases of distance (`ALiBi`), which
//! only their number of layers tells.

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

/// Layers of the models with RoPE.
const LAYERS_WITH_ROPE: usize = 32;

fn baichuan(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let config = transformer(keys, weights, RopeStyle::Normal)?;
    if config.num_layers() != LAYERS_WITH_ROPE {
        let reason = "only the models of 32 layers have RoPE; ALiBi is not supported";
        return Err(keys.unsupported("block_count", &config.num_layers(), reason));
    }
    Ok(config)
}
