//! LFM2: gated short convolutions, and attention in some layers.

use rf_graph::RopeStyle;
use rf_graph::layer::{Mixer, QkNormGroup, Role, ShortConvSpec};

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, OutputNorm, hybrid};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::{WeightRow, WeightTable, row};

const IN_PROJECTION: &[Role] = &[Role::ConvInputGate, Role::ConvOutputGate, Role::MixerInput];

const SHORT_CONV: &[WeightRow] = &[
    row(Role::ConvInputGate, "shortconv.in_proj").part_of(IN_PROJECTION),
    row(Role::ConvOutputGate, "shortconv.in_proj").part_of(IN_PROJECTION),
    row(Role::MixerInput, "shortconv.in_proj").part_of(IN_PROJECTION),
    row(Role::ConvFilter, "shortconv.conv"),
    row(Role::MixerOutput, "shortconv.out_proj"),
];

pub(super) const LFM2: Family = Family {
    name: "lfm2",
    config: lfm2,
    weights: &[rows::PRE_NORMS, rows::ATTENTION, rows::QK_NORM, SHORT_CONV, rows::GATED],
};

pub(super) const LFM2_MOE: Family = Family {
    name: "lfm2moe",
    config: lfm2,
    weights: &[
        rows::PRE_NORMS,
        rows::ATTENTION,
        rows::QK_NORM,
        SHORT_CONV,
        rows::GATED,
        rows::EXPERTS,
        rows::SELECTION_BIAS,
    ],
};

/// Layers without key and value heads are convolutions. The norm before the head has the name of a
/// norm after the embedding.
fn lfm2(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let taps = keys.small_size("shortconv.l_cache")?;
    let mut config = hybrid(keys, weights, RopeStyle::Neox, |_, num_kv_heads| {
        let conv = Mixer::ShortConv(ShortConvSpec { taps, state: 0 });
        Ok((num_kv_heads == 0).then_some(conv))
    })?;
    config.set_qk_norm(QkNormGroup::Head, false);
    config.output_norm = OutputNorm::Tensor("token_embd_norm");
    let leading_dense = keys.count("leading_dense_block_count")?;
    config.dense_layers(keys, |layer| layer < leading_dense)?;
    Ok(config)
}
