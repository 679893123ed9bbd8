//! gpt-oss: attention sinks, alternating windows, biases everywhere, experts with a clamped gated
//! unit.

use rf_graph::layer::Role;
use rf_graph::{Activation, GateFunction, RopeStyle};

use super::family::Family;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::{WeightTable, row};

pub(super) const GPT_OSS: Family = Family {
    name: "gpt-oss",
    config: gpt_oss,
    weights: &[&[
        row(Role::AttentionNorm, "attn_norm"),
        row(Role::FeedForwardNorm, "post_attention_norm"),
        row(Role::Query, "attn_q").with_bias(),
        row(Role::Key, "attn_k").with_bias(),
        row(Role::Value, "attn_v").with_bias(),
        row(Role::Sinks, "attn_sinks"),
        row(Role::AttentionOutput, "attn_output").with_bias(),
        row(Role::Router, "ffn_gate_inp").with_bias(),
        row(Role::ExpertGate, "ffn_gate_exps").with_bias(),
        row(Role::ExpertUp, "ffn_up_exps").with_bias(),
        row(Role::ExpertDown, "ffn_down_exps").with_bias(),
    ]],
};

fn gpt_oss(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    config.set_windows(keys, Some(128), 2)?;
    config.set_activation(Activation::ClampedSwiglu);
    for layer in &mut config.layers {
        let Some(experts) = &mut layer.experts else {
            return Err(keys.missing("expert_count"));
        };
        experts.gate = GateFunction::SoftmaxOfSelected;
    }
    Ok(config)
}
