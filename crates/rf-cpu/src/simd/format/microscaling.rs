//! The OCP microscaling formats, blocks of 32 values with one power-of-two scale, and NVFP4.

use super::{BlockPlanes, Format, NIBBLES, ONES, PAIRS, Plane, nibbles_of_32, plane};
use crate::simd::{LANES, Simd};

/// Converts E8M0 scales to `factor · 2^(e − 127)` through the exponent bits. `e = 0` is the
/// subnormal `2^−127`, and 255 is NaN.
///
/// # Safety
/// `plane` has a byte per row and block.
#[inline(always)]
unsafe fn e8m0<S: Simd>(s: S, block: BlockPlanes, plane: usize, factor: f32) -> S::F {
    // SAFETY: by contract.
    let e = unsafe { s.load_u8(block.0[plane]) };
    // 2^(e−127) as a float: exponent field e, or the subnormal 2^−127 = 0x0040_0000 for e = 0.
    let normal = s.shl(e, 23);
    // 1 where e = 0: (e − 1) is negative only then.
    let zero = s.shr(s.sub_i(e, s.splat_i(1)), 31);
    let value = s.bits_to_f(s.or(normal, s.shl(zero, 22)));
    let scaled = s.mul(value, s.splat(factor));
    // 255 has the bits of infinity, and infinity minus itself is NaN. Other differences are 0.
    s.add(scaled, s.sub(scaled, scaled))
}

/// `2^(e − 128)`, half of an E8M0 scale in ggml: 0 and 1 are subnormal, and 255 is a number.
///
/// # Safety
/// `plane` has a byte per row and block.
#[inline(always)]
unsafe fn e8m0_halved<S: Simd>(s: S, block: BlockPlanes, plane: usize) -> S::F {
    // SAFETY: by contract.
    let e = unsafe { s.load_u8(block.0[plane]) };
    // The product of two powers, each of which is a normal float.
    let low = s.shr(e, 1);
    let power = |e| s.bits_to_f(s.shl(s.add_i(e, s.splat_i(127 - 64)), 23));
    s.mul(power(low), power(s.sub_i(e, low)))
}

/// Twice the value of each E2M1 code.
const TWICE_E2M1: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// See [`rf_quant::BlockMxfp4`]. Codes are twice the E2M1 values.
pub(crate) struct Mxfp4;
impl Format for Mxfp4 {
    const PLANES: &'static [Plane] = &[plane(1, 16, 4), plane(0, 1, 1)];
    const BLOCK: usize = 32;
    const SUB: usize = 32;
    const BITS: u32 = 8;
    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, block: BlockPlanes, _j: usize) -> [S::I; 8] {
        // SAFETY: plane 0 has 4 words.
        let codes = unsafe { nibbles_of_32(s, block) };
        array!(codes[0], |g| s.lookup(&TWICE_E2M1, codes[g]))
    }
    #[inline(always)]
    unsafe fn scale<S: Simd>(s: S, block: BlockPlanes) -> S::F {
        // SAFETY: plane 1 has a byte per row and block.
        unsafe { e8m0_halved(s, block, 1) }
    }
}

/// See [`rf_quant::BlockNvfp4`]. Codes are twice the E2M1 values, and halve the scales.
pub(crate) struct Nvfp4;
impl Format for Nvfp4 {
    /// Planes: nibbles, scales without sign and NaN.
    const PLANES: &'static [Plane] = &[plane(4, 32, 4), plane(0, 4, 1)];
    const BLOCK: usize = 64;
    const SUB: usize = 16;
    const BITS: u32 = 8;
    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, block: BlockPlanes, j: usize) -> [S::I; 8] {
        let mask = s.splat_i(NIBBLES);
        array!(mask, |g| {
            // 16 elements are two words: the low nibbles of both, then the high ones.
            // SAFETY: plane 0 has 4 words per 32 elements.
            let words = unsafe { block.words(s, 0, 4 * j + g / 4 * 2 + g % 2) };
            let codes = s.and(if g / 2 % 2 == 0 { words } else { s.shr(words, 4) }, mask);
            s.lookup(&TWICE_E2M1, codes)
        })
    }
    #[inline(always)]
    unsafe fn scale<S: Simd>(s: S, _block: BlockPlanes) -> S::F {
        s.splat(1.0)
    }
    #[inline(always)]
    unsafe fn float_sub_scale<S: Simd>(s: S, block: BlockPlanes, i: usize) -> S::F {
        // SAFETY: plane 1 has four scales, each a byte per row.
        s.mul(unsafe { s.load_fp8(block.0[1].add(i * LANES)) }, s.splat(0.5))
    }
}

/// Unpacks the 6-bit codes of MXFP6, in the order of the packed panel.
///
/// # Safety
/// Plane 0 has 4 words, plane 1 two.
#[inline(always)]
unsafe fn six_bits_of_32<S: Simd>(s: S, block: BlockPlanes) -> [S::I; 8] {
    // SAFETY: by contract.
    let mut codes = unsafe { nibbles_of_32(s, block) };
    for (g, code) in codes.iter_mut().enumerate() {
        // SAFETY: by contract.
        let high = unsafe { block.words(s, 1, g % 2) };
        let bits = s.and(s.shr(high, (g / 2 * 2) as u32), s.splat_i(PAIRS));
        *code = s.or(*code, s.shl(bits, 4));
    }
    codes
}

/// Applies the sign in bit 5 of each byte of `code` to `magnitude`, which is at most 127.
#[inline(always)]
fn apply_sign<S: Simd>(s: S, code: S::I, magnitude: S::I) -> S::I {
    // 0xff where the sign is set: (bit · 256) − bit, within each byte.
    let bit = s.and(s.shr(code, 5), s.splat_i(ONES));
    let negative = s.sub_bytes(s.splat_i(0), bit);
    // −m = !m + 1. The xor is (a | b) − (a & b), so it needs no instruction of its own.
    let flipped = s.sub_bytes(s.or(magnitude, negative), s.and(magnitude, negative));
    s.sub_bytes(flipped, negative)
}

/// See [`rf_quant::BlockMxfp6E2M3`]. Codes are eight times the values: at most 60.
pub(crate) struct Mxfp6E2M3;
impl Format for Mxfp6E2M3 {
    /// Planes: low nibbles, upper two bits, scale; see `rearrange` in `panel.rs`.
    const PLANES: &'static [Plane] = &[plane(1, 16, 4), plane(17, 8, 4), plane(0, 1, 1)];
    const BLOCK: usize = 32;
    const SUB: usize = 32;
    const BITS: u32 = 8;
    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, block: BlockPlanes, _j: usize) -> [S::I; 8] {
        /// 8 · value of magnitudes 0..16; `HIGH` has magnitudes 16..32.
        const LOW: [i8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
        const HIGH: [i8; 16] = [16, 18, 20, 22, 24, 26, 28, 30, 32, 36, 40, 44, 48, 52, 56, 60];
        // SAFETY: this format has the planes.
        let codes = unsafe { six_bits_of_32(s, block) };
        array!(codes[0], |g| apply_sign(s, codes[g], select_16(s, codes[g], &LOW, &HIGH)))
    }
    #[inline(always)]
    unsafe fn scale<S: Simd>(s: S, block: BlockPlanes) -> S::F {
        // SAFETY: plane 2 has a byte per row and block.
        unsafe { e8m0(s, block, 2, 0.125) }
    }
}

/// Looks up the low four bits in the table that bit 4 selects.
#[inline(always)]
fn select_16<S: Simd>(s: S, code: S::I, low: &[i8; 16], high: &[i8; 16]) -> S::I {
    let index = s.and(code, s.splat_i(NIBBLES));
    let bit = s.and(s.shr(code, 4), s.splat_i(ONES));
    let take_high = s.sub_bytes(s.splat_i(0), bit);
    let low = s.lookup(low, index);
    let high = s.lookup(high, index);
    let difference = s.sub_bytes(high, low);
    s.sub_bytes(low, s.sub_bytes(s.splat_i(0), s.and(difference, take_high)))
}

/// See [`rf_quant::BlockMxfp6E3M2`]. Values reach 448 sixteenths and exceed a byte, so codes have
/// two parts: `16 · value = 16 · high + low`, |high| ≤ 28, |low| ≤ 15.
pub(crate) struct Mxfp6E3M2;
impl Mxfp6E3M2 {
    /// # Safety
    /// The contract of [`Format::codes`].
    #[inline(always)]
    unsafe fn part<S: Simd>(s: S, block: BlockPlanes, high: bool) -> [S::I; 8] {
        /// 16 · value of magnitude `m`: `m` if subnormal, otherwise `(4 + m % 4) << (m / 4 − 1)`.
        const fn sixteenths(m: usize) -> usize {
            if m < 4 { m } else { (4 + m % 4) << (m / 4 - 1) }
        }
        const fn table(first: usize, high: bool) -> [i8; 16] {
            let mut table = [0; 16];
            let mut i = 0;
            while i < 16 {
                let v = sixteenths(first + i);
                table[i] = if high { v / 16 } else { v % 16 } as i8;
                i += 1;
            }
            table
        }
        const HIGH: [[i8; 16]; 2] = [table(0, true), table(16, true)];
        const LOW: [[i8; 16]; 2] = [table(0, false), table(16, false)];
        let [below_16, above_16] = if high { &HIGH } else { &LOW };
        // SAFETY: by contract.
        let codes = unsafe { six_bits_of_32(s, block) };
        array!(codes[0], |g| apply_sign(s, codes[g], select_16(s, codes[g], below_16, above_16)))
    }
}
impl Format for Mxfp6E3M2 {
    /// Planes: low nibbles, upper two bits, scale; see `rearrange` in `panel.rs`.
    const PLANES: &'static [Plane] = &[plane(1, 16, 4), plane(17, 8, 4), plane(0, 1, 1)];
    const BLOCK: usize = 32;
    const SUB: usize = 32;
    const BITS: u32 = 8;
    const SPLIT: bool = true;
    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, block: BlockPlanes, _j: usize) -> [S::I; 8] {
        // SAFETY: by contract.
        unsafe { Self::part(s, block, false) }
    }
    #[inline(always)]
    unsafe fn high_codes<S: Simd>(s: S, block: BlockPlanes, _j: usize) -> [S::I; 8] {
        // SAFETY: by contract.
        unsafe { Self::part(s, block, true) }
    }
    #[inline(always)]
    unsafe fn scale<S: Simd>(s: S, block: BlockPlanes) -> S::F {
        // SAFETY: plane 2 has a byte per row and block.
        unsafe { e8m0(s, block, 2, 0.0625) }
    }
}
