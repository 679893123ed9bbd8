//! Attention over the paged KV cache: scores, softmax, weighted sum of values.
//!
//! A work item is a group of *rows* that read the same key head; a row is one token and one query
//! head. The heads of a group and neighbouring tokens of a prompt share each load of the cache. The
//! order of a row's sums does not depend on the other rows of the item: scores add dimensions in
//! order, the softmax adds lanes of 16 positions, and values add positions in order.

use std::ops::Range;
use std::ptr;

use super::math::SimdMath;
use super::{Kernel, LANES, Simd};
use crate::kv::{KvShape, SCALE_GROUP};
use rf_graph::KvType;
use rf_kv::PageId;

/// The maximum number of rows of a work item.
pub(crate) const MAX_ROWS: usize = 8;

/// One query: a token and a head.
#[derive(Clone, Copy)]
pub(crate) struct AttentionQuery<'a> {
    /// `[head_dim]`.
    pub(crate) q: &'a [f32],
    /// First and one past the last position that the query attends to.
    pub(crate) first: usize,
    pub(crate) last: usize,
    /// The position of the token.
    pub(crate) position: usize,
    /// The slope of `ALiBi`, if the model has it.
    pub(crate) slope: Option<f32>,
    /// The attention sink: a logit that only the denominator of the softmax includes.
    pub(crate) sink: Option<f32>,
}

/// Computes the attention of rows over one key head.
pub(crate) struct Attend<'a, 'o> {
    pub(crate) cache: CachedHead<'a>,
    pub(crate) scale: f32,
    pub(crate) softcap: Option<f32>,
    /// The queries, at most [`MAX_ROWS`].
    pub(crate) rows: &'a [AttentionQuery<'a>],
    /// `[rows]` of `[head_dim]`.
    pub(crate) out: &'a mut [&'o mut [f32]],
    /// Buffers for scores and queries, grown on demand.
    pub(crate) scratch: &'a mut AttentionScratch,
}

/// The buffers of one thread for [`Attend`].
#[derive(Default)]
pub(crate) struct AttentionScratch {
    /// `[rows][positions]`.
    scores: Vec<f32>,
}

/// Binds `$E` to the storage format of the elements of a cache.
macro_rules! with_element {
    (@ $element:ty, $E:ident => $body:expr) => {{
        type $E = $element;
        $body
    }};
    ($dtype:expr, $E:ident => $body:expr) => {{
        use $crate::simd::attention::{F16, F32, Fp8, Packed, Q8};
        match $dtype {
            KvType::F32 => with_element!(@ F32, $E => $body),
            KvType::F16 => with_element!(@ F16, $E => $body),
            KvType::Fp8 => with_element!(@ Fp8, $E => $body),
            KvType::Q4_0 => with_element!(@ Packed<false>, $E => $body),
            KvType::Q5_0 => with_element!(@ Packed<true>, $E => $body),
            _ => with_element!(@ Q8, $E => $body),
        }
    }};
}
pub(super) use with_element;

impl Kernel for Attend<'_, '_> {
    type Output = ();

    const MULTIPLIES_INTEGERS: bool = false;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { cache, rows, out, .. } = self;
        let first = rows.iter().map(|row| row.first).min().unwrap_or(0) / LANES * LANES;
        let last = rows.iter().map(|row| row.last).max().unwrap_or(0);
        let span = (last - first).next_multiple_of(LANES);
        let buffer = &mut self.scratch.scores;
        if buffer.len() < rows.len() * span {
            buffer.resize(rows.len() * span, 0.0);
        }
        let mut scores = Scores { values: &mut buffer[..rows.len() * span], span, first };

        with_element!(cache.shape.dtype, E => cache.all_scores::<S, E>(s, rows, &mut scores));
        let mut inverse = [0.0; MAX_ROWS];
        for (r, (row, inverse)) in rows.iter().zip(&mut inverse).enumerate() {
            let map = ScoreMap {
                scale: self.scale,
                softcap: self.softcap,
                alibi: row.slope.map(|slope| (slope, row.position as f32 - first as f32)),
            };
            let scores = &mut scores.values[r * span..][..span];
            *inverse = softmax(s, scores, row.first - first..row.last - first, map, row.sink);
        }
        let positions = first..last;
        let weights = Weights { values: scores.values, span, positions, inverse: &inverse };
        with_element!(cache.shape.dtype, E => cache.all_values::<S, E>(s, &weights, out));
    }
}

/// The scores of some rows.
struct Scores<'a> {
    /// `[rows][span]`.
    values: &'a mut [f32],
    span: usize,
    /// The first position, a multiple of 16.
    first: usize,
}

/// The weights of values in the sums of some rows.
struct Weights<'a> {
    /// `[rows][span]`.
    values: &'a [f32],
    span: usize,
    positions: Range<usize>,
    /// The factor of each row's sum.
    inverse: &'a [f32; MAX_ROWS],
}

/// The storage format of the elements of the cache.
pub(super) trait Element {
    /// Bytes of one element, or of [`Self::PACKED`] ones.
    const BYTES: usize;
    /// Elements in [`Self::BYTES`].
    const PACKED: usize = 1;
    /// Bytes of 16 elements of a row.
    const VECTOR_BYTES: usize = LANES * Self::BYTES / Self::PACKED;
    /// True if 32 dimensions of a token share a scale.
    const SCALED: bool = false;

    /// Loads dimension `d` of the keys of 16 consecutive positions as f32, without their scale.
    ///
    /// # Safety
    /// `keys` is the first dimension of the first position in a page of heads of `head_dim`
    /// elements, whose dimensions are `step` bytes apart, and the page has these positions.
    unsafe fn key<S: Simd>(s: S, keys: *const u8, d: usize, step: usize, head_dim: usize) -> S::F;

    /// Loads dimensions `d..d + 16` of a row of `stride` elements as f32, without their scale. `d`
    /// is a multiple of 16.
    ///
    /// # Safety
    /// The row has these dimensions.
    unsafe fn value<S: Simd>(s: S, row: *const u8, d: usize, stride: usize) -> S::F;
}

macro_rules! element {
    ($name:ident, $bytes:literal, $scaled:literal, |$s:ident, $p:ident| $load:expr) => {
        pub(super) struct $name;
        impl Element for $name {
            const BYTES: usize = $bytes;
            const SCALED: bool = $scaled;
            #[inline(always)]
            unsafe fn key<S: Simd>($s: S, k: *const u8, d: usize, step: usize, _: usize) -> S::F {
                let $p = k.wrapping_add(d * step);
                // SAFETY: by contract.
                unsafe { $load }
            }
            #[inline(always)]
            unsafe fn value<S: Simd>($s: S, row: *const u8, d: usize, _stride: usize) -> S::F {
                let $p = row.wrapping_add(d * $bytes);
                // SAFETY: by contract.
                unsafe { $load }
            }
        }
    };
}
element!(F32, 4, false, |s, p| s.load_f(p.cast()));
element!(F16, 2, false, |s, p| s.load_f16(p));
element!(Fp8, 1, false, |s, p| s.load_fp8(p));
element!(Q8, 1, true, |s, p| s.to_f(s.load_i8(p)));

/// Codes of four bits, or of five with the fifth bits in bytes of their own.
pub(super) struct Packed<const FIFTH_BITS: bool>;

impl<const FIFTH_BITS: bool> Packed<FIFTH_BITS> {
    /// The code of 0.
    const ZERO: i32 = if FIFTH_BITS { 16 } else { 8 };
}

/// A bit per lane.
static LANE_BITS: [i32; LANES] = {
    let mut bits = [0; LANES];
    let mut lane = 0;
    while lane < LANES {
        bits[lane] = 1 << lane;
        lane += 1;
    }
    bits
};

impl<const FIFTH_BITS: bool> Element for Packed<FIFTH_BITS> {
    const BYTES: usize = 1;
    const PACKED: usize = 2;
    const SCALED: bool = true;

    #[inline(always)]
    unsafe fn key<S: Simd>(s: S, keys: *const u8, d: usize, step: usize, head_dim: usize) -> S::F {
        // SAFETY: by contract; a byte has two dimensions.
        let pair = unsafe { s.load_u8(keys.add(d / 2 * step)) };
        let mut code = s.and(s.shr(pair, 4 * (d % 2) as u32), s.splat_i(15));
        if FIFTH_BITS {
            // SAFETY: by contract; the fifth bits follow the pairs.
            let bits = unsafe { s.load_u8(keys.add((head_dim.div_ceil(2) + d / 8) * step)) };
            let bit = s.and(s.shr(bits, (d % 8) as u32), s.splat_i(1));
            code = s.or(code, s.shl(bit, 4));
        }
        s.to_f(s.sub_i(code, s.splat_i(Self::ZERO)))
    }

    #[inline(always)]
    unsafe fn value<S: Simd>(s: S, row: *const u8, d: usize, stride: usize) -> S::F {
        // SAFETY: by contract; 16 bytes have 32 dimensions, the last 16 in their upper bits.
        let pairs = unsafe { s.load_u8(row.add(d / SCALE_GROUP * LANES)) };
        let code = s.and(s.shr(pairs, 4 * (d / LANES % 2) as u32), s.splat_i(15));
        let code = s.sub_i(code, s.splat_i(Self::ZERO));
        if !FIFTH_BITS {
            return s.to_f(code);
        }
        // SAFETY: by contract; the fifth bits of a row follow its pairs.
        let bits = unsafe { row.add(stride / 2 + d / 8).cast::<[u8; 2]>().read_unaligned() };
        // SAFETY: 64 bytes.
        let lanes = unsafe { s.load_i(LANE_BITS.as_ptr().cast()) };
        let bit =
            s.min(s.to_f(s.and(s.splat_i(u16::from_le_bytes(bits).into()), lanes)), s.splat(1.0));
        s.fma(bit, s.splat(16.0), s.to_f(code))
    }
}

/// Writes `sums · inverse` to dimensions `d..` of each row, up to the end of the row.
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

/// The function from products of queries and keys to scores.
#[derive(Clone, Copy)]
struct ScoreMap {
    scale: f32,
    softcap: Option<f32>,
    /// The slope of `ALiBi`, and the index of the query's position among the scores.
    alibi: Option<(f32, f32)>,
}

impl ScoreMap {
    /// The scores of 16 products, of which the first has an index.
    #[inline(always)]
    fn apply<S: Simd>(self, s: S, products: S::F, index: usize) -> S::F {
        let mut v = s.mul(products, s.splat(self.scale));
        if let Some(cap) = self.softcap {
            let bounded = s.tanh(s.max(s.mul(v, s.splat(1.0 / cap)), s.splat(-44.0)));
            // Masked scores become −cap here. The exponential that follows sets them to 0.
            v = s.mul(bounded, s.splat(cap));
        }
        if let Some((slope, own)) = self.alibi {
            // Exact for contexts below 2²⁴ tokens.
            let distances: [f32; LANES] = array!(0.0, |lane| ((index + lane) as f32 - own).abs());
            // SAFETY: 16 values.
            let distances = unsafe { s.load_f(distances.as_ptr()) };
            v = s.fma(distances, s.splat(-slope), v);
        }
        v
    }
}

/// Computes `eˢ⁻ᵐᵃˣ` in place, and 0 outside `seen`. Returns `1 / Σ`.
#[inline(always)]
fn softmax<S: Simd>(
    s: S,
    scores: &mut [f32],
    seen: Range<usize>,
    map: ScoreMap,
    sink: Option<f32>,
) -> f32 {
    scores[..seen.start].fill(f32::NEG_INFINITY);
    scores[seen.end..].fill(f32::NEG_INFINITY);
    let mut largest = s.splat(f32::NEG_INFINITY);
    for (i, scores) in scores.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
        // SAFETY: 16 values.
        let v = unsafe { s.load_f(scores.as_ptr()) };
        let v = map.apply(s, v, i * LANES);
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
        let p = s.exp_or_zero(s.sub(v, s.splat(max)));
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

/// The cache of one key head of one sequence.
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
    /// The keys of the page that holds a position.
    #[inline(always)]
    pub(super) fn page_keys(&self, position: usize) -> *const u8 {
        let shape = self.shape;
        let page = self.pages[position / shape.page_tokens].index();
        let bytes = shape.key_head_bytes();
        self.keys[(page * shape.heads + self.head) * bytes..][..bytes].as_ptr()
    }

    /// The values of the page that holds a position.
    #[inline(always)]
    fn page_values(&self, position: usize) -> *const u8 {
        let shape = self.shape;
        let page = self.pages[position / shape.page_tokens].index();
        let bytes = shape.value_head_bytes();
        self.values[(page * shape.heads + self.head) * bytes..][..bytes].as_ptr()
    }

    /// A position in the next page, or `position` itself in the last page.
    #[inline(always)]
    fn next_page(&self, position: usize) -> usize {
        let next = position + self.shape.page_tokens;
        if next / self.shape.page_tokens < self.pages.len() { next } else { position }
    }

    /// Computes the unscaled `q·k` of all rows.
    #[inline(always)]
    fn all_scores<S: Simd, E: Element>(
        &self,
        s: S,
        rows: &[AttentionQuery<'_>],
        scores: &mut Scores<'_>,
    ) {
        let Scores { span, first, .. } = *scores;
        let mut row = 0;
        while row < rows.len() {
            let values = &mut scores.values[row * span..];
            let (rows, scores) = (&rows[row..], &mut Scores { values, span, first });
            // The sums fill the registers: rows × vectors of positions. The comparison with a
            // constant comes first, so that an ISA does not compile tiles that it never runs.
            row += if S::FEW_TOKENS == 1 {
                self.row_scores::<S, E, 1, 1>(s, rows, scores)
            } else {
                match rows.len() {
                    1 => self.row_scores::<S, E, 1, 4>(s, rows, scores),
                    2 | 3 => self.row_scores::<S, E, 2, 4>(s, rows, scores),
                    4..MAX_ROWS => self.row_scores::<S, E, 4, 2>(s, rows, scores),
                    _ => self.row_scores::<S, E, MAX_ROWS, 2>(s, rows, scores),
                }
            };
        }
    }

    /// Computes the scores of the first `R` rows, `V` vectors of positions at a time.
    #[inline(always)]
    fn row_scores<S: Simd, E: Element, const R: usize, const V: usize>(
        &self,
        s: S,
        rows: &[AttentionQuery<'_>],
        scores: &mut Scores<'_>,
    ) -> usize {
        let rows: &[AttentionQuery<'_>; R] = rows.first_chunk().expect("R rows from here");
        let mut at = 0;
        while at < scores.span {
            if scores.span - at >= V * LANES {
                self.scores::<S, E, R, V>(s, rows, scores, at);
                at += V * LANES;
            } else {
                self.scores::<S, E, R, 1>(s, rows, scores, at);
                at += LANES;
            }
        }
        R
    }

    /// Computes the sums of values of all rows.
    #[inline(always)]
    fn all_values<S: Simd, E: Element>(&self, s: S, weights: &Weights<'_>, out: &mut [&mut [f32]]) {
        let mut row = 0;
        while row < out.len() {
            // As for the scores: rows × vectors of dimensions.
            row += if S::FEW_TOKENS == 1 {
                self.row_values::<S, E, 1, 1>(s, weights, row, out)
            } else {
                match out.len() - row {
                    1 => self.row_values::<S, E, 1, 4>(s, weights, row, out),
                    2 | 3 => self.row_values::<S, E, 2, 4>(s, weights, row, out),
                    4..MAX_ROWS => self.row_values::<S, E, 4, 4>(s, weights, row, out),
                    _ => self.row_values::<S, E, MAX_ROWS, 2>(s, weights, row, out),
                }
            };
        }
    }

    /// Computes the sums of `R` rows from `row` on, `D` vectors of dimensions at a time.
    #[inline(always)]
    fn row_values<S: Simd, E: Element, const R: usize, const D: usize>(
        &self,
        s: S,
        weights: &Weights<'_>,
        row: usize,
        out: &mut [&mut [f32]],
    ) -> usize {
        let span = weights.span;
        let p: [&[f32]; R] =
            array!(weights.values, |r| &weights.values[(row + r) * span..][..span]);
        let inverse: [f32; R] = array!(0.0, |r| weights.inverse[row + r]);
        let out = &mut out[row..][..R];
        let mut d = 0;
        while d < self.shape.head_dim {
            if self.shape.value_stride() - d >= D * LANES {
                let sums = self.values::<S, E, R, D>(s, &p, weights.positions.clone(), d);
                store(s, sums, inverse, d, out);
                d += D * LANES;
            } else {
                let sums = self.values::<S, E, R, 1>(s, &p, weights.positions.clone(), d);
                store(s, sums, inverse, d, out);
                d += LANES;
            }
        }
        R
    }

    /// Computes the unscaled `q·k` of `R` rows and `V` vectors of positions, from score `at` on.
    #[inline(always)]
    fn scores<S: Simd, E: Element, const R: usize, const V: usize>(
        &self,
        s: S,
        rows: &[AttentionQuery<'_>; R],
        scores: &mut Scores<'_>,
        at: usize,
    ) {
        let Scores { span, first, .. } = *scores;
        let shape = self.shape;
        let step = shape.page_tokens * E::BYTES;
        let q: [*const f32; R] = array!(ptr::null(), |r| rows[r].q[..shape.head_dim].as_ptr());
        // A vector holds 16 positions of one page, from a multiple of 16.
        let keys: [*const u8; V] = array!(ptr::null(), |v| {
            let position = first + at + v * LANES;
            let slot = position % shape.page_tokens;
            self.page_keys(position).wrapping_add(slot * E::BYTES)
        });
        let mut scales = keys;
        if E::SCALED {
            let start = shape.key_bytes() * shape.page_tokens;
            for v in 0..V {
                let position = first + at + v * LANES;
                let slot = position % shape.page_tokens;
                scales[v] = self.page_keys(position).wrapping_add(start + slot * 2);
            }
        }
        // Pages are not contiguous, so the hardware does not prefetch them.
        let ahead = self.page_keys(self.next_page(first + at));
        let mut acc = [[s.splat(0.0); V]; R];
        let group = if E::SCALED { SCALE_GROUP } else { shape.head_dim };
        for (g, dim) in (0..shape.head_dim).step_by(group).enumerate() {
            let mut partial = [[s.splat(0.0); V]; R];
            for d in dim..shape.head_dim.min(dim + group) {
                s.prefetch(ahead.wrapping_add(d / E::PACKED * step));
                let mut k = [s.splat(0.0); V];
                for v in 0..V {
                    // SAFETY: the page has this dimension of these positions.
                    k[v] = unsafe { E::key(s, keys[v], d, step, shape.head_dim) };
                }
                for r in 0..R {
                    // SAFETY: d < head_dim.
                    let q = s.splat(unsafe { *q[r].add(d) });
                    for v in 0..V {
                        partial[r][v] = s.fma(k[v], q, partial[r][v]);
                    }
                }
            }
            if !E::SCALED {
                acc = partial;
                continue;
            }
            for v in 0..V {
                // SAFETY: scales follow the elements.
                let scale = unsafe { s.load_f16(scales[v].add(g * shape.page_tokens * 2)) };
                for r in 0..R {
                    acc[r][v] = s.fma(partial[r][v], scale, acc[r][v]);
                }
            }
        }
        for r in 0..R {
            for (v, acc) in acc[r].into_iter().enumerate() {
                let out = &mut scores.values[r * span + at + v * LANES..][..LANES];
                // SAFETY: 16 values.
                unsafe { s.store_f(out.as_mut_ptr(), acc) };
            }
        }
    }

    /// Computes dimensions `d..d + 16·D` of `Σ p·v`.
    #[inline(always)]
    fn values<S: Simd, E: Element, const R: usize, const D: usize>(
        &self,
        s: S,
        p: &[&[f32]; R],
        positions: Range<usize>,
        d: usize,
    ) -> [[S::F; D]; R] {
        let shape = self.shape;
        let (stride, row_bytes) = (shape.value_stride(), shape.value_bytes());
        let (scales_start, row_scales) = (row_bytes * shape.page_tokens, shape.scales());
        let mut acc = [[s.splat(0.0); D]; R];
        let mut position = positions.start;
        while position < positions.end {
            let page = self.page_values(position);
            let ahead = self.page_values(self.next_page(position));
            let slot = position % shape.page_tokens;
            let here = (shape.page_tokens - slot).min(positions.end - position);
            let p: [*const f32; R] =
                array!(ptr::null(), |r| p[r][position - positions.start..][..here].as_ptr());
            for i in 0..here {
                let row = (slot + i) * row_bytes;
                let at = row + d / LANES * E::VECTOR_BYTES;
                for line in (0..D * E::VECTOR_BYTES).step_by(64) {
                    s.prefetch(ahead.wrapping_add(at + line));
                }
                let mut scales = [1.0; LANES];
                if E::SCALED {
                    let first = (slot + i) * row_scales + d / SCALE_GROUP;
                    let p = page.wrapping_add(scales_start + first * 2);
                    // SAFETY: scales follow the elements; 32 bytes from here are inside the map.
                    scales = s.to_array(unsafe { s.load_f16(p) });
                }
                let mut value = [s.splat(0.0); D];
                for v in 0..D {
                    // SAFETY: the row has whole vectors.
                    value[v] = unsafe { E::value(s, page.add(row), d + v * LANES, stride) };
                    if E::SCALED {
                        // `d` is a multiple of 32, or only the last 16 dimensions are left.
                        value[v] = s.mul(value[v], s.splat(scales[v * LANES / SCALE_GROUP]));
                    }
                }
                for r in 0..R {
                    // SAFETY: i < here.
                    let weight = s.splat(unsafe { *p[r].add(i) });
                    for v in 0..D {
                        acc[r][v] = s.fma(value[v], weight, acc[r][v]);
                    }
                }
            }
            position += here;
        }
        acc
    }
}
