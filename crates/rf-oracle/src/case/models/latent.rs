//! Models with latent attention.

use rf_graph::layer::{LatentSpec, Mixer, Role};
use rf_graph::{ExpertGroups, KvType, PositionScale, RopeStyle};
use rf_quant::DType;

use super::super::definition::Case;
use super::super::rows::rope;
use super::{Model, case, glm45, transformer};

pub(in crate::case) fn cases() -> Vec<Case> {
    let quantized = Model {
        dtype: DType::Q8_0,
        better_dtype: DType::Q4K,
        kv: KvType::F16,
        ..dense_layers(deepseek(None))
    };
    let models = [
        ("deepseek", deepseek(Some(96))),
        ("deepseek-lite", deepseek(None)),
        ("deepseek-q8_0", quantized),
    ];
    models.into_iter().map(|(name, model)| case(name, model)).collect()
}

/// `DeepSeek`: latent attention with heads of 32 and 16 rotated elements; a dense layer, then
/// experts in groups, with a shared expert.
fn deepseek(query_rank: Option<usize>) -> Model {
    const VECTORS: &[Role] = &[
        Role::AttentionNorm,
        Role::FeedForwardNorm,
        Role::QueryLatentNorm,
        Role::LatentNorm,
        Role::SelectionBias,
    ];
    let mut model = transformer(256, [1, 1, 64], RopeStyle::Normal);
    model.vectors = VECTORS;
    for (kv_layer, layer) in model.layers.iter_mut().enumerate() {
        layer.mixer = Mixer::Latent(LatentSpec {
            num_heads: 5,
            query_rank,
            latent_dim: 256,
            nope_dim: 32,
            value_dim: 64,
            shared_dim: 16,
            rope: Some(rope(RopeStyle::Normal, 16, 16, 1.0)),
            position_scale: query_rank.map(|_| PositionScale { factor: 0.3, period: 8, offset: 0 }),
            scale: 0.2,
            output_gate: None,
            kv_layer,
        });
    }
    let experts = glm45().layers[1].experts;
    model.layers[1].dense = None;
    model.layers[1].experts = experts.map(|mut experts| {
        experts.groups = Some(ExpertGroups { count: 5, selected: 3 });
        experts
    });
    model
}

/// With int8 activations before a router, a token could select other experts than in the reference.
fn dense_layers(mut model: Model) -> Model {
    let dense = model.layers[0].dense;
    model.layers[1].experts = None;
    model.layers[1].dense = dense;
    model
}
