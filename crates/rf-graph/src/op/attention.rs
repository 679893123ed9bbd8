//! Attributes of attention ops: rotary embedding, head norms, the shape of attention.

use std::ops::Range;
use std::sync::Arc;

use crate::value::{ValueId, WeightId};

/// Per-head RMSNorm of queries and keys (Qwen3, Gemma 3).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QkNorm {
    /// Norm weight of the queries, `[head_dim]`.
    pub q: WeightId,
    /// Norm weight of the keys, `[head_dim]`.
    pub k: WeightId,
    /// Constant that is added to the mean square.
    pub eps: f32,
}

/// The heads of tokens as matmuls write them, and their way into attention: per-head norms of q and
/// k (if any), RoPE of q and k, and [`Op::KvAppend`](crate::Op::KvAppend).
#[derive(Clone, Debug, PartialEq)]
pub struct RopeAppend {
    /// `[tokens, num_heads · head_dim]`.
    pub q: ValueId,
    /// `[tokens, num_kv_heads · head_dim]`.
    pub k: ValueId,
    /// `[tokens, num_kv_heads · head_dim]`.
    pub v: ValueId,
    /// Norm of each query and key head before RoPE.
    pub qk_norm: Option<QkNorm>,
    /// Frequencies and pairing.
    pub rope: Rope,
    /// Index into [`KvLayout::layers`](crate::KvLayout::layers).
    pub layer: usize,
}

/// The pairing of the elements of a head that RoPE rotates together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RopeStyle {
    /// Pairs `(2i, 2i+1)`: the Llama family in GGUF.
    Normal,
    /// Pairs `(i, i + dims/2)`: Qwen, Phi, Gemma.
    Neox,
}

/// Rotary position embedding: pair `i` of a head at position `p` is rotated by `p · inv_freq[i]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Pairing of the elements.
    pub style: RopeStyle,
    /// Elements per head.
    pub head_dim: usize,
    /// Angles per position after all scaling, `[dims/2]`. Elements from `dims` on are unchanged.
    pub inv_freq: Arc<[f64]>,
    /// Factor on cos and sin: YaRN's attention factor, otherwise 1.
    pub magnitude: f32,
}

impl Rope {
    /// Rotated elements per head.
    pub fn dims(&self) -> usize {
        self.inv_freq.len() * 2
    }

    /// Indices of the two elements of pair `i` within a head.
    pub fn pair(&self, i: usize) -> (usize, usize) {
        match self.style {
            RopeStyle::Normal => (2 * i, 2 * i + 1),
            RopeStyle::Neox => (i, i + self.inv_freq.len()),
        }
    }

    /// `(cos, sin)` of pair `i` at a position, including the magnitude.
    pub fn cos_sin(&self, position: usize, i: usize) -> (f32, f32) {
        let (sin, cos) = (position as f64 * self.inv_freq[i]).sin_cos();
        ((cos * f64::from(self.magnitude)) as f32, (sin * f64::from(self.magnitude)) as f32)
    }
}

/// A factor that grows with the position, so that attention stays sharp in long contexts:
/// `1 + factor · ln(1 + ⌊(position + offset) / period⌋)` (Llama 4, Mistral 3).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PositionScale {
    /// Factor on the logarithm.
    pub factor: f32,
    /// Positions per step.
    pub period: usize,
    /// Is added to the position.
    pub offset: usize,
}

impl PositionScale {
    /// The factor at a position.
    pub fn at(self, position: usize) -> f32 {
        let step = ((position + self.offset) / self.period) as f64;
        (1.0 + f64::from(self.factor) * (1.0 + step).ln()) as f32
    }
}

/// `softmax(scale · q·kᵀ) · v` over the cached positions that a query may attend to.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// Index into [`KvLayout::layers`](crate::KvLayout::layers).
    pub layer: usize,
    /// Query heads.
    pub num_heads: usize,
    /// Key and value heads; divides `num_heads`.
    pub num_kv_heads: usize,
    /// Elements per head.
    pub head_dim: usize,
    /// Latent attention: the value is the first elements of the key, as many as this says. There is
    /// one key head, attention is causal without a window, and there are no softcap and no sinks.
    pub latent_dim: Option<usize>,
    /// Factor on the scores, usually `1/√head_dim`.
    pub scale: f32,
    /// True if a query sees no key after its own position. Otherwise it sees all keys of its span
    /// and before, so a result that does not depend on the batches takes the sequence in one span.
    pub causal: bool,
    /// Sliding window. Of causal attention: a key is visible if `query position − key position <
    /// window`. Otherwise it is symmetric: a key is visible if the two positions differ by at most
    /// `window / 2`.
    pub window: Option<usize>,
    /// Chunks of causal attention: a key is visible if it is in the query's chunk, which begins at
    /// a multiple of `chunk` (Llama 4).
    pub chunk: Option<usize>,
    /// Softcap `c`: a score `s` becomes `c · tanh(s / c)`.
    pub softcap: Option<f32>,
    /// Attention sinks (gpt-oss), `[num_heads]`: a logit per head that only the denominator of the
    /// softmax includes.
    pub sinks: Option<WeightId>,
}

impl Attention {
    /// The common form: scores are divided by `√head_dim`, and every key up to the query's own
    /// position is visible.
    pub fn new(layer: usize, num_heads: usize, num_kv_heads: usize, head_dim: usize) -> Self {
        Self {
            layer,
            num_heads,
            num_kv_heads,
            head_dim,
            latent_dim: None,
            scale: 1.0 / (head_dim as f32).sqrt(),
            causal: true,
            window: None,
            chunk: None,
            softcap: None,
            sinks: None,
        }
    }

    /// Elements per head of values and of the output.
    pub fn value_dim(&self) -> usize {
        self.latent_dim.unwrap_or(self.head_dim)
    }

    /// The positions that the query at a position sees. `end` is the end of its span: the tokens
    /// of the sequence in the cache after the batch.
    pub fn visible(&self, position: usize, end: usize) -> Range<usize> {
        if !self.causal {
            let Some(half) = self.window.map(|window| window / 2) else { return 0..end };
            return position.saturating_sub(half)..end.min(position + half + 1);
        }
        let in_window = self.window.map_or(0, |window| (position + 1).saturating_sub(window));
        let in_chunk = self.chunk.map_or(0, |chunk| position - position % chunk);
        in_window.max(in_chunk)..position + 1
    }

    /// The most positions that a query sees, its own included; `None` without such a limit.
    pub fn reach(&self) -> Option<usize> {
        let limits = [self.window, self.chunk].into_iter().flatten();
        limits.min().filter(|_| self.causal)
    }
}
