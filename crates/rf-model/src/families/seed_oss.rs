//! Seed-OSS: a Qwen 2 whose norm before the feed-forward layer has another name.

use rf_graph::RopeStyle;
use rf_graph::layer::Role;

use super::family::Family;
use super::rows;
use crate::config::transformer;
use crate::weights::row;

pub(super) const SEED_OSS: Family = Family {
    name: "seed_oss",
    config: |keys, weights| transformer(keys, weights, RopeStyle::Neox),
    weights: &[
        &[row(Role::AttentionNorm, "attn_norm"), row(Role::FeedForwardNorm, "post_attention_norm")],
        rows::ATTENTION_OPTIONAL_BIAS,
        rows::GATED,
    ],
};
