//! `GroveMoE`: Qwen 3 with experts that groups of experts share.

use rf_graph::RopeStyle;
use rf_graph::layer::{AdjugateSpec, QkNormGroup, Role};

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::{WeightTable, row};

pub(super) const GROVEMOE: Family = Family {
    name: "grovemoe",
    config: grovemoe,
    weights: &[
        rows::PRE_NORMS,
        rows::ATTENTION,
        rows::QK_NORM,
        rows::EXPERTS,
        &[
            row(Role::AdjugateGate, "ffn_gate_chexps"),
            row(Role::AdjugateUp, "ffn_up_chexps"),
            row(Role::AdjugateDown, "ffn_down_chexps"),
        ],
    ],
};

fn grovemoe(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    config.set_qk_norm(QkNormGroup::Head, false);
    let adjugates = AdjugateSpec {
        group: keys.size("experts_per_group")?,
        intermediate_size: keys.size("expert_chunk_feed_forward_length")?,
        scale: keys.factor("expert_group_scale", 1.0)?,
    };
    for experts in config.layers.iter_mut().filter_map(|layer| layer.experts.as_mut()) {
        let count = experts.count;
        if !count.is_multiple_of(adjugates.group) {
            let reason = format!("it must divide the {count} experts");
            return Err(keys.invalid("experts_per_group", &adjugates.group, &reason));
        }
        let adjugate_count = count / adjugates.group;
        if experts.experts_per_token > adjugate_count {
            let reason = format!("more experts per token than the {adjugate_count} groups");
            let used = experts.experts_per_token;
            return Err(keys.unsupported("expert_used_count", &used, &reason));
        }
        experts.adjugates = Some(adjugates);
    }
    Ok(config)
}
