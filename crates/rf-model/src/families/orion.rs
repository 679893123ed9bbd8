//! Orion: a Llama with layer norms.

use rf_graph::RopeStyle;

use super::family::Family;
use super::rows;
use crate::config::transformer;

pub(super) const ORION: Family = Family {
    name: "orion",
    config: |keys, weights| transformer(keys, weights, RopeStyle::Neox),
    weights: &[rows::PRE_NORMS_WITH_BIAS, rows::ATTENTION, rows::GATED],
};
