//! Latent attention: all heads attend to the same rows of the cache, whose first elements are also
//! the values.
//!
//! A lane is a query, so no sum crosses lanes, and a row serves up to 32 queries. The cache is read
//! in chunks of 64 positions from the first on: a chunk becomes f32 once, its scores are sums over
//! dimensions in order, and the sums of values go on from chunk to chunk, scaled to the largest
//! score so far. Each query has the arithmetic that it would have alone.

use rf_graph::KvType;

use super::attention::{CachedHead, Element, with_element};
use super::math::SimdMath;
use super::{Kernel, LANES, Simd};
use crate::kv::SCALE_GROUP;

/// The maximum number of queries of a work item.
pub(crate) const MAX_QUERIES: usize = 2 * LANES;

/// Positions of a chunk.
const CHUNK: usize = 64;

/// Dimensions of the queries that stay in L1 while the rows of a chunk pass.
const DIMS: usize = 96;

/// Rows of the largest register tile of scores, and sums of that of values.
const TILE: usize = 8;

/// One head of one token.
#[derive(Clone, Copy)]
pub(crate) struct Query<'a> {
    /// `[head_dim]`.
    pub(crate) q: &'a [f32],
    /// Positions that the query attends to: at least its own.
    pub(crate) positions: usize,
}

/// Computes the attention of queries over the rows of a cache.
pub(crate) struct AttendLatent<'a, 'o> {
    pub(crate) cache: CachedHead<'a>,
    /// Elements of a row that are the value.
    pub(crate) latent_dim: usize,
    pub(crate) scale: f32,
    /// At most [`MAX_QUERIES`].
    pub(crate) queries: &'a [Query<'a>],
    /// `[queries]` of `[latent_dim]`.
    pub(crate) out: &'a mut [&'o mut [f32]],
    pub(crate) scratch: &'a mut LatentScratch,
}

/// 16 queries.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Lanes([f32; LANES]);

impl Lanes {
    const ZERO: Self = Self([0.0; LANES]);
}

/// The buffers of one thread for [`AttendLatent`], allocated on first use.
#[derive(Default)]
pub(crate) struct LatentScratch {
    /// `[head_dim][queries]`.
    queries: Vec<Lanes>,
    /// `[CHUNK][head_dim]`, each row rounded up to whole vectors.
    rows: Vec<Lanes>,
    /// Scores, and then the weights of values: `[CHUNK][queries]`.
    weights: Vec<Lanes>,
    /// Sums of values: `[latent_dim][queries]`.
    sums: Vec<Lanes>,
}

impl LatentScratch {
    /// Elements of the buffers in the order of the fields.
    fn sizes(head_dim: usize, latent_dim: usize) -> [usize; 4] {
        let vectors = MAX_QUERIES / LANES;
        let latent_dim = latent_dim.next_multiple_of(TILE);
        [
            vectors * head_dim,
            CHUNK * head_dim.div_ceil(LANES),
            CHUNK * vectors,
            vectors * latent_dim,
        ]
    }

    /// Bytes of the buffers.
    pub(crate) fn bytes_for(head_dim: usize, latent_dim: usize) -> usize {
        Self::sizes(head_dim, latent_dim).iter().sum::<usize>() * size_of::<Lanes>()
    }

    fn grow(&mut self, head_dim: usize, latent_dim: usize) {
        let Self { queries, rows, weights, sums } = self;
        let sizes = Self::sizes(head_dim, latent_dim);
        for (buffer, size) in [queries, rows, weights, sums].into_iter().zip(sizes) {
            if buffer.len() < size {
                buffer.resize(size, Lanes::ZERO);
            }
        }
    }
}

impl Kernel for AttendLatent<'_, '_> {
    type Output = ();

    const MULTIPLIES_INTEGERS: bool = false;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        if self.queries.len() > LANES {
            self.vectors::<S, 2>(s);
        } else {
            self.vectors::<S, 1>(s);
        }
    }
}

impl AttendLatent<'_, '_> {
    /// Computes `V` vectors of queries.
    #[inline(always)]
    fn vectors<S: Simd, const V: usize>(self, s: S) {
        let Self { cache, latent_dim, scale, queries, out, scratch } = self;
        let head_dim = cache.shape.head_dim;
        scratch.grow(head_dim, latent_dim);
        let LatentScratch { queries: q, rows, weights, sums } = scratch;
        let q = &mut q.as_chunks_mut::<V>().0[..head_dim];
        let sums = &mut sums.as_chunks_mut::<V>().0[..latent_dim.next_multiple_of(TILE)];
        let weights = &mut weights.as_chunks_mut::<V>().0[..CHUNK];
        q.fill([Lanes::ZERO; V]);
        for (lane, query) in queries.iter().enumerate() {
            for (q, x) in q.iter_mut().zip(query.q) {
                q[lane / LANES].0[lane % LANES] = x * scale;
            }
        }

        let mut largest = [s.splat(f32::NEG_INFINITY); V];
        let mut totals = [s.splat(0.0); V];
        let end = queries.iter().map(|query| query.positions).max().unwrap_or(0);
        for first in (0..end).step_by(CHUNK) {
            let positions = CHUNK.min(end - first);
            cache.unpack(s, first, positions, rows);
            // Rows past the last position are those of an earlier chunk, or zeros.
            scores::<S, V>(s, q, rows, &mut weights[..positions.next_multiple_of(TILE)]);
            let weights = &mut weights[..positions];
            for (lane, query) in queries.iter().enumerate() {
                for weights in weights.iter_mut().skip(query.positions.saturating_sub(first)) {
                    weights[lane / LANES].0[lane % LANES] = f32::NEG_INFINITY;
                }
            }
            let decay = softmax(s, weights, &mut largest, &mut totals);
            let decay = (first > 0).then_some(decay);
            let stride = head_dim.div_ceil(LANES) * LANES;
            let row = rows.as_ptr().cast::<f32>();
            // SAFETY: the rows of these positions have these dimensions, the last ones with the
            // padding of the row.
            unsafe {
                match (S::WIDE, V) {
                    (true, _) => add_values::<S, V, 8>(s, weights, row, stride, decay, sums),
                    (false, 1) => add_values::<S, V, 4>(s, weights, row, stride, decay, sums),
                    (false, _) => add_values::<S, V, 2>(s, weights, row, stride, decay, sums),
                }
            }
        }

        let totals = totals.map(|total| s.to_array(s.div(s.splat(1.0), total)));
        for (lane, out) in out.iter_mut().enumerate() {
            let (vector, lane) = (lane / LANES, lane % LANES);
            let inverse = totals[vector][lane];
            for (y, sums) in out.iter_mut().zip(&*sums) {
                *y = sums[vector].0[lane] * inverse;
            }
        }
    }
}

/// Computes the scores of rows, a multiple of [`TILE`].
#[inline(always)]
fn scores<S: Simd, const V: usize>(
    s: S,
    queries: &[[Lanes; V]],
    rows: &[Lanes],
    scores: &mut [[Lanes; V]],
) {
    let stride = queries.len().div_ceil(LANES) * LANES;
    for (i, queries) in queries.chunks(DIMS).enumerate() {
        let row = rows.as_ptr().cast::<f32>().wrapping_add(i * DIMS);
        let begins = i == 0;
        // SAFETY: the buffer has rows of these dimensions for all scores.
        unsafe {
            match (S::WIDE, V) {
                (true, _) => add_scores::<S, V, 8>(s, queries, row, stride, begins, scores),
                (false, 1) => add_scores::<S, V, 4>(s, queries, row, stride, begins, scores),
                (false, _) => add_scores::<S, V, 2>(s, queries, row, stride, begins, scores),
            }
        }
    }
}

/// Adds some dimensions to the scores of rows, or begins with them: `T` rows at a time.
///
/// # Safety
///
/// `row` is the first of as many rows as there are scores. They are `stride` apart and have as many
/// dimensions as `queries`.
#[inline(always)]
unsafe fn add_scores<S: Simd, const V: usize, const T: usize>(
    s: S,
    queries: &[[Lanes; V]],
    row: *const f32,
    stride: usize,
    begins: bool,
    scores: &mut [[Lanes; V]],
) {
    for (i, scores) in scores.as_chunks_mut::<T>().0.iter_mut().enumerate() {
        let row = row.wrapping_add(i * T * stride);
        let mut acc = [[s.splat(0.0); V]; T];
        if !begins {
            for t in 0..T {
                for v in 0..V {
                    // SAFETY: 16 values.
                    acc[t][v] = unsafe { s.load_f(scores[t][v].0.as_ptr()) };
                }
            }
        }
        for (d, q) in queries.iter().enumerate() {
            // SAFETY: 16 values.
            let q: [S::F; V] = array!(s.splat(0.0), |v| unsafe { s.load_f(q[v].0.as_ptr()) });
            for t in 0..T {
                // SAFETY: by contract.
                let k = s.splat(unsafe { *row.add(t * stride + d) });
                for v in 0..V {
                    acc[t][v] = s.fma(q[v], k, acc[t][v]);
                }
            }
        }
        for t in 0..T {
            for v in 0..V {
                // SAFETY: 16 values.
                unsafe { s.store_f(scores[t][v].0.as_mut_ptr(), acc[t][v]) };
            }
        }
    }
}

/// Replaces scores by their exponentials, relative to the largest score so far, and adds these to
/// the totals. Returns the factor for earlier exponentials.
#[inline(always)]
fn softmax<S: Simd, const V: usize>(
    s: S,
    scores: &mut [[Lanes; V]],
    largest: &mut [S::F; V],
    totals: &mut [S::F; V],
) -> [S::F; V] {
    let mut decay = [s.splat(0.0); V];
    for v in 0..V {
        let mut now = largest[v];
        for score in &*scores {
            // SAFETY: 16 values.
            now = s.max(unsafe { s.load_f(score[v].0.as_ptr()) }, now);
        }
        decay[v] = s.exp_or_zero(s.sub(largest[v], now));
        let mut total = s.mul(totals[v], decay[v]);
        for score in &mut *scores {
            // SAFETY: 16 values.
            let x = unsafe { s.load_f(score[v].0.as_ptr()) };
            let p = s.exp_or_zero(s.sub(x, now));
            // SAFETY: 16 values.
            unsafe { s.store_f(score[v].0.as_mut_ptr(), p) };
            total = s.add(total, p);
        }
        (largest[v], totals[v]) = (now, total);
    }
    decay
}

/// Adds the weighted values of some rows to the sums, which decay first, `D` sums at a time.
/// Without a decay the sums begin.
///
/// # Safety
///
/// `row` is the first of as many rows as there are weights. They are `stride` apart and have as
/// many elements as there are sums.
#[inline(always)]
unsafe fn add_values<S: Simd, const V: usize, const D: usize>(
    s: S,
    weights: &[[Lanes; V]],
    row: *const f32,
    stride: usize,
    decay: Option<[S::F; V]>,
    sums: &mut [[Lanes; V]],
) {
    for (i, sums) in sums.as_chunks_mut::<D>().0.iter_mut().enumerate() {
        let row = row.wrapping_add(i * D);
        let mut acc = [[s.splat(0.0); V]; D];
        if let Some(decay) = decay {
            for d in 0..D {
                for v in 0..V {
                    // SAFETY: 16 values.
                    acc[d][v] = s.mul(unsafe { s.load_f(sums[d][v].0.as_ptr()) }, decay[v]);
                }
            }
        }
        for (t, weight) in weights.iter().enumerate() {
            // SAFETY: 16 values.
            let w: [S::F; V] = array!(s.splat(0.0), |v| unsafe { s.load_f(weight[v].0.as_ptr()) });
            for d in 0..D {
                // SAFETY: by contract.
                let x = s.splat(unsafe { *row.add(t * stride + d) });
                for v in 0..V {
                    acc[d][v] = s.fma(w[v], x, acc[d][v]);
                }
            }
        }
        for d in 0..D {
            for v in 0..V {
                // SAFETY: 16 values.
                unsafe { s.store_f(sums[d][v].0.as_mut_ptr(), acc[d][v]) };
            }
        }
    }
}

impl CachedHead<'_> {
    /// Converts rows of the cache from position `first` on, all in one chunk, to f32.
    #[inline(always)]
    fn unpack<S: Simd>(&self, s: S, first: usize, positions: usize, rows: &mut [Lanes]) {
        let shape = self.shape;
        let rows = rows.chunks_exact_mut(shape.head_dim.div_ceil(LANES));
        for (position, row) in (first..first + positions).zip(rows) {
            with_element!(shape.dtype, E => self.unpack_row::<S, E>(s, position, row));
        }
    }

    #[inline(always)]
    fn unpack_row<S: Simd, E: Element>(&self, s: S, position: usize, row: &mut [Lanes]) {
        let shape = self.shape;
        let (page, slot) = (self.page_keys(position), position % shape.page_tokens);
        let elements = page.wrapping_add(slot * shape.value_bytes());
        let scales = page.wrapping_add(shape.value_bytes() * shape.page_tokens);
        let scales = scales.wrapping_add(slot * shape.scales() * 2);
        let vectors = SCALE_GROUP / LANES;
        for (g, lanes) in row.chunks_mut(vectors * LANES).enumerate() {
            let mut scale = [1.0; LANES];
            if E::SCALED {
                // SAFETY: the scales of a page follow its elements; 32 bytes from here are inside
                // the map.
                scale = s.to_array(unsafe { s.load_f16(scales.wrapping_add(g * 2 * LANES)) });
            }
            for (i, lanes) in lanes.iter_mut().enumerate() {
                let d = (g * vectors * LANES + i) * LANES;
                // SAFETY: the row has whole vectors.
                let mut v = unsafe { E::value(s, elements, d, shape.value_stride()) };
                if E::SCALED {
                    v = s.mul(v, s.splat(scale[i / vectors]));
                }
                // SAFETY: 16 values.
                unsafe { s.store_f(lanes.0.as_mut_ptr(), v) };
            }
        }
    }
}
