//! `BitNet` b1.58: a Llama with norms before the last matrices of attention and feed-forward layer.

use rf_graph::RopeStyle;
use rf_graph::layer::Role;

use super::family::Family;
use super::rows;
use crate::config::transformer;
use crate::weights::row;

pub(super) const BITNET: Family = Family {
    name: "bitnet",
    config: |keys, weights| transformer(keys, weights, RopeStyle::Neox),
    weights: &[
        rows::PRE_NORMS,
        rows::ATTENTION_OPTIONAL_BIAS,
        rows::GATED,
        &[
            row(Role::AttentionSubNorm, "attn_sub_norm"),
            row(Role::FeedForwardSubNorm, "ffn_sub_norm"),
        ],
    ],
};
