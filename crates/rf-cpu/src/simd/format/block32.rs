//! The formats with blocks of 32 to 128 values and one f16 scale.

use super::{BlockPlanes, Format, ONES, PAIRS, Plane, nibbles_of_32, plane};
use crate::simd::Simd;

/// Unpacks the nibbles and the fifth bits of plane 1, in the order of the packed panel.
///
/// # Safety
/// Plane 0 has 4 words, plane 1 one.
#[inline(always)]
unsafe fn five_bits_of_32<S: Simd>(s: S, block: BlockPlanes) -> [S::I; 8] {
    // SAFETY: by contract.
    let mut codes = unsafe { nibbles_of_32(s, block) };
    // SAFETY: by contract.
    let high = unsafe { block.words(s, 1, 0) };
    for (g, code) in codes.iter_mut().enumerate() {
        let bit = s.and(s.shr(high, g as u32), s.splat_i(ONES));
        *code = s.or(*code, s.shl(bit, 4));
    }
    codes
}

/// See [`rf_quant::BlockQ4_0`].
pub(crate) struct Q4_0;
impl Format for Q4_0 {
    const PLANES: &'static [Plane] = &[plane(2, 16, 4), plane(0, 2, 2)];
    const BLOCK: usize = 32;
    const SUB: usize = 32;
    const BITS: u32 = 4;
    const OFFSET: i32 = 8;
    codes_by!(nibbles_of_32);
    scale_plane!(1);
}

/// See [`rf_quant::BlockQ4_1`].
pub(crate) struct Q4_1;
impl Format for Q4_1 {
    const PLANES: &'static [Plane] = &[plane(4, 16, 4), plane(0, 2, 2), plane(2, 2, 2)];
    const BLOCK: usize = 32;
    const SUB: usize = 32;
    const BITS: u32 = 4;
    codes_by!(nibbles_of_32);
    scale_plane!(1);
    min_plane!(2);
}

/// See [`rf_quant::BlockQ5_0`].
pub(crate) struct Q5_0;
impl Format for Q5_0 {
    const PLANES: &'static [Plane] = &[plane(6, 16, 4), plane(2, 4, 4), plane(0, 2, 2)];
    const BLOCK: usize = 32;
    const SUB: usize = 32;
    const BITS: u32 = 5;
    const OFFSET: i32 = 16;
    codes_by!(five_bits_of_32);
    scale_plane!(2);
}

/// See [`rf_quant::BlockQ5_1`].
pub(crate) struct Q5_1;
impl Format for Q5_1 {
    const PLANES: &'static [Plane] =
        &[plane(8, 16, 4), plane(4, 4, 4), plane(0, 2, 2), plane(2, 2, 2)];
    const BLOCK: usize = 32;
    const SUB: usize = 32;
    const BITS: u32 = 5;
    codes_by!(five_bits_of_32);
    scale_plane!(2);
    min_plane!(3);
}

/// See [`rf_quant::BlockQ8_0`].
pub(crate) struct Q8_0;
impl Format for Q8_0 {
    const PLANES: &'static [Plane] = &[plane(2, 32, 4), plane(0, 2, 2)];
    const BLOCK: usize = 32;
    const SUB: usize = 32;
    const BITS: u32 = 8;
    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, block: BlockPlanes, _j: usize) -> [S::I; 8] {
        // SAFETY: plane 0 has 8 words.
        array!(s.splat_i(0), |g| unsafe { block.words(s, 0, g) })
    }
    scale_plane!(1);
}

/// See [`rf_quant::BlockIq4Nl`].
pub(crate) struct Iq4Nl;
impl Format for Iq4Nl {
    const PLANES: &'static [Plane] = &[plane(2, 16, 4), plane(0, 2, 2)];
    const BLOCK: usize = 32;
    const SUB: usize = 32;
    const BITS: u32 = 8;
    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, block: BlockPlanes, _j: usize) -> [S::I; 8] {
        // SAFETY: plane 0 has 4 words.
        let codes = unsafe { nibbles_of_32(s, block) };
        array!(codes[0], |g| s.lookup(&rf_quant::BlockIq4Nl::VALUES, codes[g]))
    }
    scale_plane!(1);
}

/// See [`rf_quant::BlockQ1_0`]. Codes are 0 and 2.
pub(crate) struct Q1_0;
impl Format for Q1_0 {
    /// Planes: bits in the order of the fifth bits of [`Q5_0`], d.
    const PLANES: &'static [Plane] = &[plane(2, 16, 4), plane(0, 2, 2)];
    const BLOCK: usize = 128;
    const SUB: usize = 32;
    const BITS: u32 = 2;
    const OFFSET: i32 = 1;
    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, block: BlockPlanes, j: usize) -> [S::I; 8] {
        // SAFETY: plane 0 has a word per 32 elements.
        let bits = unsafe { block.words(s, 0, j) };
        let mask = s.splat_i(2 * ONES);
        array!(mask, |g| {
            s.and(if g == 0 { s.shl(bits, 1) } else { s.shr(bits, g as u32 - 1) }, mask)
        })
    }
    scale_plane!(1);
}

/// See [`rf_quant::BlockQ2_0`].
pub(crate) struct Q2_0;
impl Format for Q2_0 {
    /// Planes: codes, d; see `rearrange` in `stored.rs`.
    const PLANES: &'static [Plane] = &[plane(2, 16, 4), plane(0, 2, 2)];
    const BLOCK: usize = 64;
    const SUB: usize = 32;
    const BITS: u32 = 2;
    const OFFSET: i32 = 1;
    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, block: BlockPlanes, j: usize) -> [S::I; 8] {
        let mask = s.splat_i(PAIRS);
        array!(mask, |g| {
            // SAFETY: plane 0 has two words per 32 elements.
            let words = unsafe { block.words(s, 0, 2 * j + g / 4) };
            s.and(s.shr(words, 2 * (g % 4) as u32), mask)
        })
    }
    scale_plane!(1);
}
