//! GPT-NeoX (Pythia), `CodeShell` and Phi-2: layer norms, GELU without a gate, and in some RoPE of
//! a part of each head. Attention and feed-forward run in parallel in Phi-2, and in GPT-NeoX where
//! the file says so.

use rf_graph::layer::Role;
use rf_graph::{Activation, RopeStyle};

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::{WeightTable, row};

pub(super) const GPT_NEOX: Family = Family {
    name: "gptneox",
    config: gpt_neox,
    weights: &[rows::PRE_NORMS_WITH_BIAS, rows::FUSED_ATTENTION, rows::UNGATED],
};

pub(super) const CODESHELL: Family = Family {
    name: "codeshell",
    config: ungated,
    weights: &[rows::PRE_NORMS_WITH_BIAS, rows::ATTENTION_OPTIONAL_BIAS, rows::UNGATED],
};

/// Attention and feed-forward read one norm.
pub(super) const PHI2: Family = Family {
    name: "phi2",
    config: phi2,
    weights: &[
        &[row(Role::AttentionNorm, "attn_norm").with_bias()],
        rows::ATTENTION_OPTIONAL_BIAS,
        rows::UNGATED,
    ],
};

fn gpt_neox(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    const NAME: &str = "use_parallel_residual";
    let mut config = ungated(keys, weights)?;
    if keys.flag(NAME)?.ok_or_else(|| keys.missing(NAME))? {
        config.set_parallel();
    }
    Ok(config)
}

fn ungated(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    config.set_ungated(Activation::GeluTanh);
    Ok(config)
}

fn phi2(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = ungated(keys, weights)?;
    config.set_parallel();
    Ok(config)
}
