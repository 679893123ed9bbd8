//! Attention with a gate on its output, and what models with one have besides.

use rf_graph::layer::{BeforeAttention, ExpertSpec, OutputGate, Role};
use rf_graph::{Activation, GateFunction, Gating, RopeStyle};

use super::super::definition::Case;
use super::{Model, PRE_NORMS, attention, case, transformer};

/// The cases.
pub(in super::super) fn cases() -> Vec<Case> {
    let models = [("gated", gated()), ("gated-elements", elements())];
    models.into_iter().map(|(name, model)| case(name, model)).collect()
}

/// Step 3.5 and `MiMo` V2: a gate per head, values shorter than keys, bounds of queries, keys,
/// values and of gated units.
fn gated() -> Model {
    let mut model = transformer(256, [4, 2, 64], RopeStyle::Neox);
    model.vectors = &[Role::AttentionNorm, Role::FeedForwardNorm, Role::Sinks];
    for layer in &mut model.layers {
        let a = attention(layer);
        (a.value_dim, a.value_scale, a.clamp) = (48, 0.7, Some(1.5));
        a.output_gate = Some(OutputGate { function: Gating::Sigmoid, width: 4 });
        layer.dense = layer.dense.map(|mut dense| {
            dense.clamp = Some(0.8);
            dense
        });
    }
    model.layers[1].dense = None;
    model.layers[1].experts = Some(ExpertSpec {
        count: 6,
        experts_per_token: 2,
        intermediate_size: 96,
        activation: Activation::Silu,
        gated: true,
        clamp: Some(0.6),
        gate: GateFunction::Sigmoid,
        groups: None,
        normalize: true,
        scale: 2.0,
        scales_input: false,
        shared_intermediate_size: Some(96),
        shared_clamp: Some(0.9),
        output_scale: 0.5,
        before_attention: BeforeAttention::Nothing,
        adjugates: None,
    });
    model
}

/// Laguna M.1: a gate per element. Norms with a bias as in Phi.
fn elements() -> Model {
    let mut model = transformer(256, [4, 2, 64], RopeStyle::Normal);
    model.vectors = PRE_NORMS;
    model.biased = PRE_NORMS;
    for layer in &mut model.layers {
        attention(layer).output_gate = Some(OutputGate { function: Gating::Softplus, width: 256 });
    }
    model
}
