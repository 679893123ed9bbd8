//! Llama 1-3, Mistral, Mixtral and their many descendants. Converters permute q and k, so RoPE
//! pairs neighbours.

use rf_graph::RopeStyle;

use super::family::Family;
use super::rows;
use crate::config::transformer;

pub(super) const LLAMA: Family = Family {
    name: "llama",
    config: |keys, weights| transformer(keys, weights, RopeStyle::Normal),
    weights: &[
        rows::PRE_NORMS,
        rows::ATTENTION_OPTIONAL_BIAS,
        rows::GATED_OPTIONAL_BIAS,
        rows::EXPERTS,
    ],
};
