//! Llama 4: every other layer has experts, every fourth has no RoPE.

use rf_graph::layer::{QkNormGroup, QkNormSpec};
use rf_graph::{GateFunction, PositionScale, RopeStyle};

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::WeightTable;

pub(super) const LLAMA4: Family = Family {
    name: "llama4",
    config: llama4,
    weights: &[
        rows::PRE_NORMS,
        rows::ATTENTION_OPTIONAL_BIAS,
        rows::GATED,
        rows::EXPERTS,
        rows::SHARED_EXPERT,
    ],
};

/// Tokens of a chunk. Layers with RoPE attend within a chunk only.
const CHUNK_TOKENS: usize = 8192;

/// Experts of Maverick, which has no norm of queries and keys.
const EXPERTS_OF_MAVERICK: usize = 128;

fn llama4(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Normal)?;
    let step = keys.optional_size("interleave_moe_layer_step")?.unwrap_or(1);
    config.dense_layers(keys, |layer| !(layer + 1).is_multiple_of(step))?;
    for (index, layer) in config.layers.iter_mut().enumerate() {
        let Some(a) = layer.attention_mut() else { continue };
        if (index + 1).is_multiple_of(4) {
            a.rope = None;
            a.position_scale = Some(PositionScale { factor: 0.1, period: CHUNK_TOKENS, offset: 1 });
        } else {
            a.chunk = Some(CHUNK_TOKENS);
            if keys.count("expert_count")? != EXPERTS_OF_MAVERICK {
                let group = QkNormGroup::UnweightedHead;
                a.qk_norm = Some(QkNormSpec { group, after_rope: true });
            }
        }
        if let Some(experts) = &mut layer.experts {
            if experts.experts_per_token != 1 {
                let used = experts.experts_per_token;
                return Err(keys.unsupported("expert_used_count", &used, "it must be 1"));
            }
            experts.gate = GateFunction::Sigmoid;
            experts.normalize = false;
            experts.scales_input = true;
            // The shared expert is as wide as the others.
            experts.shared_intermediate_size = Some(experts.intermediate_size);
        }
    }
    Ok(config)
}
