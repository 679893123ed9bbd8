//! Products of panels with many tokens: prefill, bound by integer dot products.
//!
//! Per 256 columns the codes of `P` panels are unpacked once into a tile of signed bytes (7 KiB a panel,
//! so tiles stay in L1), with scales as f32; then `P` panels × `T` tokens are summed in registers. Per
//! 32 columns and pair of panel and token that is 8 dot products, one conversion and one or two
//! multiply-adds: at best 73 to 80 % of the dot-product peak.

use super::activations::{ACT_BLOCK, ActBlock};
use super::format::{Format, Planes};
use super::matvec::{sum_pair, word};
use super::{LANES, Simd};

/// One panel's 256 columns, unpacked.
#[repr(C, align(64))]
pub(crate) struct Tile {
    /// Signed codes: `[sub-block of 32][4 columns][row][column of 4]`.
    codes: [[[u8; 64]; 8]; 8],
    /// Start of each sum of [`Simd::dot_biased_activation`].
    start: [[i32; LANES]; 16],
    /// Scale of each sub-block (`SUB` elements).
    scale: [[f32; LANES]; 16],
    /// Minimum of each block of 32.
    min: [[f32; LANES]; 8],
    /// Integer minima of two sub-blocks.
    mins: [[i32; LANES]; 8],
    /// Scale of the super-block.
    d: [f32; LANES],
    /// Scale of the minima of the super-block.
    d_min: [f32; LANES],
}

impl Tile {
    /// All zero.
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

/// Unpacks columns `256·index ..` of a panel; returns how many sub-blocks of 32 there are.
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
    tile: &mut Tile,
) -> usize {
    let planes = Planes::new(Fm::PLANES, panel, blocks);
    let per_tile = ACT_BLOCK / Fm::BLOCK;
    let first = index * per_tile;
    let here = per_tile.min(blocks - first);
    let ones = s.splat_i(0x0101_0101);
    let offset = s.splat_i(Fm::OFFSET * 0x0101_0101);
    for b in 0..here {
        let block = planes.block(Fm::PLANES, first + b);
        for j in 0..Fm::BLOCK / 32 {
            let sub = b * (Fm::BLOCK / 32) + j;
            // SAFETY: the panel is of this format.
            let codes = unsafe { Fm::codes(s, block, j) };
            let mut sums = [s.splat_i(0); 2];
            for (g, code) in codes.into_iter().enumerate() {
                let code = if Fm::OFFSET == 0 { code } else { s.sub_bytes(code, offset) };
                sums[g / 4] = weight_sum::<S>(s, sums[g / 4], code, ones);
                // SAFETY: 64 bytes.
                unsafe { s.store_i(tile.codes[sub][g].as_mut_ptr(), code) };
            }
            if Fm::SUB == 32 {
                store_int(s, &mut tile.start[sub], bias_start(s, s.add_i(sums[0], sums[1])));
                // SAFETY: as above.
                let scale = unsafe {
                    if Fm::BLOCK == 32 {
                        Fm::scale(s, block)
                    } else {
                        s.to_f(Fm::sub_scale(s, block, j))
                    }
                };
                store_float(s, &mut tile.scale[sub], scale);
            } else {
                for half in 0..2 {
                    let i = 2 * sub + half;
                    store_int(s, &mut tile.start[i], bias_start(s, sums[half]));
                    // SAFETY: as above.
                    let scale = s.to_f(unsafe { Fm::sub_scale(s, block, 2 * j + half) });
                    store_float(s, &mut tile.scale[i], scale);
                }
            }
        }
        if Fm::BLOCK == 32 {
            if Fm::MIN {
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

/// `acc + Σ w` over the four signed bytes of each lane, where a correction needs it.
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

/// Adds 256 columns of `P` panels × `T` tokens to `sums[t][p]`. `x` are the tokens' blocks, stored with
/// [`Simd::BIAS`]; `subs` sub-blocks of 32 are there.
#[inline(always)]
pub(super) fn tile_dot<S: Simd, Fm: Format, const P: usize, const T: usize>(
    s: S,
    tiles: &[Tile; P],
    subs: usize,
    x: &[ActBlock; T],
    sums: &mut [[[f32; LANES]; P]; T],
) {
    let mut acc = [[s.splat(0.0); P]; T];
    if Fm::BLOCK == 32 {
        for t in 0..T {
            for p in 0..P {
                acc[t][p] = float(s, &sums[t][p]);
            }
        }
        for sub in 0..subs {
            let dot = sub_dot::<S, P, T>(s, tiles, x, sub, 0..8, sub);
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
        for i in 0..ACT_BLOCK / Fm::SUB {
            let sub = i * Fm::SUB / 32;
            let words = if Fm::SUB == 32 { 0..8 } else { i % 2 * 4..i % 2 * 4 + 4 };
            let dot = sub_dot::<S, P, T>(s, tiles, x, sub, words, i);
            for p in 0..P {
                let scale = float(s, &tiles[p].scale[i]);
                for t in 0..T {
                    acc[t][p] = s.fma(s.to_f(dot[t][p]), scale, acc[t][p]);
                }
            }
        }
        for p in 0..P {
            let d = float(s, &tiles[p].d);
            for t in 0..T {
                let scale = s.mul(d, s.splat(x[t].scale[0]));
                acc[t][p] = s.fma(acc[t][p], scale, float(s, &sums[t][p]));
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
            store_float(s, &mut sums[t][p], acc[t][p]);
        }
    }
}

/// Integer dot products of one sub-block (or the half of it that `words` says).
#[inline(always)]
fn sub_dot<S: Simd, const P: usize, const T: usize>(
    s: S,
    tiles: &[Tile; P],
    x: &[ActBlock; T],
    sub: usize,
    words: std::ops::Range<usize>,
    start: usize,
) -> [[S::I; P]; T] {
    let mut dot = [[s.splat_i(0); P]; T];
    for p in 0..P {
        let start = int(s, &tiles[p].start[start]);
        for dot in &mut dot {
            dot[p] = start;
        }
    }
    for g in words {
        let mut w = [s.splat_i(0); P];
        for p in 0..P {
            // SAFETY: 64 bytes.
            w[p] = unsafe { s.load_i(tiles[p].codes[sub][g].as_ptr()) };
        }
        for t in 0..T {
            let word = s.splat_i(word(&x[t], 8 * sub + g));
            for p in 0..P {
                dot[t][p] = s.dot_biased_activation(dot[t][p], w[p], word);
            }
        }
    }
    dot
}
