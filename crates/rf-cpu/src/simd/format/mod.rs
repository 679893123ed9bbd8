//! Block formats as vectors: how the planes of a panel become codes, scales and minima.
//!
//! Every integer format is the same sum with other constants:
//!
//! ```text
//! y = Σ_blocks [ d · Σ_j s_j · (Σ q·x − OFFSET · Σ x) − m · … ]
//! ```
//!
//! A [`Format`] says what `q`, `s`, `d` and `m` are; the loops are in `matvec` and `gemm`.

use super::Simd;
use crate::panel::{Plane, planes};
use rf_graph::DType;

/// Most planes that a format has.
const MAX_PLANES: usize = 5;

/// The planes of one panel.
#[derive(Clone, Copy)]
pub(super) struct Planes([*const u8; MAX_PLANES]);

/// The planes at one block. Each pointer is the first byte of the block's part of a plane.
#[derive(Clone, Copy)]
pub(super) struct Block([*const u8; MAX_PLANES]);

impl Planes {
    /// The planes of a panel of `blocks` blocks a row.
    #[inline(always)]
    pub(super) fn new(table: &'static [Plane], panel: *const u8, blocks: usize) -> Self {
        let mut bases = [panel; MAX_PLANES];
        let mut offset = 0;
        for (base, plane) in bases.iter_mut().zip(table) {
            *base = panel.wrapping_add(offset);
            offset += blocks * plane.bytes * super::LANES;
        }
        Self(bases)
    }

    /// The planes at block `b`.
    #[inline(always)]
    pub(super) fn block(self, table: &'static [Plane], b: usize) -> Block {
        let mut at = self.0;
        for (at, plane) in at.iter_mut().zip(table) {
            *at = at.wrapping_add(b * plane.bytes * super::LANES);
        }
        Block(at)
    }
}

impl Block {
    /// Word `i` of a plane, of all rows.
    ///
    /// # Safety
    /// The plane has that word.
    #[inline(always)]
    unsafe fn words<S: Simd>(self, s: S, plane: usize, i: usize) -> S::I {
        // SAFETY: by contract.
        unsafe { s.load_i(self.0[plane].add(i * 64)) }
    }

    /// A plane of one f16 per row and block.
    ///
    /// # Safety
    /// The plane is of that kind.
    #[inline(always)]
    unsafe fn f16<S: Simd>(self, s: S, plane: usize) -> S::F {
        // SAFETY: by contract.
        unsafe { s.load_f16(self.0[plane]) }
    }
}

/// An integer format. All functions take a block of a panel of this very format.
///
/// `codes(j)` are those of elements `32j..32j + 32` in order: vector `g` holds elements `4g..4g + 4` of
/// each row.
pub(crate) trait Format {
    /// Where the planes come from.
    const DTYPE: DType;
    /// Elements per block.
    const BLOCK: usize;
    /// Elements per scale: 32 or 16.
    const SUB: usize;
    /// Bits of a code: at most 7, unsigned, or the 8 of a signed byte.
    const BITS: u32;
    /// What each code has added; 0 for signed codes.
    const OFFSET: i32 = 0;
    /// Whether codes are signed bytes.
    const SIGNED: bool = Self::BITS == 8;
    /// Vectors of codes whose products with bytes sum up in i16 ([`Simd::dot_pairs`]): each adds two products to a sum.
    const PAIRED_CODES: usize = i16::MAX as usize / (2 * 127 * ((1 << Self::BITS) - 1));
    /// Whether a minimum is added.
    const MIN: bool = false;
    /// Whether values are `16 · high + low` of two sets of codes.
    const SPLIT: bool = false;
    /// ±1 where `±code · sub_scale` fits a signed byte: the blocked product multiplies that, and a super-block is
    /// one integer sum. It is below 2²⁴, so the float sums of the other kernels are the same number. 0 elsewhere.
    const FOLD: i32 = 0;
    /// Planes of [`Self::DTYPE`].
    const PLANES: &'static [Plane] = planes(Self::DTYPE);

    /// # Safety
    /// See the trait; `j < BLOCK / 32`.
    unsafe fn codes<S: Simd>(s: S, block: Block, j: usize) -> [S::I; 8];
    /// With [`Self::SPLIT`]: the high parts of [`Self::codes`].
    ///
    /// # Safety
    /// See the trait; `j < BLOCK / 32`.
    #[inline(always)]
    unsafe fn high_codes<S: Simd>(s: S, block: Block, j: usize) -> [S::I; 8] {
        // SAFETY: the same contract.
        unsafe { Self::codes(s, block, j) }
    }
    /// # Safety
    /// See the trait.
    unsafe fn scale<S: Simd>(s: S, block: Block) -> S::F;
    /// Integer scale of sub-block `i`; formats of one scale per block have none.
    ///
    /// # Safety
    /// See the trait; `i < BLOCK / SUB`.
    #[inline(always)]
    unsafe fn sub_scale<S: Simd>(s: S, _block: Block, _i: usize) -> S::I {
        s.splat_i(1)
    }
    /// With [`Self::MIN`]: what is added to each value of the block (`BLOCK == 32`), or the scale of the
    /// integer minima that are subtracted.
    ///
    /// # Safety
    /// See the trait.
    #[inline(always)]
    unsafe fn min<S: Simd>(s: S, _block: Block) -> S::F {
        s.splat(0.0)
    }
    /// Integer minima of sub-blocks `2p` and `2p + 1` as two i16.
    ///
    /// # Safety
    /// See the trait; `2p + 1 < BLOCK / SUB`.
    #[inline(always)]
    unsafe fn sub_mins<S: Simd>(s: S, _block: Block, _p: usize) -> S::I {
        s.splat_i(0)
    }
}

const NIBBLES: i32 = 0x0f0f_0f0f;
const PAIRS: i32 = 0x0303_0303;
const ONES: i32 = 0x0101_0101;

/// Low nibbles are elements 0..16, high nibbles 16..32.
///
/// # Safety
/// Plane 0 has 4 words.
#[inline(always)]
unsafe fn nibbles_of_32<S: Simd>(s: S, block: Block) -> [S::I; 8] {
    let mask = s.splat_i(NIBBLES);
    let mut codes = [mask; 8];
    for w in 0..4 {
        // SAFETY: by contract.
        let words = unsafe { block.words(s, 0, w) };
        codes[w] = s.and(words, mask);
        codes[w + 4] = s.and(s.shr(words, 4), mask);
    }
    codes
}

/// Nibbles plus the fifth bits of plane 1, in the order that packing gave them.
///
/// # Safety
/// Plane 0 has 4 words, plane 1 one.
#[inline(always)]
unsafe fn five_bits_of_32<S: Simd>(s: S, block: Block) -> [S::I; 8] {
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

macro_rules! scale_plane {
    ($plane:literal) => {
        #[inline(always)]
        unsafe fn scale<S: Simd>(s: S, block: Block) -> S::F {
            // SAFETY: the plane holds an f16 per row and block.
            unsafe { block.f16(s, $plane) }
        }
    };
}

macro_rules! min_plane {
    ($plane:literal) => {
        const MIN: bool = true;

        #[inline(always)]
        unsafe fn min<S: Simd>(s: S, block: Block) -> S::F {
            // SAFETY: the plane holds an f16 per row and block.
            unsafe { block.f16(s, $plane) }
        }
    };
}

macro_rules! codes_by {
    ($f:ident) => {
        #[inline(always)]
        unsafe fn codes<S: Simd>(s: S, block: Block, _j: usize) -> [S::I; 8] {
            // SAFETY: this format has the planes that it reads.
            unsafe { $f(s, block) }
        }
    };
}

// After the macros, which it uses.
mod k_quants;

pub(crate) use k_quants::{Q2K, Q3K, Q4K, Q5K, Q6K};

/// See [`rf_quant::BlockQ4_0`].
pub(crate) struct Q4_0;
impl Format for Q4_0 {
    const DTYPE: DType = DType::Q4_0;
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
    const DTYPE: DType = DType::Q4_1;
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
    const DTYPE: DType = DType::Q5_0;
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
    const DTYPE: DType = DType::Q5_1;
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
    const DTYPE: DType = DType::Q8_0;
    const BLOCK: usize = 32;
    const SUB: usize = 32;
    const BITS: u32 = 8;
    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, block: Block, _j: usize) -> [S::I; 8] {
        // SAFETY: plane 0 has 8 words.
        array!(s.splat_i(0), |g| unsafe { block.words(s, 0, g) })
    }
    scale_plane!(1);
}

/// `factor · 2^(e − 127)` of E8M0 scales, by exponent bits; `e = 0` gives the subnormal `2^−127` its due,
/// and 255 is NaN.
///
/// # Safety
/// `plane` has a byte per row and block.
#[inline(always)]
unsafe fn e8m0<S: Simd>(s: S, block: Block, plane: usize, factor: f32) -> S::F {
    // SAFETY: by contract.
    let e = unsafe { s.load_u8(block.0[plane]) };
    // 2^(e−127) as a float: exponent field e, or the subnormal 2^−127 = 0x0040_0000 for e = 0.
    let normal = s.shl(e, 23);
    // 1 where e = 0: (e − 1) is negative only then.
    let zero = s.shr(s.sub_i(e, s.splat_i(1)), 31);
    let value = s.bits_to_f(s.or(normal, s.shl(zero, 22)));
    let scaled = s.mul(value, s.splat(factor));
    // The bits of 255 are infinity's, and infinity less itself is NaN; of others the difference is 0.
    s.add(scaled, s.sub(scaled, scaled))
}

/// `2^(e − 128)`, half of an E8M0 scale as ggml has it: 0 and 1 are subnormal, and 255 is a number.
///
/// # Safety
/// `plane` has a byte per row and block.
#[inline(always)]
unsafe fn e8m0_halved<S: Simd>(s: S, block: Block, plane: usize) -> S::F {
    // SAFETY: by contract.
    let e = unsafe { s.load_u8(block.0[plane]) };
    // As a product of two powers, each of which is a normal float.
    let low = s.shr(e, 1);
    let power = |e| s.bits_to_f(s.shl(s.add_i(e, s.splat_i(127 - 64)), 23));
    s.mul(power(low), power(s.sub_i(e, low)))
}

/// See [`rf_quant::BlockMxfp4`]. Codes are twice the E2M1 values.
pub(crate) struct Mxfp4;
impl Format for Mxfp4 {
    const DTYPE: DType = DType::Mxfp4;
    const BLOCK: usize = 32;
    const SUB: usize = 32;
    const BITS: u32 = 8;
    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, block: Block, _j: usize) -> [S::I; 8] {
        const TWICE_E2M1: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];
        // SAFETY: plane 0 has 4 words.
        let codes = unsafe { nibbles_of_32(s, block) };
        array!(codes[0], |g| s.lookup(&TWICE_E2M1, codes[g]))
    }
    #[inline(always)]
    unsafe fn scale<S: Simd>(s: S, block: Block) -> S::F {
        // SAFETY: plane 1 has a byte per row and block.
        unsafe { e8m0_halved(s, block, 1) }
    }
}

/// The 6-bit codes of MXFP6, in the order that packing gave them.
///
/// # Safety
/// Plane 0 has 4 words, plane 1 two.
#[inline(always)]
unsafe fn six_bits_of_32<S: Simd>(s: S, block: Block) -> [S::I; 8] {
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

/// Signed magnitudes: `sign` is bit 5 of each byte of `code`, `magnitude` at most 127.
#[inline(always)]
fn apply_sign<S: Simd>(s: S, code: S::I, magnitude: S::I) -> S::I {
    // 0xff where the sign is set: (bit · 256) − bit, within each byte.
    let bit = s.and(s.shr(code, 5), s.splat_i(ONES));
    let negative = s.sub_bytes(s.splat_i(0), bit);
    // −m = !m + 1: xor by (a | b) − (a & b), which needs no operation of its own.
    let flipped = s.sub_bytes(s.or(magnitude, negative), s.and(magnitude, negative));
    s.sub_bytes(flipped, negative)
}

/// See [`rf_quant::BlockMxfp6E2M3`]. Codes are eight times the values: at most 60.
pub(crate) struct Mxfp6E2M3;
impl Format for Mxfp6E2M3 {
    const DTYPE: DType = DType::Mxfp6E2M3;
    const BLOCK: usize = 32;
    const SUB: usize = 32;
    const BITS: u32 = 8;
    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, block: Block, _j: usize) -> [S::I; 8] {
        /// 8 · value of the magnitudes 0..16 and 16..32.
        const LOW: [i8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
        const HIGH: [i8; 16] = [16, 18, 20, 22, 24, 26, 28, 30, 32, 36, 40, 44, 48, 52, 56, 60];
        // SAFETY: this format has the planes.
        let codes = unsafe { six_bits_of_32(s, block) };
        array!(codes[0], |g| apply_sign(s, codes[g], select_16(s, codes[g], &LOW, &HIGH)))
    }
    #[inline(always)]
    unsafe fn scale<S: Simd>(s: S, block: Block) -> S::F {
        // SAFETY: plane 2 has a byte per row and block.
        unsafe { e8m0(s, block, 2, 0.125) }
    }
}

/// Looks the low four bits up in the table that bit 4 chooses.
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

/// See [`rf_quant::BlockMxfp6E3M2`]. Values reach 448 sixteenths, which no byte holds, so codes come in
/// two parts: `16 · value = 16 · high + low`, |high| ≤ 28, |low| ≤ 15.
pub(crate) struct Mxfp6E3M2;
impl Mxfp6E3M2 {
    /// # Safety
    /// As [`Format::codes`].
    #[inline(always)]
    unsafe fn part<S: Simd>(s: S, block: Block, high: bool) -> [S::I; 8] {
        /// 16 · value of magnitude `m`: subnormal `m`, else `(4 + m % 4) << (m / 4 − 1)`.
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
    const DTYPE: DType = DType::Mxfp6E3M2;
    const BLOCK: usize = 32;
    const SUB: usize = 32;
    const BITS: u32 = 8;
    const SPLIT: bool = true;
    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, block: Block, _j: usize) -> [S::I; 8] {
        // SAFETY: by contract.
        unsafe { Self::part(s, block, false) }
    }
    #[inline(always)]
    unsafe fn high_codes<S: Simd>(s: S, block: Block, _j: usize) -> [S::I; 8] {
        // SAFETY: by contract.
        unsafe { Self::part(s, block, true) }
    }
    #[inline(always)]
    unsafe fn scale<S: Simd>(s: S, block: Block) -> S::F {
        // SAFETY: plane 2 has a byte per row and block.
        unsafe { e8m0(s, block, 2, 0.0625) }
    }
}
