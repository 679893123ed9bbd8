//! Attention over the paged cache: scores, softmax, weighted sum of values.
//!
//! A work item is a group of *rows* (a token and a query head each) that read the same key head: the
//! heads of a group share each load of the cache, and so do neighbouring tokens of a prompt. Each row is
//! summed in the same order whatever rows it is grouped with: scores over dimensions in order, the
//! softmax over lanes of 16 positions, values over positions in order.

use std::ops::Range;

use super::math::SimdMath;
use super::{Kernel, LANES, Simd};
use crate::kv::{KvShape, SCALE_GROUP};
use rf_graph::KvType;
use rf_kv::PageId;

/// Rows that one item has at most.
pub(crate) const MAX_ROWS: usize = 8;

/// One query of one head.
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    /// `[head_dim]`.
    pub(crate) q: &'a [f32],
    /// First and one past the last position that it sees.
    pub(crate) first: usize,
    pub(crate) last: usize,
    /// Logit that only joins the denominator.
    pub(crate) sink: Option<f32>,
}

/// Attention of some rows over one key head.
pub(crate) struct Attend<'a, 'o> {
    pub(crate) cache: CachedHead<'a>,
    pub(crate) scale: f32,
    pub(crate) softcap: Option<f32>,
    /// At most [`MAX_ROWS`].
    pub(crate) rows: &'a [Row<'a>],
    /// `[rows]` of `[head_dim]`.
    pub(crate) out: &'a mut [&'o mut [f32]],
    /// Room for scores and queries; grows as needed.
    pub(crate) scratch: &'a mut AttentionScratch,
}

/// What a thread needs for [`Attend`].
#[derive(Default)]
pub(crate) struct AttentionScratch {
    /// `[rows][positions]`.
    scores: Vec<f32>,
}

impl Kernel for Attend<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let mut row = 0;
        while row < self.rows.len() {
            row += match self.rows.len() - row {
                1 => self.group::<S, 1, 4>(s, row),
                2 | 3 => self.group::<S, 2, 4>(s, row),
                4..MAX_ROWS => self.group::<S, 4, 2>(s, row),
                _ => self.group::<S, MAX_ROWS, 1>(s, row),
            };
        }
    }
}

impl Attend<'_, '_> {
    /// `R` rows; scores of `V` vectors of positions at a time.
    #[inline(always)]
    fn group<S: Simd, const R: usize, const V: usize>(&mut self, s: S, first_row: usize) -> usize {
        let rows: &[Row<'_>; R] = self.rows[first_row..].first_chunk().expect("R rows from here");
        let first = rows.iter().map(|r| r.first).min().unwrap_or(0) / LANES * LANES;
        let last = rows.iter().map(|r| r.last).max().unwrap_or(0);
        let span = (last - first).next_multiple_of(LANES);
        if self.scratch.scores.len() < R * span {
            self.scratch.scores.resize(R * span, 0.0);
        }
        let mut scores = self.scratch.scores.chunks_exact_mut(span);
        let mut scores: [&mut [f32]; R] =
            std::array::from_fn(|_| scores.next().expect("R rows of scores"));
        let cache = self.cache;

        let mut at = 0;
        while at < span {
            if span - at >= V * LANES {
                cache.scores::<S, R, V>(s, rows, first, at, &mut scores);
                at += V * LANES;
            } else {
                cache.scores::<S, R, 1>(s, rows, first, at, &mut scores);
                at += LANES;
            }
        }
        let mut inverse = [0.0; R];
        for r in 0..R {
            let seen = rows[r].first - first..rows[r].last - first;
            inverse[r] = softmax(s, scores[r], seen, self.scale, self.softcap, rows[r].sink);
        }
        let out = &mut self.out[first_row..][..R];
        let mut d = 0;
        while d < cache.shape.head_dim {
            if cache.shape.value_stride() - d >= 2 * LANES {
                let sums = cache.values::<S, R, 2>(s, &scores, first..last, d);
                store(s, sums, inverse, d, out);
                d += 2 * LANES;
            } else {
                let sums = cache.values::<S, R, 1>(s, &scores, first..last, d);
                store(s, sums, inverse, d, out);
                d += LANES;
            }
        }
        R
    }
}

/// Writes dimensions `d..` of each row, `sums · inverse`, as far as the row goes.
#[inline(always)]
fn store<S: Simd, const R: usize, const D: usize>(
    s: S,
    sums: [[S::F; D]; R],
    inverse: [f32; R],
    d: usize,
    out: &mut [&mut [f32]],
) {
    for ((sums, inverse), out) in sums.into_iter().zip(inverse).zip(out) {
        for (v, sum) in sums.into_iter().enumerate() {
            let y = s.to_array(s.mul(sum, s.splat(inverse)));
            let from = (d + v * LANES).min(out.len());
            let to = (from + LANES).min(out.len());
            out[from..to].copy_from_slice(&y[..to - from]);
        }
    }
}

/// `eˢ⁻ᵐᵃˣ` in place, 0 outside `seen`; returns 1 / Σ.
#[inline(always)]
fn softmax<S: Simd>(
    s: S,
    scores: &mut [f32],
    seen: Range<usize>,
    scale: f32,
    softcap: Option<f32>,
    sink: Option<f32>,
) -> f32 {
    scores[..seen.start].fill(f32::NEG_INFINITY);
    scores[seen.end..].fill(f32::NEG_INFINITY);
    let mut largest = s.splat(f32::NEG_INFINITY);
    for scores in scores.as_chunks_mut::<LANES>().0 {
        // SAFETY: 16 values.
        let mut v = unsafe { s.load_f(scores.as_ptr()) };
        v = s.mul(v, s.splat(scale));
        if let Some(cap) = softcap {
            let bounded = s.tanh(s.max(s.mul(v, s.splat(1.0 / cap)), s.splat(-44.0)));
            // Masked scores become −cap here; they are zeroed below.
            v = s.mul(bounded, s.splat(cap));
        }
        // SAFETY: 16 values.
        unsafe { s.store_f(scores.as_mut_ptr(), v) };
        largest = s.max(v, largest);
    }
    let mut max = s.max_lane(largest);
    if let Some(sink) = sink {
        max = max.max(sink);
    }
    let mut sum = s.splat(0.0);
    for (i, scores) in scores.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
        // SAFETY: 16 values.
        let v = unsafe { s.load_f(scores.as_ptr()) };
        let p = s.exp(s.sub(v, s.splat(max)));
        // SAFETY: 16 values.
        unsafe { s.store_f(scores.as_mut_ptr(), p) };
        let lanes = i * LANES..(i + 1) * LANES;
        if lanes.start < seen.start || lanes.end > seen.end {
            for (position, p) in lanes.zip(scores.iter_mut()) {
                if !seen.contains(&position) {
                    *p = 0.0;
                }
            }
        }
        // SAFETY: 16 values.
        sum = s.add(sum, unsafe { s.load_f(scores.as_ptr()) });
    }
    let total = s.sum(sum) + sink.map_or(0.0, |sink| s.to_array(s.exp(s.splat(sink - max)))[0]);
    1.0 / total
}

/// One key head of one sequence.
#[derive(Clone, Copy)]
pub(crate) struct CachedHead<'a> {
    pub(crate) shape: KvShape,
    /// All keys and values of the layer, as [`KvLayer`](crate::kv::KvLayer) stores them.
    pub(crate) keys: &'a [u8],
    pub(crate) values: &'a [u8],
    pub(crate) head: usize,
    pub(crate) pages: &'a [PageId],
}

impl CachedHead<'_> {
    /// Keys of the page that holds a position.
    #[inline(always)]
    fn keys(&self, position: usize) -> *const u8 {
        let shape = self.shape;
        let page = self.pages[position / shape.page_tokens].index();
        let bytes = shape.key_head_bytes();
        self.keys[(page * shape.heads + self.head) * bytes..][..bytes].as_ptr()
    }

    /// Values of the page that holds a position.
    #[inline(always)]
    fn page_values(&self, position: usize) -> *const u8 {
        let shape = self.shape;
        let page = self.pages[position / shape.page_tokens].index();
        let bytes = shape.value_head_bytes();
        self.values[(page * shape.heads + self.head) * bytes..][..bytes].as_ptr()
    }

    /// `q·k` of `R` rows and `V` vectors of positions from `first + at` on, unscaled.
    #[inline(always)]
    fn scores<S: Simd, const R: usize, const V: usize>(
        &self,
        s: S,
        rows: &[Row<'_>; R],
        first: usize,
        at: usize,
        scores: &mut [&mut [f32]; R],
    ) {
        let shape = self.shape;
        let (step, bytes) = (shape.page_tokens, shape.element_bytes());
        let q: [&[f32]; R] = std::array::from_fn(|r| &rows[r].q[..shape.head_dim]);
        // Vectors of positions: the page's keys, and the position within the page.
        let vectors: [(*const u8, usize); V] = std::array::from_fn(|v| {
            let position = first + at + v * LANES;
            (self.keys(position), position % step)
        });
        let mut acc = [[s.splat(0.0); V]; R];
        if shape.dtype == KvType::Q8_0 {
            for group in 0..shape.scales() {
                let dims = group * SCALE_GROUP..shape.head_dim.min((group + 1) * SCALE_GROUP);
                let mut partial = [[s.splat(0.0); V]; R];
                for d in dims {
                    for v in 0..V {
                        // SAFETY: 16 positions of a page from a multiple of 16.
                        let k = unsafe { s.load_i8(vectors[v].0.add(d * step + vectors[v].1)) };
                        let k = s.to_f(k);
                        for r in 0..R {
                            partial[r][v] = s.fma(k, s.splat(q[r][d]), partial[r][v]);
                        }
                    }
                }
                for v in 0..V {
                    let at = shape.head_dim * step + (group * step + vectors[v].1) * 2;
                    // SAFETY: scales follow the elements.
                    let scale = unsafe { s.load_f16(vectors[v].0.add(at)) };
                    for r in 0..R {
                        acc[r][v] = s.fma(partial[r][v], scale, acc[r][v]);
                    }
                }
            }
        } else {
            for d in 0..shape.head_dim {
                for v in 0..V {
                    let p = vectors[v].0.wrapping_add((d * step + vectors[v].1) * bytes);
                    // SAFETY: 16 positions of a page from a multiple of 16.
                    let k = unsafe {
                        match shape.dtype {
                            KvType::F16 => s.load_f16(p),
                            KvType::Fp8 => s.load_fp8(p),
                            _ => s.load_f(p.cast()),
                        }
                    };
                    for r in 0..R {
                        acc[r][v] = s.fma(k, s.splat(q[r][d]), acc[r][v]);
                    }
                }
            }
        }
        for r in 0..R {
            for (v, acc) in acc[r].into_iter().enumerate() {
                let out = &mut scores[r][at + v * LANES..][..LANES];
                // SAFETY: 16 values.
                unsafe { s.store_f(out.as_mut_ptr(), acc) };
            }
        }
    }

    /// Dimensions `d..d + 16·D` of `Σ p·v`.
    #[inline(always)]
    fn values<S: Simd, const R: usize, const D: usize>(
        &self,
        s: S,
        p: &[&mut [f32]; R],
        positions: Range<usize>,
        d: usize,
    ) -> [[S::F; D]; R] {
        let shape = self.shape;
        let (stride, bytes) = (shape.value_stride(), shape.element_bytes());
        let mut acc = [[s.splat(0.0); D]; R];
        let mut position = positions.start;
        while position < positions.end {
            let page = self.page_values(position);
            let slot = position % shape.page_tokens;
            let here = (shape.page_tokens - slot).min(positions.end - position);
            for i in 0..here {
                let row = page.wrapping_add(((slot + i) * stride + d) * bytes);
                for v in 0..D {
                    // SAFETY: the row has whole vectors.
                    let value = unsafe {
                        match shape.dtype {
                            KvType::F32 => s.load_f(row.cast::<f32>().add(v * LANES)),
                            KvType::F16 => s.load_f16(row.add(v * LANES * 2)),
                            KvType::Fp8 => s.load_fp8(row.add(v * LANES)),
                            _ => {
                                let group = (d + v * LANES) / SCALE_GROUP;
                                let at = stride * shape.page_tokens
                                    + ((slot + i) * shape.scales() + group) * 2;
                                let scale = page.add(at).cast::<[u8; 2]>().read();
                                let scale = half::f16::from_le_bytes(scale).to_f32();
                                s.mul(s.to_f(s.load_i8(row.add(v * LANES))), s.splat(scale))
                            }
                        }
                    };
                    for r in 0..R {
                        let weight = p[r][position - positions.start + i];
                        acc[r][v] = s.fma(value, s.splat(weight), acc[r][v]);
                    }
                }
            }
            position += here;
        }
        acc
    }
}
