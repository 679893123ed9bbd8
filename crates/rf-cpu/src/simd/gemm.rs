//! GEMM of integer panels with many tokens, for prefill. It is bound by dot products.
//!
//! Per 256 columns, the codes of `P` panels are unpacked once into a tile of signed bytes, with
//! scales as f32. A tile takes 7 KiB per panel and stays in L1. Then `P` panels × `T` tokens are
//! summed in registers. Per 32 columns, a pair of panel and token takes 8 dot products, one
//! conversion and one or two multiply-adds: at best 73 to 80 % of the dot-product peak. If codes
//! and integer scales fold into bytes ([`Format::FOLD`]), there is one conversion per 256 columns.

use std::mem::offset_of;

use super::activations::{ACT_BLOCK, ActBlock};
use super::format::{Format, Planes};
use super::matvec::{paired_scales, prefetch, sum_pair, word};
use super::tiles::{
    FLOAT_TOKENS, FloatTile, GEMM_BLOCK, GEMM_GROUP, GEMM_PANELS, GEMM_TOKENS, PanelSums,
};
use super::{LANES, Simd};

/// The buffers of one thread for a GEMM.
pub(crate) struct GemmScratch {
    pub(super) tiles: Box<[Tile; GEMM_PANELS]>,
    float_tile: Box<FloatTile>,
    /// `[pair of panels][tokens of a block]`.
    pub(super) sums: Vec<PanelSums>,
}

impl GemmScratch {
    pub(crate) fn new(tokens: usize) -> Self {
        let sums = vec![PanelSums::ZERO; Self::sums_for(tokens)];
        let tiles = Box::new([Tile::ZERO, Tile::ZERO]);
        Self { tiles, float_tile: Box::new(FloatTile::ZERO), sums }
    }

    /// Bytes for batches of up to `tokens`.
    pub(crate) fn bytes_for(tokens: usize) -> usize {
        Self::sums_for(tokens) * size_of::<PanelSums>()
            + size_of::<[Tile; GEMM_PANELS]>()
            + size_of::<FloatTile>()
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(self.sums.as_slice())
            + size_of_val(&*self.tiles)
            + size_of_val(&*self.float_tile)
    }

    fn sums_for(tokens: usize) -> usize {
        let tokens = tokens.next_multiple_of(FLOAT_TOKENS).min(GEMM_BLOCK);
        tokens * (GEMM_GROUP / GEMM_PANELS)
    }

    /// The buffers of a float GEMM.
    pub(super) fn for_floats(&mut self) -> (&mut FloatTile, &mut [PanelSums]) {
        (&mut self.float_tile, &mut self.sums)
    }
}

/// 256 unpacked columns of one panel.
#[repr(C, align(64))]
pub(crate) struct Tile {
    /// The codes, signed or [`is_unsigned`]: `[sub-block of 32][4 columns][row][column of 4]`.
    codes: [[[u8; 64]; 8]; 8],
    /// The initial value of each sum of [`Simd::dot_biased_activation`], or, if [`joins_scaled`],
    /// the integer scale of each sub-block, as two equal i16.
    start: [[i32; LANES]; 16],
    /// Scale of each sub-block (`SUB` elements).
    scale: [[f32; LANES]; 16],
    /// Minimum of each block of 32.
    min: [[f32; LANES]; 8],
    /// The integer minima of two sub-blocks, as two i16; their scales if [`joins_scaled`] and the
    /// format has no minima.
    mins: [[i32; LANES]; 8],
    /// Scale of the super-block.
    d: [f32; LANES],
    /// Scale of the minima of the super-block.
    d_min: [f32; LANES],
}

impl Tile {
    /// A tile of zeros.
    pub(crate) const ZERO: Self = Self {
        codes: [[[0; 64]; 8]; 8],
        start: [[0; LANES]; 16],
        scale: [[0.0; LANES]; 16],
        min: [[0.0; LANES]; 8],
        mins: [[0; LANES]; 8],
        d: [0.0; LANES],
        d_min: [0.0; LANES],
    };
}

/// Unpacks columns `256·index..` of a panel. Returns the number of sub-blocks of 32. Prefetches a
/// part of the same size of the panel `ahead`.
///
/// # Safety
///
/// `panel` is a panel of `Fm` with `blocks` blocks a row, and has those columns.
#[inline(always)]
pub(super) unsafe fn unpack<S: Simd, Fm: Format>(
    s: S,
    panel: *const u8,
    blocks: usize,
    index: usize,
    ahead: *const u8,
    tile: &mut Tile,
) -> usize {
    let planes = Planes::new(Fm::PLANES, panel, blocks);
    let per_tile = ACT_BLOCK / Fm::BLOCK;
    let first = index * per_tile;
    let here = per_tile.min(blocks - first);
    let bytes = Fm::BYTES * LANES;
    prefetch(s, ahead, first * bytes..(first + here) * bytes);
    let ones = s.splat_i(0x0101_0101);
    let offset = s.splat_i(Fm::OFFSET * 0x0101_0101);
    for b in 0..here {
        let block = planes.block(Fm::PLANES, first + b);
        let mut total = s.splat_i(0);
        for j in 0..Fm::BLOCK / 32 {
            let sub = b * (Fm::BLOCK / 32) + j;
            // SAFETY: the panel is of this format.
            let codes = unsafe { Fm::codes(s, block, j) };
            let mut sums = [s.splat_i(0); 2];
            let mut factors = [s.splat_i(0); 2];
            if folds::<S, Fm>() {
                for (half, factor) in factors.iter_mut().enumerate() {
                    // SAFETY: as above.
                    *factor = unsafe { Fm::sub_scale(s, block, 2 * j + half) };
                    if Fm::FOLD < 0 {
                        *factor = s.sub_i(s.splat_i(0), *factor);
                    }
                }
            }
            for (g, code) in codes.into_iter().enumerate() {
                let mut code = code;
                if Fm::OFFSET != 0 && !is_unsigned::<S, Fm>() {
                    code = s.sub_bytes(code, offset);
                }
                if folds::<S, Fm>() {
                    code = s.mul_bytes(code, factors[g / 4]);
                }
                sums[g / 4] = weight_sum::<S>(s, sums[g / 4], code, ones);
                // SAFETY: 64 bytes.
                unsafe { s.store_i(tile.codes[sub][g].as_mut_ptr(), code) };
            }
            if joins_scaled::<S, Fm>() {
                // SAFETY: as above.
                let (scales, both) = unsafe { paired_scales::<S, Fm>(s, block, j) };
                for half in 0..2 {
                    store_int(s, &mut tile.start[2 * sub + half], scales[half]);
                }
                if !Fm::MIN {
                    store_int(s, &mut tile.mins[sub], both);
                }
            } else if Fm::FOLD != 0 {
                total = s.add_i(total, s.add_i(sums[0], sums[1]));
            } else if Fm::SUB == 32 {
                store_int(s, &mut tile.start[sub], bias_start(s, s.add_i(sums[0], sums[1])));
                // SAFETY: as above.
                let scale = unsafe {
                    if Fm::SMALL { Fm::scale(s, block) } else { Fm::float_sub_scale(s, block, j) }
                };
                store_float(s, &mut tile.scale[sub], scale);
            } else {
                for half in 0..2 {
                    let i = 2 * sub + half;
                    store_int(s, &mut tile.start[i], bias_start(s, sums[half]));
                    // SAFETY: as above.
                    let scale = unsafe { Fm::float_sub_scale(s, block, 2 * j + half) };
                    store_float(s, &mut tile.scale[i], scale);
                }
            }
        }
        if folds::<S, Fm>() {
            store_int(s, &mut tile.start[0], bias_start(s, total));
        }
        if Fm::SMALL {
            if Fm::MIN {
                assert_eq!(Fm::BLOCK, 32); // a constant
                // SAFETY: as above.
                store_float(s, &mut tile.min[b], unsafe { Fm::min(s, block) });
            }
        } else {
            // SAFETY: as above.
            store_float(s, &mut tile.d, unsafe { Fm::scale(s, block) });
            if Fm::MIN {
                // SAFETY: as above.
                store_float(s, &mut tile.d_min, unsafe { Fm::min(s, block) });
                for p in 0..Fm::BLOCK / Fm::SUB / 2 {
                    // SAFETY: as above.
                    store_int(s, &mut tile.mins[p], unsafe { Fm::sub_mins(s, block, p) });
                }
            }
        }
    }
    here * (Fm::BLOCK / 32)
}

/// `acc + Σ w` over the four signed bytes of each lane, if the ISA needs the correction.
#[inline(always)]
fn weight_sum<S: Simd>(s: S, acc: S::I, w: S::I, ones: S::I) -> S::I {
    if S::BIAS == 0 { acc } else { s.dot_biased_activation(acc, w, ones) }
}

/// `−BIAS · Σ w`.
#[inline(always)]
fn bias_start<S: Simd>(s: S, weight_sum: S::I) -> S::I {
    if S::BIAS == 0 {
        return s.splat_i(0);
    }
    s.shl(s.sub_i(s.splat_i(0), weight_sum), S::BIAS.trailing_zeros())
}

#[inline(always)]
fn store_int<S: Simd>(s: S, out: &mut [i32; LANES], v: S::I) {
    // SAFETY: 64 bytes.
    unsafe { s.store_i(out.as_mut_ptr().cast(), v) };
}

#[inline(always)]
fn store_float<S: Simd>(s: S, out: &mut [f32; LANES], v: S::F) {
    // SAFETY: 16 values.
    unsafe { s.store_f(out.as_mut_ptr(), v) };
}

#[inline(always)]
fn int<S: Simd>(s: S, v: &[i32; LANES]) -> S::I {
    // SAFETY: 64 bytes.
    unsafe { s.load_i(v.as_ptr().cast()) }
}

#[inline(always)]
fn float<S: Simd>(s: S, v: &[f32; LANES]) -> S::F {
    // SAFETY: 16 values.
    unsafe { s.load_f(v.as_ptr()) }
}

/// Adds 256 columns of all panels × all tokens to `sums[token].0[panel]`. `x` holds the blocks of
/// the tokens, stored with [`Simd::BIAS`]; `subs` is the number of sub-blocks of 32.
#[inline(always)]
pub(super) fn tile_dot<S: Simd, Fm: Format>(
    s: S,
    tiles: &[Tile; GEMM_PANELS],
    subs: usize,
    x: &[ActBlock; GEMM_TOKENS],
    sums: &mut [PanelSums; GEMM_TOKENS],
) {
    if S::WIDE {
        part_dot::<S, Fm, GEMM_PANELS, GEMM_TOKENS>(s, tiles, 0, subs, x, sums);
        return;
    }
    for p in 0..GEMM_PANELS {
        // With one sum of pairs per dot product, the sums of three tokens fit into registers.
        if S::PAIRS && !Fm::SIGNED && Fm::PAIRED_CODES * 4 >= Fm::SUB {
            for t in (0..GEMM_TOKENS).step_by(3) {
                part_dot::<S, Fm, 1, 3>(s, &tiles[p..], p, subs, &x[t..], &mut sums[t..]);
            }
            continue;
        }
        for t in (0..GEMM_TOKENS).step_by(2) {
            part_dot::<S, Fm, 1, 2>(s, &tiles[p..], p, subs, &x[t..], &mut sums[t..]);
        }
    }
}

/// Computes as many tokens and panels as fit into registers: the first ones of `x` and `tiles`,
/// with sums from panel `first` on.
#[inline(always)]
fn part_dot<S: Simd, Fm: Format, const P: usize, const T: usize>(
    s: S,
    tiles: &[Tile],
    first: usize,
    subs: usize,
    x: &[ActBlock],
    sums: &mut [PanelSums],
) {
    let tiles: &[Tile; P] = tiles.first_chunk().expect("P panels");
    let x: &[ActBlock; T] = x.first_chunk().expect("T tokens");
    let sums: &mut [PanelSums; T] = sums.first_chunk_mut().expect("T tokens");
    let mut acc = [[s.splat(0.0); P]; T];
    if Fm::SMALL {
        for t in 0..T {
            for p in 0..P {
                acc[t][p] = float(s, &sums[t].0[first + p]);
            }
        }
        for sub in 0..subs {
            if Fm::SUB == 16 {
                // The scale of the block is 1.
                let mut sum = [[s.splat(0.0); P]; T];
                add_sub_block::<S, Fm, P, T>(s, tiles, x, sub, 0..4, &mut sum);
                add_sub_block::<S, Fm, P, T>(s, tiles, x, sub, 4..8, &mut sum);
                for t in 0..T {
                    for p in 0..P {
                        acc[t][p] = s.fma(sum[t][p], s.splat(x[t].scale[sub]), acc[t][p]);
                    }
                }
                continue;
            }
            let mut dot = starts::<S, Fm, P, T>(s, tiles, x, sub);
            add_dots::<S, Fm, P, T>(s, tiles, x, sub, 0..8, &mut dot);
            for p in 0..P {
                let d = float(s, &tiles[p].scale[sub]);
                for t in 0..T {
                    let scale = s.mul(d, s.splat(x[t].scale[sub]));
                    acc[t][p] = s.fma(s.to_f(dot[t][p]), scale, acc[t][p]);
                    if Fm::MIN {
                        let min = float(s, &tiles[p].min[sub]);
                        acc[t][p] = s.fma(min, s.splat(x[t].sum[sub]), acc[t][p]);
                    }
                }
            }
        }
    } else {
        if joins_scaled::<S, Fm>() {
            scaled_dots::<S, Fm, P, T>(s, tiles, x, &mut acc);
        } else if Fm::FOLD != 0 {
            let mut dot = starts::<S, Fm, P, T>(s, tiles, x, 0);
            for sub in 0..8 {
                add_dots::<S, Fm, P, T>(s, tiles, x, sub, 0..8, &mut dot);
            }
            for t in 0..T {
                for p in 0..P {
                    let dot = dot[t][p];
                    acc[t][p] = s.to_f(if Fm::FOLD < 0 { s.sub_i(s.splat_i(0), dot) } else { dot });
                }
            }
        } else {
            for sub in 0..8 {
                if Fm::SUB == 32 {
                    add_sub_block::<S, Fm, P, T>(s, tiles, x, sub, 0..8, &mut acc);
                } else {
                    add_sub_block::<S, Fm, P, T>(s, tiles, x, sub, 0..4, &mut acc);
                    add_sub_block::<S, Fm, P, T>(s, tiles, x, sub, 4..8, &mut acc);
                }
            }
        }
        for p in 0..P {
            let d = float(s, &tiles[p].d);
            for t in 0..T {
                let scale = s.mul(d, s.splat(x[t].scale[0]));
                acc[t][p] = s.fma(acc[t][p], scale, float(s, &sums[t].0[first + p]));
            }
        }
        if Fm::MIN {
            let mut mins = [[s.splat_i(0); P]; T];
            for pair in 0..Fm::BLOCK / Fm::SUB / 2 {
                for t in 0..T {
                    let sum = s.splat_i(sum_pair::<Fm>(&x[t], pair));
                    for p in 0..P {
                        mins[t][p] = s.dot_i16(mins[t][p], int(s, &tiles[p].mins[pair]), sum);
                    }
                }
            }
            for p in 0..P {
                let d_min = float(s, &tiles[p].d_min);
                for t in 0..T {
                    let scale = s.mul(d_min, s.splat(-x[t].scale[0]));
                    acc[t][p] = s.fma(s.to_f(mins[t][p]), scale, acc[t][p]);
                }
            }
        }
    }
    for t in 0..T {
        for p in 0..P {
            store_float(s, &mut sums[t].0[first + p], acc[t][p]);
        }
    }
}

/// Adds the scaled dot product of one sub-block, columns `4 · words` of 32, to `acc`.
#[inline(always)]
fn add_sub_block<S: Simd, Fm: Format, const P: usize, const T: usize>(
    s: S,
    tiles: &[Tile; P],
    x: &[ActBlock; T],
    sub: usize,
    words: std::ops::Range<usize>,
    acc: &mut [[S::F; P]; T],
) {
    let index = (32 * sub + 4 * words.start) / Fm::SUB;
    let mut dot = starts::<S, Fm, P, T>(s, tiles, x, index);
    add_dots::<S, Fm, P, T>(s, tiles, x, sub, words, &mut dot);
    for p in 0..P {
        let scale = float(s, &tiles[p].scale[index]);
        for t in 0..T {
            acc[t][p] = s.fma(s.to_f(dot[t][p]), scale, acc[t][p]);
        }
    }
}

/// Returns true if codes stay unsigned in the tile: the dot-product instruction takes unsigned ×
/// signed, and `x` is stored without a bias. The sums of `x` then correct for the offset.
const fn is_unsigned<S: Simd, Fm: Format>() -> bool {
    S::BIAS == 0 && !Fm::SIGNED && !folds::<S, Fm>()
}

/// Returns true if integer scales are multiplied into the bytes of the tile; see [`Format::FOLD`].
const fn folds<S: Simd, Fm: Format>() -> bool {
    Fm::FOLD != 0 && !S::PAIRS
}

/// Returns true if the integer scales are the factors that join the pairs of i16. A super-block is
/// then one integer sum, as with [`Format::FOLD`].
const fn joins_scaled<S: Simd, Fm: Format>() -> bool {
    Fm::FOLD != 0 && S::PAIRS
}

/// If [`joins_scaled`]: computes `acc = Σ_j s_j · (Σ q·x − OFFSET · Σ x)` of a super-block.
#[inline(always)]
fn scaled_dots<S: Simd, Fm: Format, const P: usize, const T: usize>(
    s: S,
    tiles: &[Tile; P],
    x: &[ActBlock; T],
    acc: &mut [[S::F; P]; T],
) {
    let mut dot = [[s.splat_i(0); P]; T];
    for i in 0..ACT_BLOCK / 16 {
        let factor = array!(s.splat_i(0), |p| int(s, &tiles[p].start[i]));
        add_pairs::<S, Fm, P, T>(s, tiles, x, 4 * i..4 * i + 4, factor, &mut dot);
    }
    if Fm::OFFSET != 0 {
        let mut offset = [[s.splat_i(0); P]; T];
        for pair in 0..ACT_BLOCK / 32 {
            for t in 0..T {
                let sum = s.splat_i(sum_pair::<Fm>(&x[t], pair));
                for p in 0..P {
                    offset[t][p] = s.dot_i16(offset[t][p], int(s, &tiles[p].mins[pair]), sum);
                }
            }
        }
        for t in 0..T {
            for p in 0..P {
                let offset = s.shl(offset[t][p], Fm::OFFSET.trailing_zeros());
                dot[t][p] = s.sub_i(dot[t][p], offset);
            }
        }
    }
    for t in 0..T {
        for p in 0..P {
            acc[t][p] = s.to_f(dot[t][p]);
        }
    }
}

/// Adds the dot products of columns `4 · words`, joined by `factor`.
#[inline(always)]
fn add_pairs<S: Simd, Fm: Format, const P: usize, const T: usize>(
    s: S,
    tiles: &[Tile; P],
    x: &[ActBlock; T],
    words: std::ops::Range<usize>,
    factor: [S::I; P],
    dot: &mut [[S::I; P]; T],
) {
    for first in words.clone().step_by(Fm::PAIRED_CODES) {
        let mut pairs = [[s.splat_i(0); P]; T];
        for g in first..words.end.min(first + Fm::PAIRED_CODES) {
            let w: [S::I; P] = codes(s, tiles, g);
            for t in 0..T {
                let word = s.splat_i(word(&x[t], g));
                for p in 0..P {
                    pairs[t][p] = s.pin(s.dot_pairs(pairs[t][p], w[p], word));
                }
            }
        }
        for t in 0..T {
            for p in 0..P {
                dot[t][p] = s.dot_i16(dot[t][p], pairs[t][p], factor[p]);
            }
        }
    }
}

/// Loads columns `4 · word..4 · word + 4` of each tile.
#[inline(always)]
fn codes<S: Simd, const P: usize>(s: S, tiles: &[Tile; P], word: usize) -> [S::I; P] {
    // SAFETY: 64 bytes.
    array!(s.splat_i(0), |p| unsafe { s.load_i(tiles[p].codes[word / 8][word % 8].as_ptr()) })
}

/// The initial value of sum `index` of a tile, for every token.
#[inline(always)]
fn starts<S: Simd, Fm: Format, const P: usize, const T: usize>(
    s: S,
    tiles: &[Tile; P],
    x: &[ActBlock; T],
    index: usize,
) -> [[S::I; P]; T] {
    if !is_unsigned::<S, Fm>() {
        return [array!(s.splat_i(0), |p| int(s, &tiles[p].start[index])); T];
    }
    if S::PAIRS && Fm::OFFSET != 0 {
        // The factor selects one of two sums.
        let half = if Fm::SUB == 32 { 0 } else { index % 2 };
        let factor = s.splat_i((-Fm::OFFSET & 0xffff) << (16 * half));
        return array!([s.splat_i(0); P], |t| {
            let sums = if Fm::SUB == 32 {
                sum_and_next(&x[t], index)
            } else {
                sum_pair::<Fm>(&x[t], index / 2)
            };
            [s.dot_i16(s.splat_i(0), s.splat_i(sums), factor); P]
        });
    }
    let sum = |x: &ActBlock| if Fm::SUB == 32 { x.sum_32[index] } else { x.sum_16[index] };
    array!([s.splat_i(0); P], |t| [s.splat_i(-Fm::OFFSET * i32::from(sum(&x[t]))); P])
}

/// `Σ q` of sub-block `i` of 32 in the lower half, and the sum after it in the upper half. With
/// [`sum_pair`] the factor would depend on `i`.
#[inline(always)]
fn sum_and_next(x: &ActBlock, i: usize) -> i32 {
    const FIRST: usize = offset_of!(ActBlock, sum_32);
    const { assert!(offset_of!(ActBlock, sum_16) == FIRST + 16) };
    assert!(i < 8);
    // SAFETY: `sum_16` follows the eight values of `sum_32`.
    unsafe { std::ptr::from_ref(x).byte_add(FIRST + 2 * i).cast::<i32>().read_unaligned() }
}

/// Adds the integer dot products of sub-block `sub` over the groups of four columns in `words`.
#[inline(always)]
fn add_dots<S: Simd, Fm: Format, const P: usize, const T: usize>(
    s: S,
    tiles: &[Tile; P],
    x: &[ActBlock; T],
    sub: usize,
    words: std::ops::Range<usize>,
    dot: &mut [[S::I; P]; T],
) {
    for x in x {
        // Prefetches the same part of the next tokens' blocks.
        s.prefetch(std::ptr::from_ref(x).wrapping_add(T).cast::<u8>().wrapping_add(64 * sub));
    }
    if S::PAIRS && !Fm::SIGNED {
        let ones = [s.splat_i(0x0001_0001); P];
        let words = 8 * sub + words.start..8 * sub + words.end;
        return add_pairs::<S, Fm, P, T>(s, tiles, x, words, ones, dot);
    }
    for g in words {
        let w: [S::I; P] = codes(s, tiles, 8 * sub + g);
        for t in 0..T {
            let word = s.splat_i(word(&x[t], 8 * sub + g));
            for p in 0..P {
                dot[t][p] = if is_unsigned::<S, Fm>() {
                    s.dot_u7(dot[t][p], w[p], word)
                } else {
                    s.dot_biased_activation(dot[t][p], w[p], word)
                };
            }
        }
    }
}
