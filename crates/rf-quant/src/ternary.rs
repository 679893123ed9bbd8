//! The ternary formats: 256 values of -1, 0 and 1 with one scale.

use bytemuck::{Pod, Zeroable};

use crate::DType;
use crate::block::{Block, F16Le, assert_layout};
use crate::extent::magnitude;
use crate::rounding::nearest_half_away;

/// A block of [`DType::Tq1_0`]: `x = d (q - 1)`, `q` 0 to 2, five to a byte.
///
/// ```text
/// byte  0                           48                       52      54
///       | qs: 5 digits per byte     | qh: 4 digits per byte  | d f16 |
///
/// A byte holds the fraction `0.q₀q₁q₂q₃q₄` to the base 3 in units of 1/256, rounded up.
/// qs  byte l < 32:  values l, 32+l, 64+l, 96+l, 128+l
///     byte 32+l:    values 160+l, 176+l, 192+l, 208+l, 224+l
/// qh  byte l:       values 240+l, 244+l, 248+l, 252+l
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockTq1_0 {
    /// Five values per byte.
    pub qs: [u8; 48],
    /// Four values per byte.
    pub qh: [u8; 4],
    /// Scale.
    pub d: F16Le,
}

/// A block of [`DType::Tq2_0`]: `x = d (q - 1)`, `q` 0 to 3.
///
/// ```text
/// byte  0                                                    64      66
///       | qs: two halves of 32 bytes for 128 values each     | d f16 |
///
/// byte l of a half:
///       | bits 0-1 value l | bits 2-3 value 32+l | bits 4-5 value 64+l | bits 6-7 value 96+l |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockTq2_0 {
    /// Four values per byte.
    pub qs: [u8; 64],
    /// Scale.
    pub d: F16Le,
}

assert_layout!(BlockTq1_0, 256);
assert_layout!(BlockTq2_0, 256);

impl BlockTq1_0 {
    /// The codes `q`, 0 to 2.
    pub fn codes(&self) -> [u8; 256] {
        std::array::from_fn(|i| {
            let (byte, digit) = Self::place(i);
            let byte = if byte < 48 { self.qs[byte] } else { self.qh[byte - 48] };
            let rest = byte.wrapping_mul(3u8.pow(digit));
            ((u16::from(rest) * 3) >> 8) as u8
        })
    }

    /// The byte and the digit of a value.
    const fn place(i: usize) -> (usize, u32) {
        if i < 160 {
            (i % 32, (i / 32) as u32)
        } else if i < 240 {
            (32 + (i - 160) % 16, ((i - 160) / 16) as u32)
        } else {
            (48 + (i - 240) % 4, ((i - 240) / 4) as u32)
        }
    }
}

impl Block<256> for BlockTq1_0 {
    const DTYPE: DType = DType::Tq1_0;

    fn is_finite(&self) -> bool {
        self.d.is_finite()
    }

    fn dequantize(&self, out: &mut [f32; 256]) {
        restore(self.d, &self.codes(), out);
    }

    fn quantize(values: &[f32; 256], _importance: Option<&[f32; 256]>) -> Self {
        let (d, codes) = round(values);
        let mut digits = [0u16; 52];
        for (i, code) in codes.iter().enumerate() {
            let (byte, digit) = Self::place(i);
            digits[byte] += u16::from(*code) * 3u16.pow(4 - digit);
        }
        let bytes = digits.map(|digits| (digits * 256).div_ceil(243) as u8);
        let mut block = Self { d, ..Self::zeroed() };
        block.qs.copy_from_slice(&bytes[..48]);
        block.qh.copy_from_slice(&bytes[48..]);
        block
    }
}

impl BlockTq2_0 {
    /// The codes `q`, 0 to 3.
    pub fn codes(&self) -> [u8; 256] {
        std::array::from_fn(|i| self.qs[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3)
    }

    /// A block of codes.
    pub fn from_codes(d: F16Le, codes: &[u8; 256]) -> Self {
        let mut qs = [0; 64];
        for (i, code) in codes.iter().enumerate() {
            qs[i / 128 * 32 + i % 32] |= code << (i % 128 / 32 * 2);
        }
        Self { qs, d }
    }
}

impl Block<256> for BlockTq2_0 {
    const DTYPE: DType = DType::Tq2_0;

    fn is_finite(&self) -> bool {
        self.d.is_finite()
    }

    fn dequantize(&self, out: &mut [f32; 256]) {
        restore(self.d, &self.codes(), out);
    }

    fn quantize(values: &[f32; 256], _importance: Option<&[f32; 256]>) -> Self {
        let (d, codes) = round(values);
        Self::from_codes(d, &codes)
    }
}

/// The largest magnitude as the scale, and the nearest codes.
pub(crate) fn round<const N: usize>(values: &[f32; N]) -> (F16Le, [u8; N]) {
    let d = magnitude(values);
    let inverse = 1.0 / d;
    let inverse = if inverse.is_finite() { inverse } else { 0.0 };
    let codes = values.map(|x| (nearest_half_away(x * inverse) + 1.0) as u8);
    (F16Le::saturating_from_f32(d), codes)
}

/// `x = d (q - 1)`.
pub(crate) fn restore<const N: usize>(d: F16Le, codes: &[u8; N], out: &mut [f32; N]) {
    let d = d.to_f32();
    for (out, code) in out.iter_mut().zip(codes) {
        *out = d * (f32::from(*code) - 1.0);
    }
}
