//! Llamas of other names: `InternLM` 2, XVERSE, EXAONE 3, Pangu Embedded and `PLaMo`.

use rf_graph::RopeStyle;
use rf_graph::layer::Role;

use super::family::Family;
use super::rows;
use crate::config::transformer;
use crate::weights::row;

pub(super) const INTERNLM2: Family = Family {
    name: "internlm2",
    config: |keys, weights| transformer(keys, weights, RopeStyle::Normal),
    weights: &[rows::PRE_NORMS, rows::ATTENTION_OPTIONAL_BIAS, rows::GATED],
};

pub(super) const XVERSE: Family = Family {
    name: "xverse",
    config: |keys, weights| transformer(keys, weights, RopeStyle::Normal),
    weights: &[rows::PRE_NORMS, rows::ATTENTION, rows::GATED],
};

pub(super) const EXAONE: Family = Family {
    name: "exaone",
    config: |keys, weights| transformer(keys, weights, RopeStyle::Neox),
    weights: &[rows::PRE_NORMS, rows::ATTENTION, rows::GATED],
};

pub(super) const PANGU_EMBEDDED: Family = Family {
    name: "pangu-embedded",
    config: |keys, weights| transformer(keys, weights, RopeStyle::Neox),
    weights: &[rows::PRE_NORMS, rows::ATTENTION_OPTIONAL_BIAS, rows::GATED],
};

/// Attention and feed-forward read one norm.
pub(super) const PLAMO: Family = Family {
    name: "plamo",
    config: |keys, weights| {
        let mut config = transformer(keys, weights, RopeStyle::Neox)?;
        config.set_parallel();
        Ok(config)
    },
    weights: &[&[row(Role::AttentionNorm, "attn_norm")], rows::ATTENTION, rows::GATED],
};
