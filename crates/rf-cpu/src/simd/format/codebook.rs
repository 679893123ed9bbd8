//! The IQ formats below four bits as codes of their distinct values, and the ternary formats. See
//! `stored.rs` for the blocks.
//!
//! Codes are moved up to be unsigned, so that ISAs without dot products of signed bytes need no
//! extra instructions.

use super::k_quants::two_bits;
use super::{BlockPlanes, Format, NIBBLES, ONES, Plane, plane};
use crate::simd::Simd;

/// The values of IQ2 blocks, by code.
pub(crate) const IQ2_VALUES: [i8; 6] = [-43, -25, -8, 8, 25, 43];

/// The values of IQ1 blocks, by code.
pub(crate) const IQ1_VALUES: [i8; 6] = [-9, -7, -1, 1, 7, 9];

/// The values of `IQ3_XXS` blocks, by code.
pub(crate) const IQ3_XXS_VALUES: [i8; 16] =
    [-62, -52, -44, -36, -28, -20, -12, -4, 4, 12, 20, 28, 36, 44, 52, 62];

/// The values of `IQ3_S` blocks, by code.
pub(crate) const IQ3_S_VALUES: [i8; 16] =
    [-15, -13, -11, -9, -7, -5, -3, -1, 1, 3, 5, 7, 9, 11, 13, 15];

/// A table of `value / divisor + offset`.
const fn lookup_table<const N: usize>(values: &[i8; N], divisor: i8, offset: i8) -> [i8; 16] {
    let mut table = [0; 16];
    let mut i = 0;
    while i < N {
        table[i] = values[i] / divisor + offset;
        i += 1;
    }
    table
}

/// The codes of three bits.
///
/// # Safety
/// Plane 0 has 16 words, plane 1 has 8.
#[inline(always)]
unsafe fn three_bits<S: Simd>(s: S, block: BlockPlanes, j: usize) -> [S::I; 8] {
    // SAFETY: by contract.
    let mut codes = unsafe { two_bits(s, block, j) };
    for (g, code) in codes.iter_mut().enumerate() {
        // SAFETY: by contract; bit j of each byte belongs to run j.
        let high = s.and(s.shr(unsafe { block.words(s, 1, g) }, j as u32), s.splat_i(ONES));
        *code = s.or(*code, s.shl(high, 2));
    }
    codes
}

/// Scale `i` of a plane of nibbles: `2 n + 1`.
///
/// # Safety
/// The plane has a nibble per scale, and `i` is one of them.
#[inline(always)]
unsafe fn odd_scale<S: Simd>(s: S, block: BlockPlanes, plane: usize, i: usize) -> S::I {
    // SAFETY: by contract.
    let word = unsafe { block.words(s, plane, i / 8) };
    let shift = 4 * (i % 8) as u32;
    let twice = if shift == 0 { s.shl(word, 1) } else { s.shr(word, shift - 1) };
    s.or(s.and(twice, s.splat_i(0x1e)), s.splat_i(1))
}

macro_rules! odd_scales {
    ($plane:literal, $d_plane:literal, $unit:literal) => {
        #[inline(always)]
        unsafe fn sub_scale<S: Simd>(s: S, block: BlockPlanes, i: usize) -> S::I {
            // SAFETY: the plane has a nibble per sub-block.
            unsafe { odd_scale(s, block, $plane, i) }
        }

        #[inline(always)]
        unsafe fn scale<S: Simd>(s: S, block: BlockPlanes) -> S::F {
            // SAFETY: the plane holds an f16 per row and block.
            s.mul(unsafe { block.f16(s, $d_plane) }, s.splat($unit))
        }
    };
}

/// Planes: low two bits, upper bit, scales, d.
const THREE_BITS: &[Plane] =
    &[plane(0, 64, 4), plane(64, 32, 4), plane(96, 8, 4), plane(104, 2, 2)];

/// Planes: nibbles, scales, d.
const FOUR_BITS: &[Plane] = &[plane(0, 128, 4), plane(128, 4, 4), plane(132, 2, 2)];

/// The formats with values ±8, ±25 and ±43. See [`rf_quant::CodebookBlock`].
pub(crate) struct Iq2;
impl Format for Iq2 {
    const PLANES: &'static [Plane] = THREE_BITS;
    const BLOCK: usize = 256;
    const SUB: usize = 16;
    const BITS: u32 = 7;
    const OFFSET: i32 = 43;
    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, block: BlockPlanes, j: usize) -> [S::I; 8] {
        const TABLE: [i8; 16] = lookup_table(&IQ2_VALUES, 1, 43);
        // SAFETY: the planes are these.
        let codes = unsafe { three_bits(s, block, j) };
        array!(codes[0], |g| s.lookup(&TABLE, codes[g]))
    }
    odd_scales!(2, 3, 0.125);
}
pub(crate) type Iq2S = Iq2;
pub(crate) type Iq2Xs = Iq2;
pub(crate) type Iq2Xxs = Iq2;

/// The formats with values ±1, ±7 and ±9. See [`rf_quant::CodebookBlock`].
pub(crate) struct Iq1;
impl Format for Iq1 {
    const PLANES: &'static [Plane] = THREE_BITS;
    const BLOCK: usize = 256;
    const SUB: usize = 16;
    const BITS: u32 = 5;
    const OFFSET: i32 = 9;
    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, block: BlockPlanes, j: usize) -> [S::I; 8] {
        const TABLE: [i8; 16] = lookup_table(&IQ1_VALUES, 1, 9);
        // SAFETY: the planes are these.
        let codes = unsafe { three_bits(s, block, j) };
        array!(codes[0], |g| s.lookup(&TABLE, codes[g]))
    }
    odd_scales!(2, 3, 0.125);
}
pub(crate) type Iq1M = Iq1;
pub(crate) type Iq1S = Iq1;

/// See [`rf_quant::BlockIq3Xxs`]. Codes are halves of the values.
pub(crate) struct Iq3Xxs;
impl Format for Iq3Xxs {
    const PLANES: &'static [Plane] = FOUR_BITS;
    const BLOCK: usize = 256;
    const SUB: usize = 32;
    const BITS: u32 = 6;
    const OFFSET: i32 = 31;
    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, block: BlockPlanes, j: usize) -> [S::I; 8] {
        const TABLE: [i8; 16] = lookup_table(&IQ3_XXS_VALUES, 2, 31);
        let (mask, shift) = (s.splat_i(NIBBLES), 4 * (j % 2) as u32);
        array!(s.splat_i(0), |g| {
            // SAFETY: plane 0 has 32 words: 8 per pair of sub-blocks.
            let words = unsafe { block.words(s, 0, j / 2 * 8 + g) };
            s.lookup(&TABLE, s.and(s.shr(words, shift), mask))
        })
    }
    odd_scales!(1, 2, 0.5);
}

/// See [`rf_quant::BlockIq3S`]. The values are `2 code − 15`.
pub(crate) struct Iq3S;
impl Format for Iq3S {
    const PLANES: &'static [Plane] = FOUR_BITS;
    const BLOCK: usize = 256;
    const SUB: usize = 32;
    const BITS: u32 = 5;
    const OFFSET: i32 = 15;
    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, block: BlockPlanes, j: usize) -> [S::I; 8] {
        let mask = s.splat_i(2 * NIBBLES);
        array!(s.splat_i(0), |g| {
            // SAFETY: plane 0 has 32 words: 8 per pair of sub-blocks.
            let words = unsafe { block.words(s, 0, j / 2 * 8 + g) };
            s.and(if j.is_multiple_of(2) { s.shl(words, 1) } else { s.shr(words, 3) }, mask)
        })
    }
    odd_scales!(1, 2, 1.0);
}

/// See [`rf_quant::BlockTq2_0`].
pub(crate) struct Tq2_0;
impl Format for Tq2_0 {
    const PLANES: &'static [Plane] = &[plane(0, 64, 4), plane(64, 2, 2)];
    const BLOCK: usize = 256;
    const SUB: usize = 16;
    const BITS: u32 = 2;
    const OFFSET: i32 = 1;
    const FOLD: i32 = 1; // all scales are 1
    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, block: BlockPlanes, j: usize) -> [S::I; 8] {
        // SAFETY: plane 0 has 16 words.
        unsafe { two_bits(s, block, j) }
    }
    scale_plane!(1);
}
pub(crate) type Tq1_0 = Tq2_0;
