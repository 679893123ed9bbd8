//! Phi-3, 3.5 and 4, dense and with experts: longrope.

use rf_graph::RopeStyle;
use rf_graph::layer::Role;

use super::family::Family;
use super::rows;
use crate::config::{LongRope, ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::{WeightTable, row};

pub(super) const PHI3: Family = Family {
    name: "phi3",
    config: phi3,
    weights: &[rows::PRE_NORMS, rows::FUSED_ATTENTION, rows::FUSED_GATED],
};

/// Norms and matrices have biases.
pub(super) const PHI_MOE: Family = Family {
    name: "phimoe",
    config: phi3,
    weights: &[
        &[
            row(Role::AttentionNorm, "attn_norm").with_bias(),
            row(Role::FeedForwardNorm, "ffn_norm").with_bias(),
        ],
        rows::ATTENTION_OPTIONAL_BIAS,
        rows::EXPERTS,
    ],
};

/// Longrope: contexts longer than the original one use other frequencies. The window that some
/// files declare is not used, as in llama.cpp.
fn phi3(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    let rope = keys.rope(config.head_dim())?;
    let factors = |name: &str| keys.divisors(name, rope.dims / 2);
    let short = factors("rope_factors_short.weight")?;
    let long = factors("rope_factors_long.weight")?;
    if let (Some(short), Some(long)) = (short, long) {
        let short = rope.build(RopeStyle::Neox, Some(&short));
        for attention in config.attentions_mut() {
            attention.rope = Some(short.clone());
        }
        config.long_rope = Some(LongRope {
            original_context: keys.original_context()?,
            rope: rope.build(RopeStyle::Neox, Some(&long)),
        });
    }
    Ok(config)
}
