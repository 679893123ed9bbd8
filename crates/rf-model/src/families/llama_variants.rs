//! Llamas of other names: `InternLM` 2, XVERSE, EXAONE 3 and Pangu Embedded.

use rf_graph::RopeStyle;

use super::family::Family;
use super::rows;
use crate::config::transformer;

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
