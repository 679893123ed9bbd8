//! Whole models of two layers: every op among the others, in every fused form.

use rf_quant::DType;

use super::bound::Bound;
use super::definition::Case;
use super::net::Net;
use super::rows::rope;
use super::schedule::Schedule;
use crate::backend::KvType;
use crate::op::{Activation, Attention, RopeStyle};
use crate::value::ValueId;

/// The differences between model families.
#[derive(Clone, Copy)]
struct Family {
    hidden_size: usize,
    num_heads: usize,
    num_kv_heads: usize,
    head_dim: usize,
    style: RopeStyle,
    bias: bool,
    qk_norm: bool,
    /// Norms after attention and feed-forward, before the residual add.
    post_norm: bool,
    activation: Activation,
    window: Option<usize>,
    /// The format of most matrices.
    dtype: DType,
    /// The format of the matrices of v, down and the head.
    better_dtype: DType,
}

const LLAMA: Family = Family {
    hidden_size: 256,
    num_heads: 4,
    num_kv_heads: 2,
    head_dim: 64,
    style: RopeStyle::Normal,
    bias: false,
    qk_norm: false,
    post_norm: false,
    activation: Activation::Silu,
    window: None,
    dtype: DType::F16,
    better_dtype: DType::F32,
};

const EPS: f32 = 1e-5;

pub(super) fn cases() -> Vec<Case> {
    let qwen2 = Family { style: RopeStyle::Neox, bias: true, ..LLAMA };
    let qwen3 = Family { qk_norm: true, bias: false, num_heads: 3, head_dim: 96, ..qwen2 };
    let gemma = Family {
        post_norm: true,
        qk_norm: true,
        activation: Activation::GeluTanh,
        window: Some(9),
        num_kv_heads: 1,
        style: RopeStyle::Neox,
        ..LLAMA
    };
    let families = [
        ("llama", LLAMA, KvType::F32),
        (
            "llama-q4_k",
            Family { dtype: DType::Q4K, better_dtype: DType::Q6K, ..LLAMA },
            KvType::F16,
        ),
        (
            "llama-q8_0",
            Family { dtype: DType::Q8_0, better_dtype: DType::F16, ..LLAMA },
            KvType::Q8_0,
        ),
        ("llama-fp8", LLAMA, KvType::Fp8),
        ("qwen2", qwen2, KvType::F32),
        ("qwen3", Family { num_kv_heads: 1, ..qwen3 }, KvType::F32),
        (
            "qwen3-q5_0",
            Family { num_kv_heads: 3, dtype: DType::Q5_0, better_dtype: DType::Q8_0, ..qwen3 },
            KvType::F16,
        ),
        ("gemma", gemma, KvType::F32),
    ];
    let case = |(name, family, kv): (&str, Family, KvType)| {
        let steps: [&[(usize, usize)]; 4] =
            [&[(0, 18)], &[(0, 1)], &[(1, 11), (0, 1)], &[(1, 1), (0, 1)]];
        let layers = vec![(family.num_kv_heads, family.head_dim); 2];
        let schedule = Schedule::steps(16, &steps).without_first_output().with_cache(kv, layers);
        let bound = match (Bound::of_matmul(family.dtype), kv) {
            (Bound::Float, KvType::Fp8) => Bound::CacheFp8,
            (Bound::Float, _) => Bound::FloatModel,
            _ => Bound::Int8Model,
        };
        let name = format!("model/{name}");
        Case::program_of(name, None, bound, schedule, move |net| build(net, &family))
    };
    families.into_iter().map(case).collect()
}

fn build(net: &mut Net, family: &Family) -> ValueId {
    let mut x = net.embedding(family.dtype, family.hidden_size, 1.0);
    for layer in 0..2 {
        x = attention(net, family, layer, x);
        x = feed_forward(net, family, x);
    }
    let x = norm(net, x, family.hidden_size);
    let x = net.g.select_rows(x);
    let head = net.matrix(family.better_dtype, 97, family.hidden_size);
    net.g.matmul(x, head)
}

fn attention(net: &mut Net, family: &Family, layer: usize, residual: ValueId) -> ValueId {
    let Family { hidden_size, num_heads, num_kv_heads, head_dim, .. } = *family;
    let x = norm(net, residual, hidden_size);
    let [mut q, mut k, v] = [
        (num_heads, family.dtype),
        (num_kv_heads, family.dtype),
        (num_kv_heads, family.better_dtype),
    ]
    .map(|(heads, dtype)| {
        let w = net.matrix(dtype, heads * head_dim, hidden_size);
        let bias = family.bias.then(|| net.vector(heads * head_dim));
        net.g.linear(x, w, bias)
    });
    if family.qk_norm {
        q = norm(net, q, head_dim);
        k = norm(net, k, head_dim);
    }
    let rope = rope(family.style, head_dim, head_dim, 1.0);
    let (q, k) = (net.g.rope(q, &rope), net.g.rope(k, &rope));
    let attention = Attention {
        window: family.window,
        ..Attention::new(layer, num_heads, num_kv_heads, head_dim)
    };
    let x = net.g.attention(q, k, v, &attention);
    let w = net.matrix(family.dtype, hidden_size, num_heads * head_dim);
    let x = net.g.matmul(x, w);
    add(net, family, residual, x)
}

fn feed_forward(net: &mut Net, family: &Family, residual: ValueId) -> ValueId {
    let hidden_size = family.hidden_size;
    let intermediate_size = 512;
    let x = norm(net, residual, hidden_size);
    let gate = net.matrix(family.dtype, intermediate_size, hidden_size);
    let up = net.matrix(family.dtype, intermediate_size, hidden_size);
    let (gate, up) = (net.g.matmul(x, gate), net.g.matmul(x, up));
    let x = net.g.glu(family.activation, gate, up);
    let down = net.matrix(family.better_dtype, hidden_size, intermediate_size);
    let x = net.g.matmul(x, down);
    add(net, family, residual, x)
}

fn add(net: &mut Net, family: &Family, residual: ValueId, x: ValueId) -> ValueId {
    let x = if family.post_norm { norm(net, x, family.hidden_size) } else { x };
    net.g.add(residual, x)
}

fn norm(net: &mut Net, x: ValueId, group: usize) -> ValueId {
    let weight = net.norm_weight(group);
    net.g.rms_norm(x, weight, EPS)
}
