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

/// The place of a token for RoPE, a coordinate per [`RopeAxis`]: time, row, column, and one more.
pub type Position = [u32; 4];

/// The position of text: it has the same time, row and column. The fourth coordinate is 0.
pub fn text_position(position: usize) -> Position {
    let position = u32::try_from(position).unwrap_or(u32::MAX);
    [position, position, position, 0]
}

/// The coordinate of a [`Position`] that rotates a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RopeAxis {
    /// The place in time, which is the only coordinate of ordinary models.
    Time,
    /// The row in a picture.
    Row,
    /// The column in a picture.
    Column,
    /// A coordinate that is 0 for text and pictures.
    Fourth,
}

/// Rotary position embedding: pair `i` of a head at coordinate `p` is rotated by `p · inv_freq[i]`.
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
    /// The coordinate of each pair, `[dims/2]`; `None` if all pairs take [`RopeAxis::Time`].
    pub axes: Option<Arc<[RopeAxis]>>,
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

    /// The coordinate of a position that rotates pair `i`.
    pub fn coordinate(&self, position: Position, i: usize) -> usize {
        let axis = self.axes.as_ref().map_or(RopeAxis::Time, |axes| axes[i]);
        position[axis as usize] as usize
    }

    /// True if the pairs of text are rotated by different coordinates.
    pub fn divides_text(&self) -> bool {
        self.axes.as_ref().is_some_and(|axes| axes.contains(&RopeAxis::Fourth))
    }

    /// `(cos, sin)` of pair `i` at a coordinate, including the magnitude.
    pub fn cos_sin(&self, coordinate: usize, i: usize) -> (f32, f32) {
        let (sin, cos) = (coordinate as f64 * self.inv_freq[i]).sin_cos();
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
    /// True if the rows of [non-causal media](crate::Media) see each other both ways in this layer.
    pub non_causal_media: bool,
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
    /// `ALiBi` with a largest bias `b` (8 in most models): a distance of `d` positions subtracts
    /// `d · slope` from the score, after the softcap. See [`Self::slope`].
    pub alibi: Option<f32>,
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
            non_causal_media: false,
            window: None,
            chunk: None,
            softcap: None,
            sinks: None,
            alibi: None,
        }
    }

    /// The slope of `ALiBi` for a query head; 0 without it. With `n` heads, a power of two, it is
    /// `2^(−b(head + 1)/n)`. Otherwise the heads from the largest power of two on have the odd ones
    /// of the slopes of twice as many heads as that power.
    pub fn slope(&self, head: usize) -> f32 {
        let Some(bias) = self.alibi else { return 0.0 };
        let power = 1 << self.num_heads.max(1).ilog2();
        let (step, heads) =
            if head < power { (head + 1, power) } else { (2 * (head - power) + 1, 2 * power) };
        (-f64::from(bias) * step as f64 / heads as f64).exp2() as f32
    }

    /// Elements per head of values and of the output.
    pub fn value_dim(&self) -> usize {
        self.latent_dim.unwrap_or(self.head_dim)
    }

    /// The places in the cache that the query at a place sees. `end` is the end of its span, and
    /// `in_media` is true in a span of [non-causal media](crate::Media).
    pub fn visible(&self, position: usize, end: usize, in_media: bool) -> Range<usize> {
        if !self.causal {
            let Some(half) = self.window.map(|window| window / 2) else { return 0..end };
            return position.saturating_sub(half)..end.min(position + half + 1);
        }
        let both_ways = self.non_causal_media && in_media;
        let in_window = self.window.map_or(0, |window| (position + 1).saturating_sub(window));
        let in_chunk = self.chunk.map_or(0, |chunk| position - position % chunk);
        in_window.max(in_chunk)..if both_ways { end } else { position + 1 }
    }

    /// The most positions that a query sees, its own included; `None` without such a limit.
    pub fn reach(&self) -> Option<usize> {
        let limits = [self.window, self.chunk].into_iter().flatten();
        limits.min().filter(|_| self.causal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_of_heads_that_are_no_power_of_two_continue_with_odd_ones() {
        let slopes = |num_heads, bias| -> Vec<f32> {
            let attention = Attention { alibi: bias, ..Attention::new(0, num_heads, 1, 8) };
            (0..num_heads).map(|head| attention.slope(head)).collect()
        };
        assert_eq!(slopes(4, Some(8.0)), [0.25, 0.0625, 0.015_625, 0.003_906_25]);
        // The first and the third of the slopes of eight heads follow those of four.
        assert_eq!(slopes(6, Some(8.0))[3..], [0.003_906_25, 0.5, 0.125]);
        assert_eq!(slopes(1, Some(8.0)), [0.003_906_25]);
        assert_eq!(slopes(2, None), [0.0, 0.0]);
    }
}
