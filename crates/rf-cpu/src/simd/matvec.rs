//! GEMV of a panel with a few tokens, for decode. It is bound by the bytes of the weights.
//!
//! Per panel and 32 columns the integer kernels execute 8 dot instructions per token and unpack the
//! codes once for all tokens. For one token this is 2 to 4 times faster than memory delivers the
//! weights, so the loop is simple and reads the weights sequentially.

use super::activations::{ACT_BLOCK, ActBlock};
use super::format::{BlockPlanes, Format, Planes};
use super::{LANES, Simd};
use rf_graph::DType;

/// Multiplies one panel by `T` tokens. `activations[t]` is the first block of token `t`; its blocks
/// are `stride` apart. `ahead` is the panel to read next.
///
/// `gemm` sums in the same order: per block the integer dot products, scaled and summed in f32,
/// then `acc = fma(sum, d · d_x, acc)`, then the minimum.
///
/// # Safety
///
/// `panel` is a panel of `Fm` with `blocks` blocks a row, and each token has
/// `⌈blocks · BLOCK / 256⌉` activation blocks with a scale per 32 if `Fm::SMALL`, else per 256.
#[inline(always)]
pub(super) unsafe fn panel_dot<S: Simd, Fm: Format, const T: usize>(
    s: S,
    panel: *const u8,
    blocks: usize,
    activations: [*const ActBlock; T],
    stride: usize,
    ahead: *const u8,
) -> [S::F; T] {
    let planes = Planes::new(Fm::PLANES, panel, blocks);
    let per_act = ACT_BLOCK / Fm::BLOCK;
    let bytes = Fm::BYTES * LANES;
    let mut acc = [s.splat(0.0); T];
    for b in 0..blocks {
        // Prefetches a part of the next panel. The planes of a panel are too many and too short
        // streams for the hardware prefetcher.
        let ahead = ahead.wrapping_add(b * bytes);
        let block = planes.block(Fm::PLANES, b);
        let first_sub = b % per_act * (Fm::BLOCK / 32);
        // SAFETY: b / per_act is below the number of the token's blocks.
        let x: [&ActBlock; T] = activations.map(|a| unsafe { &*a.add(b / per_act * stride) });
        if Fm::SMALL {
            prefetch(s, ahead, 0..bytes);
            for j in 0..Fm::BLOCK / 32 {
                // SAFETY: the panel is of this format.
                unsafe { small_sub_block::<S, Fm, T>(s, block, j, first_sub + j, x, &mut acc) };
            }
            continue;
        }
        let mut sum = [s.splat(0.0); T];
        if S::PAIRS && Fm::FOLD != 0 {
            prefetch(s, ahead, 0..bytes);
            // SAFETY: as above.
            sum = unsafe { folded_block::<S, Fm, T>(s, block, x) };
        } else {
            // Unrolled, for shifts by constants and four sub-blocks in flight.
            for j in (0..8).step_by(4) {
                // SAFETY: as above.
                unsafe { sub_block::<S, Fm, T>(s, block, j, j, x, &mut sum) };
                prefetch(s, ahead, j * bytes / 8..(j + 1) * bytes / 8);
                // SAFETY: as above.
                unsafe { sub_block::<S, Fm, T>(s, block, j + 1, j + 1, x, &mut sum) };
                prefetch(s, ahead, (j + 1) * bytes / 8..(j + 2) * bytes / 8);
                // SAFETY: as above.
                unsafe { sub_block::<S, Fm, T>(s, block, j + 2, j + 2, x, &mut sum) };
                prefetch(s, ahead, (j + 2) * bytes / 8..(j + 3) * bytes / 8);
                // SAFETY: as above.
                unsafe { sub_block::<S, Fm, T>(s, block, j + 3, j + 3, x, &mut sum) };
                prefetch(s, ahead, (j + 3) * bytes / 8..(j + 4) * bytes / 8);
            }
        }
        // SAFETY: as above.
        let d = unsafe { Fm::scale(s, block) };
        for t in 0..T {
            acc[t] = s.fma(sum[t], s.mul(d, s.splat(x[t].scale[0])), acc[t]);
        }
        if Fm::MIN {
            // SAFETY: as above.
            let min = unsafe { Fm::min(s, block) };
            let mut mins = [s.splat_i(0); T];
            for p in 0..Fm::BLOCK / Fm::SUB / 2 {
                // SAFETY: as above.
                let pair = unsafe { Fm::sub_mins(s, block, p) };
                for t in 0..T {
                    mins[t] = s.dot_i16(mins[t], pair, s.splat_i(sum_pair::<Fm>(x[t], p)));
                }
            }
            for t in 0..T {
                let scale = s.mul(min, s.splat(-x[t].scale[0]));
                acc[t] = s.fma(s.to_f(mins[t]), scale, acc[t]);
            }
        }
    }
    acc
}

/// Adds columns `32j..32j + 32` of a block of a small format to `acc`, scaled and with the minimum.
/// They are sub-block `at` of the activations.
///
/// # Safety
///
/// The block is of a panel of `Fm`, and has these columns.
#[inline(always)]
unsafe fn small_sub_block<S: Simd, Fm: Format, const T: usize>(
    s: S,
    block: BlockPlanes,
    j: usize,
    at: usize,
    x: [&ActBlock; T],
    acc: &mut [S::F; T],
) {
    let mut sum = [s.splat(0.0); T];
    // SAFETY: by contract.
    unsafe { sub_block::<S, Fm, T>(s, block, j, at, x, &mut sum) };
    // SAFETY: by contract.
    let d = unsafe { Fm::scale(s, block) };
    for t in 0..T {
        acc[t] = s.fma(sum[t], s.mul(d, s.splat(x[t].scale[at])), acc[t]);
    }
    if Fm::MIN {
        // SAFETY: by contract.
        let min = unsafe { Fm::min(s, block) };
        for t in 0..T {
            acc[t] = s.fma(min, s.splat(x[t].sum[at]), acc[t]);
        }
    }
}

/// Prefetches the cache lines that begin in `range`.
#[inline(always)]
pub(super) fn prefetch<S: Simd>(s: S, from: *const u8, range: std::ops::Range<usize>) {
    for line in range.start.div_ceil(64)..range.end.div_ceil(64) {
        s.prefetch(from.wrapping_add(line * 64));
    }
}

/// Adds columns `32j..32j + 32` of a block, which are sub-block `at` of the activations, to `sum`.
///
/// # Safety
///
/// The block is of a panel of `Fm`, and has these columns.
#[inline(always)]
unsafe fn sub_block<S: Simd, Fm: Format, const T: usize>(
    s: S,
    block: BlockPlanes,
    j: usize,
    at: usize,
    x: [&ActBlock; T],
    sum: &mut [S::F; T],
) {
    // SAFETY: by contract.
    let mut codes = unsafe { Fm::codes(s, block, j) };
    if Fm::SIGNED {
        codes = array!(codes[0], |g| s.bias_bytes(codes[g]));
    }
    if Fm::SUB == 32 {
        // SAFETY: by contract.
        let scale = (!Fm::SMALL).then(|| unsafe { Fm::float_sub_scale(s, block, j) });
        let starts = array!(s.splat_i(0), |t| start::<S, Fm>(s, i32::from(x[t].sum_32[at])));
        let mut dot = dots::<S, Fm, T>(s, starts, &codes, x, 8 * at);
        if Fm::SPLIT {
            // SAFETY: by contract.
            let high = unsafe { Fm::high_codes(s, block, j) };
            let high: [S::I; 8] = array!(high[0], |g| s.bias_bytes(high[g]));
            let high_dot = dots::<S, Fm, T>(s, starts, &high, x, 8 * at);
            for t in 0..T {
                dot[t] = s.add_i(dot[t], s.shl(high_dot[t], 4));
            }
        }
        for t in 0..T {
            sum[t] = match scale {
                Some(scale) => s.fma(s.to_f(dot[t]), scale, sum[t]),
                None => s.to_f(dot[t]),
            };
        }
        return;
    }
    for half in 0..2 {
        // SAFETY: by contract.
        let scale = unsafe { Fm::float_sub_scale(s, block, 2 * j + half) };
        let sub = 2 * at + half;
        let starts = array!(s.splat_i(0), |t| start::<S, Fm>(s, i32::from(x[t].sum_16[sub])));
        let dot = dots::<S, Fm, T>(s, starts, &codes[4 * half..][..4], x, 4 * sub);
        for t in 0..T {
            sum[t] = s.fma(s.to_f(dot[t]), scale, sum[t]);
        }
    }
}

/// `Σ_j s_j · (Σ q·x − OFFSET · Σ x)` of a super-block of a format that folds. It is one integer
/// sum, as in the GEMM; the integer scales join the pairs.
///
/// # Safety
///
/// The block is of a panel of `Fm`.
#[inline(always)]
unsafe fn folded_block<S: Simd, Fm: Format, const T: usize>(
    s: S,
    block: BlockPlanes,
    x: [&ActBlock; T],
) -> [S::F; T] {
    let mut total = [s.splat_i(0); T];
    let mut offset = [s.splat_i(0); T];
    // Unrolled, for shifts by constants.
    // SAFETY: by contract.
    unsafe { folded_columns::<S, Fm, T>(s, block, 0, x, &mut total, &mut offset) };
    // SAFETY: by contract.
    unsafe { folded_columns::<S, Fm, T>(s, block, 1, x, &mut total, &mut offset) };
    // SAFETY: by contract.
    unsafe { folded_columns::<S, Fm, T>(s, block, 2, x, &mut total, &mut offset) };
    // SAFETY: by contract.
    unsafe { folded_columns::<S, Fm, T>(s, block, 3, x, &mut total, &mut offset) };
    // SAFETY: by contract.
    unsafe { folded_columns::<S, Fm, T>(s, block, 4, x, &mut total, &mut offset) };
    // SAFETY: by contract.
    unsafe { folded_columns::<S, Fm, T>(s, block, 5, x, &mut total, &mut offset) };
    // SAFETY: by contract.
    unsafe { folded_columns::<S, Fm, T>(s, block, 6, x, &mut total, &mut offset) };
    // SAFETY: by contract.
    unsafe { folded_columns::<S, Fm, T>(s, block, 7, x, &mut total, &mut offset) };
    for t in 0..T {
        if Fm::OFFSET != 0 {
            let offset = s.shl(offset[t], Fm::OFFSET.trailing_zeros());
            total[t] = s.sub_i(total[t], offset);
        }
    }
    array!(s.splat(0.0), |t| s.to_f(total[t]))
}

/// Adds columns `32j..32j + 32` for [`folded_block`].
///
/// # Safety
///
/// The contract of [`folded_block`].
#[inline(always)]
unsafe fn folded_columns<S: Simd, Fm: Format, const T: usize>(
    s: S,
    block: BlockPlanes,
    j: usize,
    x: [&ActBlock; T],
    total: &mut [S::I; T],
    offset: &mut [S::I; T],
) {
    // SAFETY: by contract.
    let codes = unsafe { Fm::codes(s, block, j) };
    // SAFETY: by contract.
    let (scales, both) = unsafe { paired_scales::<S, Fm>(s, block, j) };
    for half in 0..2 {
        for t in 0..T {
            let mut pairs = s.splat_i(0);
            for (g, code) in codes[4 * half..][..4].iter().enumerate() {
                let word = s.splat_i(word(x[t], 8 * j + 4 * half + g));
                pairs = s.dot_pairs(pairs, *code, word);
            }
            total[t] = s.dot_i16(total[t], pairs, scales[half]);
        }
    }
    if Fm::OFFSET != 0 {
        for t in 0..T {
            offset[t] = s.dot_i16(offset[t], both, s.splat_i(sum_pair::<Fm>(x[t], j)));
        }
    }
}

/// The integer scales of sub-blocks `2j` and `2j + 1`: each as two equal i16, and both as two i16.
///
/// # Safety
///
/// The block is of a panel of `Fm`, and `j < 8`.
#[inline(always)]
pub(super) unsafe fn paired_scales<S: Simd, Fm: Format>(
    s: S,
    block: BlockPlanes,
    j: usize,
) -> ([S::I; 2], S::I) {
    let low = s.splat_i(0xffff);
    // SAFETY: by contract.
    let even = s.and(unsafe { Fm::sub_scale(s, block, 2 * j) }, low);
    // SAFETY: by contract.
    let odd = s.and(unsafe { Fm::sub_scale(s, block, 2 * j + 1) }, low);
    let twice = [s.or(even, s.shl(even, 16)), s.or(odd, s.shl(odd, 16))];
    (twice, s.or(even, s.shl(odd, 16)))
}

/// `−offset · Σ x`, the correction for the offset of the codes.
#[inline(always)]
fn start<S: Simd, Fm: Format>(s: S, sum: i32) -> S::I {
    let offset = if Fm::SIGNED { i32::from(S::BIAS) } else { Fm::OFFSET };
    if offset == 0 { s.splat_i(0) } else { s.splat_i(-offset * sum) }
}

/// `acc + Σ codes · x` from word `at` of the activations. With few tokens each sum is split in two,
/// because one would be bound by the latency of the dot product.
#[inline(always)]
fn dots<S: Simd, Fm: Format, const T: usize>(
    s: S,
    acc: [S::I; T],
    codes: &[S::I],
    x: [&ActBlock; T],
    at: usize,
) -> [S::I; T] {
    if S::PAIRS && !Fm::SIGNED {
        let mut sums = acc;
        for (i, codes) in codes.chunks(Fm::PAIRED_CODES).enumerate() {
            let mut pairs = [s.splat_i(0); T];
            for (g, code) in codes.iter().enumerate() {
                for t in 0..T {
                    let word = s.splat_i(word(x[t], at + i * Fm::PAIRED_CODES + g));
                    pairs[t] = s.dot_pairs(pairs[t], *code, word);
                }
            }
            for t in 0..T {
                sums[t] = s.dot_i16(sums[t], pairs[t], s.splat_i(0x0001_0001));
            }
        }
        return sums;
    }
    let parts = if T < 4 { 2 } else { 1 };
    let mut sums = [acc, [s.splat_i(0); T]];
    for (g, code) in codes.iter().enumerate() {
        let sums = &mut sums[g % parts];
        for t in 0..T {
            let word = s.splat_i(word(x[t], at + g));
            sums[t] = if Fm::SIGNED {
                s.dot_biased_weight(sums[t], *code, word)
            } else {
                s.dot_u7(sums[t], *code, word)
            };
        }
    }
    if parts == 1 {
        return sums[0];
    }
    array!(acc[0], |t| s.add_i(sums[0][t], sums[1][t]))
}

/// Broadcasts four consecutive activations.
#[inline(always)]
pub(super) fn word(x: &ActBlock, i: usize) -> i32 {
    let bytes: [i8; 4] = x.q.as_chunks::<4>().0[i];
    i32::from_le_bytes(bytes.map(i8::cast_unsigned))
}

/// The sums of the activations of sub-blocks `2p` and `2p + 1` of a super-block, as two i16.
#[inline(always)]
pub(super) fn sum_pair<Fm: Format>(x: &ActBlock, p: usize) -> i32 {
    let [a, b] = if Fm::SUB == 32 {
        [x.sum_32[2 * p], x.sum_32[2 * p + 1]]
    } else {
        [x.sum_16[2 * p], x.sum_16[2 * p + 1]]
    };
    i32::from(b) << 16 | (i32::from(a) & 0xffff)
}

/// A weight format of plain floats.
pub(crate) trait FloatFormat {
    /// The weight format.
    const DTYPE: DType;
    /// Bytes of one value.
    const BYTES: usize;

    /// Loads one column of 16 rows.
    ///
    /// # Safety
    /// 16 values at `p` are readable.
    unsafe fn load<S: Simd>(s: S, p: *const u8) -> S::F;
}

macro_rules! float_format {
    ($name:ident, $dtype:expr, $bytes:literal, |$s:ident, $p:ident| $load:expr) => {
        #[doc = concat!("16 rows of ", stringify!($name), ".")]
        pub(crate) struct $name;
        impl FloatFormat for $name {
            const DTYPE: DType = $dtype;
            const BYTES: usize = $bytes;
            #[inline(always)]
            unsafe fn load<S: Simd>($s: S, $p: *const u8) -> S::F {
                // SAFETY: by contract.
                unsafe { $load }
            }
        }
    };
}
float_format!(F32, DType::F32, 4, |s, p| s.load_f(p.cast()));
float_format!(F16, DType::F16, 2, |s, p| s.load_f16(p));
float_format!(Bf16, DType::Bf16, 2, |s, p| s.load_bf16(p));

/// Number of columns summed before they are added to the total. This bounds the rounding error of
/// long rows.
pub(crate) const FLOAT_CHUNK: usize = 128;

/// Multiplies `P` panels by `T` tokens of f32; `x[t]` has `columns` values.
///
/// # Safety
///
/// The panels are of `Fm` with `columns` columns, and each token has as many values.
#[inline(always)]
pub(super) unsafe fn panel_dot_float<S: Simd, Fm: FloatFormat, const P: usize, const T: usize>(
    s: S,
    panels: [*const u8; P],
    columns: usize,
    x: [*const f32; T],
) -> [[S::F; T]; P] {
    let mut total = [[s.splat(0.0); T]; P];
    let mut first = 0;
    while first < columns {
        let last = columns.min(first + FLOAT_CHUNK);
        let mut acc = [[s.splat(0.0); T]; P];
        for k in first..last {
            for p in 0..P {
                // SAFETY: k < columns.
                let w = unsafe { Fm::load(s, panels[p].add(k * LANES * Fm::BYTES)) };
                for t in 0..T {
                    // SAFETY: k < columns.
                    acc[p][t] = s.fma(w, s.splat(unsafe { *x[t].add(k) }), acc[p][t]);
                }
            }
        }
        for p in 0..P {
            for t in 0..T {
                total[p][t] = s.add(total[p][t], acc[p][t]);
            }
        }
        first = last;
    }
    total
}
