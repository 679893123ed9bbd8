//! The formulas.

use crate::backend::{Batch, Span};
use crate::op::{Activation, Attention, Rope};
use crate::weight::Weight;

/// `y = x / √(mean(x²) + eps) · w` over groups of `w.len()` elements.
///
/// Shapes: x `[rows, width]`, w `[group]`; `group` divides `width`.
pub fn rms_norm(x: &[f32], w: &[f32], eps: f32) -> Vec<f32> {
    x.chunks_exact(w.len())
        .flat_map(|x| {
            let mean_square =
                x.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>() / x.len() as f64;
            let scale = 1.0 / (mean_square + f64::from(eps)).sqrt();
            x.iter().zip(w).map(move |(x, w)| (f64::from(*x) * scale * f64::from(*w)) as f32)
        })
        .collect()
}

/// `y = x · Wᵀ`, `W` dequantised.
///
/// Shapes: x `[rows, columns]`, W `[outputs, columns]`, y `[rows, outputs]`.
pub fn matmul(x: &[f32], w: &Weight) -> Vec<f32> {
    let rows = x.len() / w.columns();
    let mut y = vec![0.0; rows * w.rows()];
    for output in 0..w.rows() {
        let w_row = w.row_f32(output);
        for (row, x) in x.chunks_exact(w.columns()).enumerate() {
            let dot: f64 = x.iter().zip(&w_row).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum();
            y[row * w.rows() + output] = dot as f32;
        }
    }
    y
}

/// Rotates each head of one token: `(x, y) → (x cos θ − y sin θ, x sin θ + y cos θ)` with
/// `θᵢ = position · inv_freqᵢ`.
///
/// Shapes: x `[num_heads · head_dim]`.
pub fn rope(x: &mut [f32], rope: &Rope, position: usize) {
    for head in x.chunks_exact_mut(rope.head_dim) {
        for i in 0..rope.inv_freq.len() {
            let (a, b) = rope.pair(i);
            let (cos, sin) = rope.cos_sin(position, i);
            let (x, y) = (f64::from(head[a]), f64::from(head[b]));
            let (cos, sin) = (f64::from(cos), f64::from(sin));
            head[a] = (x * cos - y * sin) as f32;
            head[b] = (x * sin + y * cos) as f32;
        }
    }
}

/// `activation(gate) · up`, element by element.
pub fn glu(activation: Activation, gate: &[f32], up: &[f32]) -> Vec<f32> {
    let f = |x: f64| match activation {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::GeluTanh => {
            let c = (2.0 / std::f64::consts::PI).sqrt();
            0.5 * x * (1.0 + (c * (x + 0.044_715 * x * x * x)).tanh())
        }
    };
    gate.iter().zip(up).map(|(g, u)| (f(f64::from(*g)) * f64::from(*u)) as f32).collect()
}

/// The `used` most probable experts of one token and their probabilities, renormalised: indices as
/// f32, then weights. Ties go to the lower index.
///
/// Shapes: logits `[experts]`, result `[2 · used]`.
pub fn route(logits: &[f32], used: usize) -> Vec<f32> {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let exp: Vec<f64> = logits.iter().map(|l| f64::from(l - max).exp()).collect();
    let sum: f64 = exp.iter().sum();
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
    order.truncate(used);
    // llama.cpp's bound, the smallest normal f16, against a division by nothing.
    let kept = order.iter().map(|e| exp[*e] / sum).sum::<f64>().max(6.103_515_625e-5);
    let weights = order.iter().map(|e| (exp[*e] / sum / kept) as f32);
    order.iter().map(|e| *e as f32).chain(weights).collect()
}

/// `Σₛ pₛ · xₛ` of one token.
///
/// Shapes: x `[slots, width]`, p `[slots]`.
pub fn combine_experts(x: &[f32], p: &[f32]) -> Vec<f32> {
    let width = x.len() / p.len();
    let at = |i: usize| x.iter().skip(i).step_by(width).zip(p);
    (0..width)
        .map(|i| at(i).map(|(x, p)| f64::from(*x) * f64::from(*p)).sum::<f64>() as f32)
        .collect()
}

/// `softmax(scale · q·kᵀ) · v` per query and head; query head `h` reads key head
/// `h / (num_heads / num_kv_heads)`.
///
/// `read(span, position)` gives all heads' keys and values of one cached position. Shapes: q
/// `[tokens, num_heads · head_dim]`, sinks `[num_heads]`.
pub fn attention(
    a: &Attention,
    sinks: Option<&[f32]>,
    q: &[f32],
    batch: &Batch<'_>,
    read: impl Fn(&Span<'_>, usize) -> (Vec<f32>, Vec<f32>),
) -> Vec<f32> {
    let mut out = vec![0.0; q.len()];
    let width = a.num_heads * a.head_dim;
    for span in batch.spans {
        let cached: Vec<_> =
            (0..span.past_tokens + span.tokens.len()).map(|p| read(span, p)).collect();
        for (i, token) in span.tokens.clone().enumerate() {
            let position = span.past_tokens + i;
            let first = a.window.map_or(0, |w| (position + 1).saturating_sub(w));
            for head in 0..a.num_heads {
                let q = &q[token * width + head * a.head_dim..][..a.head_dim];
                let kv = head / (a.num_heads / a.num_kv_heads) * a.head_dim..;
                let kv = kv.start..kv.start + a.head_dim;
                let scores: Vec<f64> = cached[first..=position]
                    .iter()
                    .map(|(k, _)| {
                        let dot: f64 = q
                            .iter()
                            .zip(&k[kv.clone()])
                            .map(|(q, k)| f64::from(*q) * f64::from(*k))
                            .sum();
                        let s = dot * f64::from(a.scale);
                        a.softcap.map_or(s, |c| f64::from(c) * (s / f64::from(c)).tanh())
                    })
                    .collect();
                let sink = sinks.map_or(f64::NEG_INFINITY, |s| f64::from(s[head]));
                let max = scores.iter().copied().fold(sink, f64::max);
                let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
                let sum = weights.iter().sum::<f64>() + (sink - max).exp();
                let out = &mut out[token * width + head * a.head_dim..][..a.head_dim];
                for (d, out) in out.iter_mut().enumerate() {
                    let values =
                        cached[first..=position].iter().map(|(_, v)| f64::from(v[kv.start + d]));
                    *out =
                        (weights.iter().zip(values).map(|(w, v)| w * v).sum::<f64>() / sum) as f32;
                }
            }
        }
    }
    out
}
