//! Whole models of a few layers, built as those of files are: every op among the others, in every
//! fused form.

pub(super) mod gated;
pub(super) mod latent;
pub(super) mod recurrent;

use std::convert::Infallible;

use rf_graph::layer::{
    AttentionSpec, BeforeAttention, DenseSpec, ExpertSpec, KvSource, LayerSpec, LayerWeights,
    Mixer, NormKind, QkNormGroup, QkNormSpec, Role, RoleShape, layer,
};
use rf_graph::{
    Activation, Function, GateFunction, GraphBuilder, KvLayer, KvType, RopeStyle, StateShape,
    ValueId, WeightId,
};
use rf_quant::DType;

use super::bound::ErrorBound;
use super::definition::Case;
use super::net::Net;
use super::rows::rope;
use super::schedule::Schedule;

/// A model: its layers and the weights that they have.
#[derive(Clone)]
struct Model {
    layers: Vec<LayerSpec>,
    /// The vectors that layers have, and the gate of the shared expert. Other matrices exist
    /// wherever a layer reads them.
    vectors: &'static [Role],
    /// The weights that have a bias.
    biased: &'static [Role],
    /// The format of most matrices.
    dtype: DType,
    /// The format of the matrices of v, down and the head.
    better_dtype: DType,
    /// The format of the experts of the last layer. Those of earlier layers are F16: with int8
    /// activations before a router, a token could select other experts than in the reference.
    expert_dtype: DType,
    kv: KvType,
    embedding_scale: f32,
    logit_softcap: Option<f32>,
}

const PRE_NORMS: &[Role] = &[Role::AttentionNorm, Role::FeedForwardNorm];

pub(super) fn cases() -> Vec<Case> {
    let models = [
        ("llama", llama()),
        (
            "llama-q4_k",
            Model { dtype: DType::Q4K, better_dtype: DType::Q6K, kv: KvType::F16, ..llama() },
        ),
        (
            "llama-q8_0",
            Model { dtype: DType::Q8_0, better_dtype: DType::F16, kv: KvType::Q8_0, ..llama() },
        ),
        ("llama-fp8", Model { kv: KvType::Fp8, ..llama() }),
        ("llama-kv-q4_0", Model { kv: KvType::Q4_0, ..llama() }),
        ("qwen2", qwen2()),
        ("qwen3", qwen3(1)),
        (
            "qwen3-q5_0",
            Model { dtype: DType::Q5_0, better_dtype: DType::Q8_0, kv: KvType::F16, ..qwen3(3) },
        ),
        ("gemma", gemma()),
        ("gemma4", gemma4()),
        ("gpt-oss", gpt_oss()),
        ("glm4.5", glm45()),
        ("cohere", cohere()),
        ("olmo2", olmo2()),
        ("bert", bert()),
    ];
    models.into_iter().map(|(name, model)| case(name, model)).collect()
}

fn case(name: &str, model: Model) -> Case {
    let steps: [&[(usize, usize)]; 4] =
        [&[(0, 18)], &[(0, 1)], &[(1, 11), (0, 1)], &[(1, 1), (0, 1)]];
    let mut schedule =
        Schedule::steps(16, &steps).without_first_output().with_layers(model.kv, model.caches());
    if !model.states().is_empty() {
        schedule = schedule.with_states(model.states());
    }
    let dtypes = [model.dtype, model.better_dtype, model.expert_dtype];
    let is_float = dtypes.map(ErrorBound::of_matmul) == [ErrorBound::Float; 3];
    let bound = match (is_float, model.kv) {
        (true, KvType::Fp8) => ErrorBound::CacheFp8,
        (true, KvType::Q4_0 | KvType::Q5_0) => ErrorBound::CacheInt4,
        (true, _) => ErrorBound::FloatModel,
        (false, _) => ErrorBound::Int8Model,
    };
    Case::program_of(format!("model/{name}"), None, bound, schedule, move |net| model.build(net))
}

/// Two layers with RoPE and a gated unit.
fn transformer(
    hidden_size: usize,
    [num_heads, num_kv_heads, head_dim]: [usize; 3],
    style: RopeStyle,
) -> Model {
    let (activation, gated) = (Activation::Silu, true);
    let dense = DenseSpec { intermediate_size: 512, activation, gated, xielu: None, clamp: None };
    let layer = |index| LayerSpec {
        hidden_size,
        norm: NormKind::Rms,
        norm_eps: 1e-5,
        post_norm_eps: 1e-5,
        mixer: Mixer::Attention(AttentionSpec {
            rope: Some(rope(style, head_dim, head_dim, 1.0)),
            ..AttentionSpec::new(num_heads, num_kv_heads, head_dim, index)
        }),
        dense: Some(dense),
        experts: None,
        parallel: false,
        residual_scale: 1.0,
        output_scale: 1.0,
        per_layer_input: None,
        altup: None,
    };
    Model {
        layers: (0..2).map(layer).collect(),
        vectors: PRE_NORMS,
        biased: &[],
        dtype: DType::F16,
        better_dtype: DType::F32,
        expert_dtype: DType::F16,
        kv: KvType::F32,
        embedding_scale: 1.0,
        logit_softcap: None,
    }
}

fn llama() -> Model {
    transformer(256, [4, 2, 64], RopeStyle::Normal)
}

fn qwen2() -> Model {
    let biased = &[Role::Query, Role::Key, Role::Value];
    Model { biased, ..transformer(256, [4, 2, 64], RopeStyle::Neox) }
}

fn qwen3(num_kv_heads: usize) -> Model {
    let mut model = transformer(256, [3, num_kv_heads, 96], RopeStyle::Neox);
    model.vectors = &[Role::AttentionNorm, Role::FeedForwardNorm, Role::QueryNorm, Role::KeyNorm];
    model.normalize_qk(QkNormGroup::Head);
    model
}

/// Norms before and after attention and feed-forward, and of q and k.
const GEMMA_NORMS: &[Role] = &[
    Role::AttentionNorm,
    Role::FeedForwardNorm,
    Role::PostAttentionNorm,
    Role::PostFeedForwardNorm,
    Role::QueryNorm,
    Role::KeyNorm,
    Role::PerLayerNorm,
];

/// Gemma 3: windows.
fn gemma() -> Model {
    let mut model = transformer(256, [4, 1, 64], RopeStyle::Neox);
    model.vectors = GEMMA_NORMS;
    model.normalize_qk(QkNormGroup::Head);
    for layer in &mut model.layers {
        attention(layer).window = Some(9);
        layer.dense = layer.dense.map(|d| DenseSpec { activation: Activation::GeluTanh, ..d });
    }
    model
}

/// Gemma 4: layers with a window and layers with larger heads, each once with keys and values of
/// its own and once with those of the earlier layer.
fn gemma4() -> Model {
    let mut model = transformer(160, [4, 2, 64], RopeStyle::Neox);
    model.vectors = GEMMA_NORMS;
    model.embedding_scale = 160_f32.sqrt();
    model.logit_softcap = Some(3.0);
    model.normalize_qk(QkNormGroup::Head);
    for layer in &mut model.layers {
        layer.dense = layer.dense.map(|d| DenseSpec { activation: Activation::GeluTanh, ..d });
        attention(layer).normalizes_values = true;
        attention(layer).scale = 0.2;
        layer.per_layer_input = Some(32);
        layer.output_scale = 0.7;
    }
    let [window, full] = model.layers.as_mut_slice() else { unreachable!("two layers") };
    attention(window).window = Some(9);
    attention(full).kv = KvSource::SharedProjection;
    attention(full).num_kv_heads = 1;
    (attention(full).head_dim, attention(full).value_dim) = (128, 128);
    attention(full).rope = Some(rope(RopeStyle::Neox, 128, 64, 1.0));
    let mut readers = model.layers.clone();
    for layer in &mut readers {
        attention(layer).kv = KvSource::Cache;
    }
    model.layers.extend(readers);
    model
}

/// gpt-oss: sinks, windows, biases everywhere, experts with the clamped gated unit.
fn gpt_oss() -> Model {
    let mut model = transformer(160, [4, 2, 64], RopeStyle::Neox);
    model.vectors = &[Role::AttentionNorm, Role::FeedForwardNorm, Role::Sinks];
    model.biased = &[
        Role::Query,
        Role::Key,
        Role::Value,
        Role::AttentionOutput,
        Role::Router,
        Role::ExpertGate,
        Role::ExpertUp,
        Role::ExpertDown,
    ];
    model.expert_dtype = DType::Mxfp4;
    attention(&mut model.layers[0]).window = Some(9);
    for layer in &mut model.layers {
        layer.dense = None;
        layer.experts = Some(ExpertSpec {
            count: 6,
            experts_per_token: 2,
            intermediate_size: 96,
            activation: Activation::ClampedSwiglu,
            gated: true,
            clamp: None,
            gate: GateFunction::SoftmaxOfSelected,
            groups: None,
            normalize: true,
            scale: 1.0,
            scales_input: false,
            shared_intermediate_size: None,
            before_attention: BeforeAttention::Nothing,
            adjugates: None,
            shared_clamp: None,
            output_scale: 1.0,
        });
    }
    model
}

/// GLM 4.5: a dense layer, then experts that a sigmoid weights, with a shared expert.
fn glm45() -> Model {
    let mut model = transformer(256, [4, 2, 64], RopeStyle::Neox);
    model.vectors = &[Role::AttentionNorm, Role::FeedForwardNorm, Role::SelectionBias];
    model.biased = &[Role::Query, Role::Key, Role::Value];
    model.expert_dtype = DType::Q4K;
    for layer in &mut model.layers {
        attention(layer).rope = Some(rope(RopeStyle::Neox, 64, 32, 1.0));
    }
    model.layers[1].dense = None;
    model.layers[1].experts = Some(ExpertSpec {
        count: 10,
        experts_per_token: 3,
        intermediate_size: 256,
        activation: Activation::Silu,
        gated: true,
        clamp: None,
        gate: GateFunction::Sigmoid,
        groups: None,
        normalize: true,
        scale: 1.5,
        scales_input: false,
        shared_intermediate_size: Some(96),
        before_attention: BeforeAttention::Nothing,
        adjugates: None,
        shared_clamp: None,
        output_scale: 1.0,
    });
    model
}

/// Cohere: attention and feed-forward read the same layer norm, and full layers have no RoPE.
fn cohere() -> Model {
    let mut model = transformer(144, [4, 2, 64], RopeStyle::Normal);
    model.vectors = &[Role::AttentionNorm];
    for layer in &mut model.layers {
        layer.norm = NormKind::Layer;
        layer.parallel = true;
        layer.residual_scale = 0.5;
    }
    attention(&mut model.layers[0]).window = Some(9);
    attention(&mut model.layers[1]).rope = None;
    model
}

/// `OLMo` 2: norms after attention and feed-forward only, and over all heads of q and k.
fn olmo2() -> Model {
    let mut model = transformer(144, [3, 1, 96], RopeStyle::Neox);
    model.vectors =
        &[Role::PostAttentionNorm, Role::PostFeedForwardNorm, Role::QueryNorm, Role::KeyNorm];
    model.normalize_qk(QkNormGroup::Row);
    model
}

/// BERT: attention in both directions, layer norms after the residual, no RoPE and no gate.
fn bert() -> Model {
    let mut model = transformer(144, [3, 3, 48], RopeStyle::Neox);
    model.vectors = &[Role::AttentionResidualNorm, Role::FeedForwardResidualNorm];
    model.biased = &[
        Role::Query,
        Role::Key,
        Role::Value,
        Role::AttentionOutput,
        Role::AttentionResidualNorm,
        Role::Up,
        Role::Down,
        Role::FeedForwardResidualNorm,
    ];
    for layer in &mut model.layers {
        layer.norm = NormKind::Layer;
        attention(layer).rope = None;
        attention(layer).causal = false;
        let activation = Activation::GeluTanh;
        layer.dense = layer.dense.map(|d| DenseSpec { activation, gated: false, ..d });
    }
    model
}

fn attention(layer: &mut LayerSpec) -> &mut AttentionSpec {
    layer.attention_mut().expect("a layer with attention")
}

impl Model {
    fn normalize_qk(&mut self, group: QkNormGroup) {
        for layer in &mut self.layers {
            attention(layer).qk_norm = Some(QkNormSpec { group, after_rope: false });
        }
    }

    /// The layers of the cache.
    fn caches(&self) -> Vec<KvLayer> {
        self.layers.iter().filter_map(LayerSpec::kv_layer).collect()
    }

    /// The recurrent states of a sequence.
    fn states(&self) -> Vec<StateShape> {
        self.layers.iter().flat_map(LayerSpec::states).collect()
    }

    fn build(&self, net: &mut Net) -> ValueId {
        let hidden_size = self.layers[0].hidden_size;
        let mut x = net.embedding(self.dtype, hidden_size, self.embedding_scale);
        let per_layer = self.layers[0].per_layer_input.map(|width| {
            let columns = self.layers.len() * width;
            let projection = net.matrix(self.dtype, columns, hidden_size);
            let (projected, norm) = (net.g.matmul(x, projection), net.norm_weight(width));
            let projected = net.g.rms_norm(projected, norm, 1e-5);
            let embedded = net.embedding(self.dtype, columns, 1.0);
            (net.g.add(projected, embedded), width)
        });
        for (index, spec) in self.layers.iter().enumerate() {
            let is_last = index + 1 == self.layers.len();
            let input =
                per_layer.map(|(all, width)| net.g.slice(all, index * width..(index + 1) * width));
            let Ok(y) = layer(&mut Weights { net, model: self, is_last }, spec, x, input);
            x = y;
        }
        let x = net.g.select_rows(x);
        let norm = net.norm_weight(hidden_size);
        let x = match self.layers[0].norm {
            NormKind::Rms => net.g.rms_norm(x, norm, 1e-5),
            NormKind::Layer => net.g.layer_norm(x, norm, None, 1e-5),
        };
        let head = net.matrix(self.better_dtype, 97, hidden_size);
        let logits = net.g.matmul(x, head);
        match self.logit_softcap {
            Some(cap) => net.g.map(logits, Function::Softcap(cap)),
            None => logits,
        }
    }
}

/// Random weights of one layer.
struct Weights<'a> {
    net: &'a mut Net,
    model: &'a Model,
    is_last: bool,
}

impl Weights<'_> {
    fn dtype(&self, role: Role) -> DType {
        match role {
            Role::Router | Role::SharedRouter | Role::ConvFilter => DType::F32,
            Role::ExpertGate | Role::ExpertUp | Role::ExpertDown if self.is_last => {
                self.model.expert_dtype
            }
            Role::ExpertGate | Role::ExpertUp | Role::ExpertDown => DType::F16,
            Role::Value | Role::LatentValue | Role::Down => self.model.better_dtype,
            _ => self.model.dtype,
        }
    }
}

impl LayerWeights for Weights<'_> {
    type Error = Infallible;

    fn graph(&mut self) -> &mut GraphBuilder {
        &mut self.net.g
    }

    fn weight(&mut self, layer: &LayerSpec, role: Role) -> Result<Option<WeightId>, Infallible> {
        let is_vector = matches!(role.shape(layer), RoleShape::Vector(_));
        let is_required = matches!(role, Role::Decay | Role::DecayBias | Role::Skip);
        let is_optional = is_vector || matches!(role, Role::SharedRouter | Role::BetaAlpha);
        if !is_required && is_optional && !self.model.vectors.contains(&role) {
            return Ok(None);
        }
        Ok(Some(match (role, role.shape(layer)) {
            (Role::Sinks | Role::SelectionBias | Role::DecayBias, RoleShape::Vector(len)) => {
                self.net.vector(len)
            }
            (Role::Decay, RoleShape::Vector(len)) => self.net.decays(len),
            (Role::Decay, RoleShape::Matrix([rows, columns])) => {
                self.net.decay_rates(rows, columns)
            }
            (Role::MixerNorm, RoleShape::Matrix([rows, columns])) => {
                self.net.norm_weights(rows, columns)
            }
            (_, RoleShape::Vector(len)) => self.net.norm_weight(len),
            (_, RoleShape::Matrix([rows, columns]) | RoleShape::Experts([_, rows, columns])) => {
                self.net.matrix(self.dtype(role), rows, columns)
            }
        }))
    }

    fn bias(&mut self, layer: &LayerSpec, role: Role) -> Result<Option<WeightId>, Infallible> {
        Ok(self.model.biased.contains(&role).then(|| match role.shape(layer) {
            RoleShape::Vector(len) | RoleShape::Matrix([len, _]) => self.net.vector(len),
            RoleShape::Experts([count, rows, _]) => self.net.table(DType::F32, count, rows),
        }))
    }

    fn experts(&mut self, layer: &LayerSpec, role: Role) -> Result<Vec<WeightId>, Infallible> {
        let RoleShape::Experts([count, rows, columns]) = role.shape(layer) else {
            unreachable!("{role:?} is not a role of experts")
        };
        let dtype = self.dtype(role);
        Ok((0..count).map(|_| self.net.matrix(dtype, rows, columns)).collect())
    }

    fn constant(&mut self, len: usize, value: f32) -> WeightId {
        self.net.constant(len, value)
    }
}
