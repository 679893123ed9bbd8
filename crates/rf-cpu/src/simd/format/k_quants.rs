//! The K-quants: super-blocks of 256 with integer scales per 32 or 16.

use super::{BlockPlanes, Format, NIBBLES, ONES, PAIRS, Plane, nibbles_from, plane};
use crate::simd::Simd;

/// The six-bit scale `j` of Q4_K and Q5_K, or, if `min`, the minimum `j`.
///
/// # Safety
/// `plane` has 3 words.
#[inline(always)]
unsafe fn six_bits<S: Simd>(s: S, block: BlockPlanes, plane: usize, j: usize, min: bool) -> S::I {
    let shift = 8 * (j % 4) as u32;
    let low = usize::from(min);
    // SAFETY: by contract.
    let low = unsafe { block.words(s, plane, low) };
    if j < 4 {
        return s.and(s.shr(low, shift), s.splat_i(63));
    }
    // SAFETY: by contract.
    let high = unsafe { block.words(s, plane, 2) };
    let nibble = s.and(s.shr(high, shift + 4 * u32::from(min)), s.splat_i(15));
    let top = s.and(s.shr(low, shift + 2), s.splat_i(0x30));
    // `shift + 2` may bring bits 6..8 of the byte to 4..6; those below are masked off.
    s.or(nibble, top)
}

/// Implements the six-bit scales and minima in the given plane.
macro_rules! six_bit_scales {
    ($plane:literal) => {
        #[inline(always)]
        unsafe fn sub_scale<S: Simd>(s: S, block: BlockPlanes, i: usize) -> S::I {
            // SAFETY: the plane has 3 words.
            unsafe { six_bits(s, block, $plane, i, false) }
        }

        #[inline(always)]
        unsafe fn sub_mins<S: Simd>(s: S, block: BlockPlanes, p: usize) -> S::I {
            // SAFETY: the plane has 3 words.
            let even = unsafe { six_bits(s, block, $plane, 2 * p, true) };
            // SAFETY: as above.
            let odd = unsafe { six_bits(s, block, $plane, 2 * p + 1, true) };
            s.or(even, s.shl(odd, 16))
        }
    };
}

/// See [`rf_quant::BlockQ4K`].
pub(crate) struct Q4K;
impl Format for Q4K {
    const PLANES: &'static [Plane] =
        &[plane(16, 128, 4), plane(4, 12, 4), plane(0, 2, 2), plane(2, 2, 2)];
    const BLOCK: usize = 256;
    const SUB: usize = 32;
    const BITS: u32 = 4;
    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, block: BlockPlanes, j: usize) -> [S::I; 8] {
        let (mask, shift) = (s.splat_i(NIBBLES), 4 * (j % 2) as u32);
        array!(s.splat_i(0), |g| {
            // SAFETY: plane 0 has 32 words: 8 per pair of sub-blocks.
            let words = unsafe { block.words(s, 0, j / 2 * 8 + g) };
            s.and(s.shr(words, shift), mask)
        })
    }
    six_bit_scales!(1);
    scale_plane!(2);
    min_plane!(3);
}

/// See [`rf_quant::BlockIq4Xs`].
pub(crate) struct Iq4Xs;
impl Format for Iq4Xs {
    const PLANES: &'static [Plane] =
        &[plane(8, 128, 4), plane(4, 4, 4), plane(2, 1, 1), plane(3, 1, 1), plane(0, 2, 2)];
    const BLOCK: usize = 256;
    const SUB: usize = 32;
    const BITS: u32 = 8;
    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, block: BlockPlanes, j: usize) -> [S::I; 8] {
        // SAFETY: plane 0 has 32 words: 4 per sub-block.
        let codes = unsafe { nibbles_from(s, block, 4 * j) };
        array!(codes[0], |g| s.lookup(&rf_quant::BlockIq4Nl::VALUES, codes[g]))
    }
    #[inline(always)]
    unsafe fn sub_scale<S: Simd>(s: S, block: BlockPlanes, i: usize) -> S::I {
        // SAFETY: plane 1 has a word of eight nibbles.
        let low = unsafe { block.words(s, 1, 0) };
        let low = s.and(s.shr(low, 4 * i as u32), s.splat_i(15));
        // SAFETY: planes 2 and 3 have a byte of the upper bits of four scales.
        let high = unsafe { s.load_u8(block.0[2 + i / 4]) };
        let high = s.and(s.shr(high, 2 * (i % 4) as u32), s.splat_i(3));
        s.sub_i(s.or(low, s.shl(high, 4)), s.splat_i(32))
    }
    scale_plane!(4);
}

/// See [`rf_quant::BlockQ5K`].
pub(crate) struct Q5K;
impl Format for Q5K {
    const PLANES: &'static [Plane] =
        &[plane(48, 128, 4), plane(16, 32, 4), plane(4, 12, 4), plane(0, 2, 2), plane(2, 2, 2)];
    const BLOCK: usize = 256;
    const SUB: usize = 32;
    const BITS: u32 = 5;
    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, block: BlockPlanes, j: usize) -> [S::I; 8] {
        let (mask, shift) = (s.splat_i(NIBBLES), 4 * (j % 2) as u32);
        array!(s.splat_i(0), |g| {
            // SAFETY: plane 0 has 32 words: 8 per pair of sub-blocks.
            let low = s.and(s.shr(unsafe { block.words(s, 0, j / 2 * 8 + g) }, shift), mask);
            // SAFETY: plane 1 has 8 words; bit j of each byte belongs to sub-block j.
            let high = s.and(s.shr(unsafe { block.words(s, 1, g) }, j as u32), s.splat_i(ONES));
            s.or(low, s.shl(high, 4))
        })
    }
    six_bit_scales!(2);
    scale_plane!(3);
    min_plane!(4);
}

/// See [`rf_quant::BlockQ6K`].
pub(crate) struct Q6K;
impl Format for Q6K {
    const PLANES: &'static [Plane] =
        &[plane(0, 128, 4), plane(128, 64, 4), plane(192, 16, 4), plane(208, 2, 2)];
    const BLOCK: usize = 256;
    const SUB: usize = 16;
    const BITS: u32 = 6;
    const OFFSET: i32 = 32;
    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, block: BlockPlanes, j: usize) -> [S::I; 8] {
        // Half `n` of the block has 64 bytes of nibbles and 32 bytes of upper bits. Its run `r` of
        // 32 elements is nibble `r / 2` of bytes 32·(r % 2).. and bits 2r.. of the upper bits.
        let (n, r) = (j / 4, j % 4);
        array!(s.splat_i(0), |g| {
            // SAFETY: plane 0 has 32 words.
            let low = unsafe { block.words(s, 0, 16 * n + 8 * (r % 2) + g) };
            let low = s.and(s.shr(low, 4 * (r / 2) as u32), s.splat_i(NIBBLES));
            // SAFETY: plane 1 has 16 words.
            let high = unsafe { block.words(s, 1, 8 * n + g) };
            let high = s.and(s.shr(high, 2 * r as u32), s.splat_i(PAIRS));
            s.or(low, s.shl(high, 4))
        })
    }
    #[inline(always)]
    unsafe fn sub_scale<S: Simd>(s: S, block: BlockPlanes, i: usize) -> S::I {
        // SAFETY: plane 2 has 4 words of signed bytes.
        let word = unsafe { block.words(s, 2, i / 4) };
        s.sar(s.shl(word, 24 - 8 * (i % 4) as u32), 24)
    }
    scale_plane!(3);
}

/// The two-bit codes of Q2_K and Q3_K. Run `r` of half `n` is bits 2r.. of the 32 bytes of the
/// half.
///
/// # Safety
/// Plane 0 has 16 words.
#[inline(always)]
pub(super) unsafe fn two_bits<S: Simd>(s: S, block: BlockPlanes, j: usize) -> [S::I; 8] {
    let (n, r) = (j / 4, j % 4);
    array!(s.splat_i(0), |g| {
        // SAFETY: by contract.
        let words = unsafe { block.words(s, 0, 8 * n + g) };
        s.and(s.shr(words, 2 * r as u32), s.splat_i(PAIRS))
    })
}

/// See [`rf_quant::BlockQ2K`].
pub(crate) struct Q2K;
impl Format for Q2K {
    const PLANES: &'static [Plane] =
        &[plane(16, 64, 4), plane(0, 16, 4), plane(80, 2, 2), plane(82, 2, 2)];
    const BLOCK: usize = 256;
    const SUB: usize = 16;
    const BITS: u32 = 2;
    const FOLD: i32 = 1; // at most 3 · 15
    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, block: BlockPlanes, j: usize) -> [S::I; 8] {
        // SAFETY: plane 0 has 16 words.
        unsafe { two_bits(s, block, j) }
    }
    #[inline(always)]
    unsafe fn sub_scale<S: Simd>(s: S, block: BlockPlanes, i: usize) -> S::I {
        // SAFETY: plane 1 has 4 words: a byte per sub-block, whose low nibble is the scale.
        let word = unsafe { block.words(s, 1, i / 4) };
        s.and(s.shr(word, 8 * (i % 4) as u32), s.splat_i(15))
    }
    #[inline(always)]
    unsafe fn sub_mins<S: Simd>(s: S, block: BlockPlanes, p: usize) -> S::I {
        // SAFETY: plane 1 has 4 words: a byte per sub-block, whose high nibble is the minimum.
        let word = s.shr(unsafe { block.words(s, 1, p / 2) }, 16 * (p % 2) as u32);
        let even = s.and(s.shr(word, 4), s.splat_i(15));
        let odd = s.and(s.shr(word, 12), s.splat_i(15));
        s.or(even, s.shl(odd, 16))
    }
    scale_plane!(2);
    min_plane!(3);
}

/// See [`rf_quant::BlockQ3K`].
pub(crate) struct Q3K;
impl Format for Q3K {
    const PLANES: &'static [Plane] =
        &[plane(32, 64, 4), plane(0, 32, 4), plane(96, 12, 4), plane(108, 2, 2)];
    const BLOCK: usize = 256;
    const SUB: usize = 16;
    const BITS: u32 = 3;
    const OFFSET: i32 = 4;
    const FOLD: i32 = -1; // −128, from −4 · −32, to 124
    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, block: BlockPlanes, j: usize) -> [S::I; 8] {
        // SAFETY: plane 0 has 16 words.
        let mut codes = unsafe { two_bits(s, block, j) };
        for (g, code) in codes.iter_mut().enumerate() {
            // SAFETY: plane 1 has 8 words; bit j of each byte belongs to run j.
            let high = s.and(s.shr(unsafe { block.words(s, 1, g) }, j as u32), s.splat_i(ONES));
            *code = s.or(*code, s.shl(high, 2));
        }
        codes
    }
    #[inline(always)]
    unsafe fn sub_scale<S: Simd>(s: S, block: BlockPlanes, i: usize) -> S::I {
        // The low four bits of scale i are a nibble of bytes 0..8, the low one for i < 8. The upper
        // two bits are in bytes 8..12.
        let byte = i % 8;
        // SAFETY: plane 2 has 3 words.
        let low = unsafe { block.words(s, 2, byte / 4) };
        let low = s.and(s.shr(low, (8 * (byte % 4) + 4 * (i / 8)) as u32), s.splat_i(15));
        // SAFETY: plane 2 has 3 words.
        let high = unsafe { block.words(s, 2, 2) };
        let high = s.and(s.shr(high, (8 * (i % 4) + 2 * (i / 4)) as u32), s.splat_i(3));
        s.sub_i(s.or(low, s.shl(high, 4)), s.splat_i(32))
    }
    scale_plane!(3);
}
