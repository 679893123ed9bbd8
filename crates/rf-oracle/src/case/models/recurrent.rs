//! Models with recurrent layers.

use rf_graph::layer::{
    BeforeAttention, DeltaNetSpec, DenseSpec, ExpertSpec, LatentSpec, LayerSpec, MambaSpec, Mixer,
    OutputGate, QkNormGroup, Role, ScanSpec, ShortConvSpec,
};
use rf_graph::{
    Activation, DeltaDecay, DeltaHeads, GateFunction, Gating, RopeStyle, StateSpaceHeads,
};
use rf_quant::DType;

use super::super::definition::Case;
use super::super::rows::rope;
use super::{Model, PRE_NORMS, case, transformer};

pub(in crate::case) fn cases() -> Vec<Case> {
    let quantized =
        Model { dtype: DType::Q8_0, better_dtype: DType::Q6K, ..lfm2([Some(0), None, Some(1)]) };
    let models = [
        ("lfm2", lfm2([Some(0), None, Some(1)])),
        ("lfm2-q8_0", quantized),
        ("lfm2-without-attention", lfm2([Some(0), Some(1), Some(2)])),
        ("qwen3.5", qwen35(true)),
        ("qwen3-next", qwen35(false)),
        ("kimi-linear", kimi_linear()),
        ("ling-3", ling3()),
        ("nemotron-h", nemotron_h()),
        ("falcon-h1", falcon_h1()),
        ("jamba", jamba()),
    ];
    models.into_iter().map(|(name, model)| case(name, model)).collect()
}

/// LFM2: short convolutions, given by the index of their state, and attention.
fn lfm2(states: [Option<usize>; 3]) -> Model {
    let mut model = transformer(256, [4, 2, 64], RopeStyle::Neox);
    model.vectors = PRE_NORMS;
    let attention = model.layers.remove(0);
    model.layers = states
        .into_iter()
        .map(|state| match state {
            Some(state) => {
                let mixer = Mixer::ShortConv(ShortConvSpec { taps: 3, state });
                LayerSpec { mixer, ..attention.clone() }
            }
            None => attention.clone(),
        })
        .collect();
    model
}

/// Qwen 3.5 and Qwen 3 Next: two layers of a gated delta rule, then one of gated attention.
fn qwen35(interleaved: bool) -> Model {
    const VECTORS: &[Role] =
        &[Role::AttentionNorm, Role::FeedForwardNorm, Role::QueryNorm, Role::KeyNorm];
    const FUSED: &[Role] = &[
        Role::AttentionNorm,
        Role::FeedForwardNorm,
        Role::QueryNorm,
        Role::KeyNorm,
        Role::BetaAlpha,
    ];
    let mut model = transformer(160, [2, 1, 96], RopeStyle::Neox);
    model.vectors = if interleaved { VECTORS } else { FUSED };
    model.normalize_qk(QkNormGroup::Head);
    let mut attends = model.layers.remove(0);
    let attention = super::attention(&mut attends);
    attention.gated = true;
    attention.rope = Some(rope(RopeStyle::Neox, 96, 32, 1.0));
    let heads = DeltaHeads {
        num_key_heads: 2,
        num_value_heads: 4,
        key_dim: 40,
        value_dim: 24,
        interleaved,
    };
    model.layers = (0..2)
        .map(|layer| {
            let (decay, first_state) = (DeltaDecay::Head, 2 * layer);
            let delta = DeltaNetSpec { heads, decay, gate_rank: None, taps: 4, first_state };
            LayerSpec { mixer: Mixer::DeltaNet(delta), ..attends.clone() }
        })
        .collect();
    model.layers.push(attends);
    model
}

/// Kimi Linear: two layers of a delta rule with a decay per channel, whose gates are projections of
/// low rank, then latent attention without RoPE.
fn kimi_linear() -> Model {
    delta_and_latent(DeltaDecay::Channel, Some(24), None)
}

/// Ling 3: a bounded decay, gates without a latent, and latent attention with a gate per head.
fn ling3() -> Model {
    let gate = OutputGate { function: Gating::Sigmoid, width: 3 };
    delta_and_latent(DeltaDecay::BoundedChannel { bound: -5.0 }, None, Some(gate))
}

/// The attention with a gate has RoPE.
fn delta_and_latent(
    decay: DeltaDecay,
    gate_rank: Option<usize>,
    output_gate: Option<OutputGate>,
) -> Model {
    let mut model = transformer(160, [2, 1, 64], RopeStyle::Normal);
    model.vectors = &[Role::AttentionNorm, Role::FeedForwardNorm, Role::LatentNorm];
    let heads = DeltaHeads {
        num_key_heads: 3,
        num_value_heads: 3,
        key_dim: 40,
        value_dim: 40,
        interleaved: false,
    };
    let mut attends = model.layers.remove(0);
    attends.mixer = Mixer::Latent(LatentSpec {
        num_heads: 3,
        query_rank: None,
        latent_dim: 128,
        nope_dim: 32,
        value_dim: 24,
        shared_dim: 16,
        rope: output_gate.map(|_| rope(RopeStyle::Normal, 16, 16, 1.0)),
        position_scale: None,
        scale: 0.2,
        output_gate,
        kv_layer: 0,
    });
    let delta = |first_state| LayerSpec {
        mixer: Mixer::DeltaNet(DeltaNetSpec { heads, decay, gate_rank, taps: 4, first_state }),
        ..attends.clone()
    };
    model.layers = vec![delta(0), delta(2), attends.clone()];
    model
}

/// Nemotron H: layers of one part each. State spaces, a feed-forward layer and experts without a
/// gate, attention without RoPE.
fn nemotron_h() -> Model {
    let mut model = transformer(144, [2, 1, 64], RopeStyle::Neox);
    model.vectors = &[Role::AttentionNorm, Role::FeedForwardNorm, Role::ConvBias];
    let mut attends = model.layers.remove(0);
    super::attention(&mut attends).rope = None;
    attends.dense = None;
    let heads = StateSpaceHeads { num_heads: 4, head_dim: 40, num_groups: 2, state_dim: 24 };
    let mamba = |first_state| LayerSpec {
        mixer: Mixer::Mamba(MambaSpec { heads, taps: 4, first_state }),
        ..attends.clone()
    };
    let activation = Activation::SquaredRelu;
    let feed_forward = LayerSpec {
        mixer: Mixer::None,
        dense: Some(DenseSpec {
            intermediate_size: 96,
            activation,
            gated: false,
            xielu: None,
            clamp: None,
        }),
        ..attends.clone()
    };
    let experts = LayerSpec {
        mixer: Mixer::None,
        experts: Some(ExpertSpec {
            count: 6,
            experts_per_token: 2,
            intermediate_size: 96,
            activation,
            gated: false,
            clamp: None,
            gate: GateFunction::Sigmoid,
            groups: None,
            normalize: true,
            scale: 2.5,
            scales_input: false,
            shared_intermediate_size: Some(80),
            before_attention: BeforeAttention::Nothing,
            adjugates: None,
            shared_clamp: None,
            output_scale: 1.0,
        }),
        ..attends.clone()
    };
    model.layers = vec![mamba(0), feed_forward, attends.clone(), mamba(2), experts];
    model
}

/// Falcon H1: attention and a state space in every layer.
fn falcon_h1() -> Model {
    let mut model = transformer(144, [4, 2, 64], RopeStyle::Neox);
    model.vectors = PRE_NORMS;
    let heads = StateSpaceHeads { num_heads: 4, head_dim: 40, num_groups: 1, state_dim: 24 };
    for (index, layer) in model.layers.iter_mut().enumerate() {
        let attention = super::attention(layer).clone();
        let mamba = MambaSpec { heads, taps: 4, first_state: 2 * index };
        layer.mixer = Mixer::AttentionAndMamba(attention, mamba);
    }
    model
}

/// Jamba: a scan whose inputs have norms, some with weights, then attention without RoPE.
fn jamba() -> Model {
    let mut model = transformer(144, [2, 1, 64], RopeStyle::Neox);
    model.vectors =
        &[Role::AttentionNorm, Role::FeedForwardNorm, Role::ConvBias, Role::TimeStepNorm];
    model.biased = &[Role::TimeStep];
    super::attention(&mut model.layers[1]).rope = None;
    model.layers[0].mixer = Mixer::Scan(ScanSpec {
        channels: 200,
        state_dim: 16,
        time_step_rank: 10,
        normalized: true,
        heads: None,
        taps: 4,
        first_state: 0,
    });
    // The cache has one layer.
    super::attention(&mut model.layers[1]).kv_layer = 0;
    model
}
