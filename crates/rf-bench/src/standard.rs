//! Attention step by step ("standard"): all scores of a head, their softmax, their matmul with the
//! values, with and without the causal mask. One host thread computes it in f32.
//!
//! Backends have one form of attention ([`crate::attention`]): causal, over pages, scores and
//! values in one pass ("flash"), so scores never reach memory. This one materialises all scores and
//! so measures what flash attention saves.

use std::hint::black_box;
use std::time::Instant;

use rf_oracle::case::Numbers;
use rf_oracle::case::speed::{Heads, USUAL_HEADS};
use rf_oracle::rf_graph::OpCost;

use crate::{Clock, Error, Prepared, Suite, Target, Task, Workload};

/// Attention of a sequence to itself.
#[derive(Clone, Debug)]
pub(crate) struct Standard {
    heads: Heads,
    tokens: usize,
    mask: Mask,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mask {
    /// Every query sees every key.
    None,
    /// A query sees keys up to its own.
    Causal,
}

pub(crate) fn workloads() -> Vec<Workload> {
    let mut workloads = Vec::new();
    for mask in [Mask::None, Mask::Causal] {
        for tokens in [32, 64, 128, 256, 512] {
            workloads.push(Workload::new(Standard { heads: USUAL_HEADS, tokens, mask }, false));
        }
    }
    workloads
}

impl Task for Standard {
    fn name(&self) -> String {
        let [num_heads, num_kv_heads, head_dim] = self.heads;
        let what = match self.mask {
            Mask::None => "standard",
            Mask::Causal => "standard-causal",
        };
        let tokens = self.tokens;
        format!("attention/heads={num_heads}:{num_kv_heads}x{head_dim}/f32/{what}/tokens={tokens}")
    }

    fn suite(&self) -> Suite {
        Suite::Attention
    }

    fn cost(&self) -> OpCost {
        let Self { heads: [num_heads, num_kv_heads, head_dim], tokens, mask } = *self;
        let pairs = match mask {
            Mask::None => tokens * tokens,
            Mask::Causal => tokens * (tokens + 1) / 2,
        };
        // Queries and results, keys and values.
        let floats = 2 * tokens * (num_heads + num_kv_heads) * head_dim;
        OpCost {
            bytes: (size_of::<f32>() * floats) as u64,
            f32_operations: (4 * num_heads * head_dim * pairs) as u64,
            int8_operations: 0,
        }
    }

    fn is_single_threaded(&self) -> bool {
        true
    }

    fn check(&self, target: &Target) -> Result<(), Error> {
        target.require_cpu("no GPU kernel materialises the scores")
    }

    fn prepare(&self, _target: &Target) -> Result<Prepared, Error> {
        let mut tensors = Tensors::new(self);
        Ok(Prepared::new(Clock::Host, move || {
            let start = Instant::now();
            black_box(&mut tensors).attend();
            black_box(&tensors.out);
            Ok(start.elapsed())
        }))
    }
}

/// The operands of a run, head after head.
struct Tensors {
    of: Standard,
    /// `[num_heads, tokens, head_dim]`.
    q: Vec<f32>,
    /// `[num_kv_heads, head_dim, tokens]`, so that the scores of a query are sums of rows.
    k: Vec<f32>,
    /// `[num_kv_heads, tokens, head_dim]`.
    v: Vec<f32>,
    /// The scores of one head, `[tokens, tokens]`.
    scores: Vec<f32>,
    /// The result, shaped as `q`.
    out: Vec<f32>,
}

impl Tensors {
    fn new(of: &Standard) -> Self {
        let [num_heads, num_kv_heads, head_dim] = of.heads;
        let mut numbers = Numbers::new("rf-bench");
        let mut random =
            |heads: usize| (0..heads * of.tokens * head_dim).map(|_| numbers.normal()).collect();
        let (q, k, v): (Vec<f32>, _, _) =
            (random(num_heads), random(num_kv_heads), random(num_kv_heads));
        let (scores, out) = (vec![0.0; of.tokens * of.tokens], vec![0.0; q.len()]);
        Self { of: of.clone(), q, k, v, scores, out }
    }

    fn attend(&mut self) {
        let Standard { heads: [num_heads, num_kv_heads, head_dim], tokens, mask } = self.of;
        let scale = 1.0 / (head_dim as f32).sqrt();
        let size = tokens * head_dim;
        for head in 0..num_heads {
            let kv = head / (num_heads / num_kv_heads) * size;
            let (q, out) = (&self.q[head * size..][..size], &mut self.out[head * size..][..size]);
            let (k, v) = (&self.k[kv..][..size], &self.v[kv..][..size]);
            let visible = |query: usize| match mask {
                Mask::None => tokens,
                Mask::Causal => query + 1,
            };
            for (i, scores) in self.scores.chunks_exact_mut(tokens).enumerate() {
                let scores = &mut scores[..visible(i)];
                scores.fill(0.0);
                for (q, k) in q[i * head_dim..][..head_dim].iter().zip(k.chunks_exact(tokens)) {
                    add_scaled(scores, q * scale, k);
                }
            }
            for (i, scores) in self.scores.chunks_exact_mut(tokens).enumerate() {
                softmax(&mut scores[..visible(i)]);
            }
            for (i, out) in out.chunks_exact_mut(head_dim).enumerate() {
                out.fill(0.0);
                let weights = &self.scores[i * tokens..][..visible(i)];
                for (weight, v) in weights.iter().zip(v.chunks_exact(head_dim)) {
                    add_scaled(out, *weight, v);
                }
            }
        }
    }
}

/// `sum += factor · row`, over the length of `sum`.
fn add_scaled(sum: &mut [f32], factor: f32, row: &[f32]) {
    for (sum, x) in sum.iter_mut().zip(row) {
        *sum += factor * x;
    }
}

fn softmax(scores: &mut [f32]) {
    let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for score in &mut *scores {
        *score = (*score - max).exp();
        sum += *score;
    }
    for score in scores {
        *score /= sum;
    }
}

#[cfg(test)]
mod tests {
    use rf_oracle::reference;
    use rf_oracle::rf_graph::{Attention, Batch, Span};

    use super::*;

    /// The result of the reference. A query that sees every key is the last of its sequence.
    fn expected(tensors: &Tensors) -> Vec<f32> {
        let Standard { heads: [num_heads, num_kv_heads, head_dim], tokens, mask } = tensors.of;
        let attention = Attention::new(0, num_heads, num_kv_heads, head_dim);
        let spans: Vec<Span<'_>> = (0..tokens)
            .map(|i| {
                let past_tokens = if mask == Mask::Causal { i } else { tokens - 1 };
                Span { tokens: i..i + 1, past_tokens, pages: &[], ..Span::default() }
            })
            .collect();
        let batch = Batch { ids: &[], spans: &spans, output_rows: &[], input: None };
        let size = tokens * head_dim;
        let by_token = |x: &[f32], token: usize| -> Vec<f32> {
            x.chunks_exact(size)
                .flat_map(|head| &head[token * head_dim..][..head_dim])
                .copied()
                .collect()
        };
        let q: Vec<f32> = (0..tokens).flat_map(|token| by_token(&tensors.q, token)).collect();
        let key = |token: usize| {
            tensors.k.chunks_exact(tokens).map(|of_dim| of_dim[token]).collect::<Vec<f32>>()
        };
        let out = reference::attention(&attention, None, &q, &batch, |_, position| {
            (key(position), by_token(&tensors.v, position))
        });
        // The reference orders by token, then by head.
        let width = num_heads * head_dim;
        (0..num_heads)
            .flat_map(|head| (0..tokens).map(move |token| token * width + head * head_dim))
            .flat_map(|at| out[at..at + head_dim].to_vec())
            .collect()
    }

    #[test]
    fn standard_attention_matches_the_reference() {
        for mask in [Mask::None, Mask::Causal] {
            let standard = Standard { heads: [4, 2, 32], tokens: 17, mask };
            let mut tensors = Tensors::new(&standard);
            // Twice: a run does not depend on the one before.
            tensors.attend();
            tensors.attend();
            for (x, expected) in tensors.out.iter().zip(expected(&tensors)) {
                assert!((x - expected).abs() < 1e-5, "{mask:?}: {x} {expected}");
            }
        }
    }

    #[test]
    fn the_mask_halves_the_work() {
        let count = |mask| Standard { heads: USUAL_HEADS, tokens: 512, mask }.cost().f32_operations;
        // 32 heads of 128, 512² pairs, and 512 · 513 / 2.
        assert_eq!(count(Mask::None), 4 * 4096 * 262_144);
        assert_eq!(count(Mask::Causal), 4 * 4096 * 131_328);
    }
}
