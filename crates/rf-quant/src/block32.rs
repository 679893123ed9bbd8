//! The formats of 32 values with a plain f16 scale: `Q4_0`, `Q4_1`, `Q5_0`, `Q5_1`, `Q8_0`,
//! `IQ4_NL`.
//!
//! Quantisation is the usual one-pass rounding of llama.cpp, byte for byte: the `_0` formats map
//! the value of largest magnitude to the end of the signed range, the `_1` formats map minimum and
//! maximum to the ends of the unsigned range. `IQ4_NL` takes the best of 16 scales. With an
//! importance, all but `Q8_0` search for the scale of least weighted error.

use bytemuck::{Pod, Zeroable};

use crate::DType;
use crate::block::{Block, F16Le, assert_layout};
use crate::extent::{largest, magnitude, range};
use crate::k_quants::{weighted_line, weighted_scale};
use crate::normalized::Normalized;
use crate::rounding::{floor, low_byte, nearest_half_away};

/// A block of [`DType::Q4_0`]: `x = d (q - 8)`.
///
/// ```text
/// byte  0      2                                              18
///       | d f16| qs: byte j = value j (low 4 bits) | value j+16 (high) |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ4_0 {
    /// Scale.
    pub d: F16Le,
    /// Low halves: values 0 to 15; high halves: values 16 to 31.
    pub qs: [u8; 16],
}

/// A block of [`DType::Q4_1`]: `x = d q + m`.
///
/// ```text
/// byte  0      2      4                                              20
///       | d f16| m f16| qs: byte j = value j (low 4 bits) | value j+16 (high) |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ4_1 {
    /// Scale.
    pub d: F16Le,
    /// Minimum.
    pub m: F16Le,
    /// Low halves: values 0 to 15; high halves: values 16 to 31.
    pub qs: [u8; 16],
}

/// A block of [`DType::Q5_0`]: `x = d (q - 16)`.
///
/// ```text
/// byte  0      2                        6                                      22
///       | d f16| qh: bit j = bit 4 of q_j | qs: low 4 bits of value j, value j+16 |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ5_0 {
    /// Scale.
    pub d: F16Le,
    /// A little-endian `u32` whose bit `j` is the fifth bit of value `j`.
    pub qh: [u8; 4],
    /// Low halves: values 0 to 15; high halves: values 16 to 31.
    pub qs: [u8; 16],
}

/// A block of [`DType::Q5_1`]: `x = d q + m`.
///
/// ```text
/// byte  0      2      4                        8                                      24
///       | d f16| m f16| qh: bit j = bit 4 of q_j | qs: low 4 bits of value j, value j+16 |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ5_1 {
    /// Scale.
    pub d: F16Le,
    /// Minimum.
    pub m: F16Le,
    /// A little-endian `u32` whose bit `j` is the fifth bit of value `j`.
    pub qh: [u8; 4],
    /// Low halves: values 0 to 15; high halves: values 16 to 31.
    pub qs: [u8; 16],
}

/// A block of [`DType::Q8_0`]: `x = d q`.
///
/// ```text
/// byte  0      2                       34
///       | d f16| qs: 32 signed bytes    |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ8_0 {
    /// Scale.
    pub d: F16Le,
    /// Values in order.
    pub qs: [i8; 32],
}

/// A block of [`DType::Iq4Nl`]: `x = d VALUES[q]`.
///
/// The bytes are those of [`BlockQ4_0`]. The values of the codes are denser around 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIq4Nl {
    /// Scale.
    pub d: F16Le,
    /// Low halves: values 0 to 15; high halves: values 16 to 31.
    pub qs: [u8; 16],
}

assert_layout!(BlockIq4Nl, 32);
assert_layout!(BlockQ4_0, 32);
assert_layout!(BlockQ4_1, 32);
assert_layout!(BlockQ5_0, 32);
assert_layout!(BlockQ5_1, 32);
assert_layout!(BlockQ8_0, 32);

impl Block<32> for BlockQ4_0 {
    const DTYPE: DType = DType::Q4_0;

    fn is_finite(&self) -> bool {
        self.d.is_finite()
    }

    fn dequantize(&self, out: &mut [f32; 32]) {
        let d = self.d.to_f32();
        let (low, high) = out.split_at_mut(16);
        for ((low, high), q) in low.iter_mut().zip(high).zip(self.qs) {
            *low = f32::from(i16::from(q & 15) - 8) * d;
            *high = f32::from(i16::from(q >> 4) - 8) * d;
        }
    }

    fn quantize(values: &[f32; 32], importance: Option<&[f32; 32]>) -> Self {
        let d = symmetric_scale::<8>(values, importance);
        let levels = to_levels::<15>(values, 0.0, d, 8.5);
        Self { d: F16Le::saturating_from_f32(d), qs: pack_nibbles(&levels) }
    }
}

impl Block<32> for BlockQ4_1 {
    const DTYPE: DType = DType::Q4_1;

    fn is_finite(&self) -> bool {
        self.d.is_finite() && self.m.is_finite()
    }

    fn dequantize(&self, out: &mut [f32; 32]) {
        let (d, m) = (self.d.to_f32(), self.m.to_f32());
        let (low, high) = out.split_at_mut(16);
        for ((low, high), q) in low.iter_mut().zip(high).zip(self.qs) {
            *low = f32::from(q & 15) * d + m;
            *high = f32::from(q >> 4) * d + m;
        }
    }

    fn quantize(values: &[f32; 32], importance: Option<&[f32; 32]>) -> Self {
        let (d, min) = line::<15>(values, importance);
        let levels = to_levels::<15>(values, min, d, 0.5);
        Self {
            d: F16Le::saturating_from_f32(d),
            m: F16Le::saturating_from_f32(min),
            qs: pack_nibbles(&levels),
        }
    }
}

impl Block<32> for BlockQ5_0 {
    const DTYPE: DType = DType::Q5_0;

    fn is_finite(&self) -> bool {
        self.d.is_finite()
    }

    fn dequantize(&self, out: &mut [f32; 32]) {
        let d = self.d.to_f32();
        for (out, q) in out.iter_mut().zip(unpack_five_bits(self.qh, &self.qs)) {
            *out = f32::from(i16::from(q) - 16) * d;
        }
    }

    fn quantize(values: &[f32; 32], importance: Option<&[f32; 32]>) -> Self {
        let d = symmetric_scale::<16>(values, importance);
        let levels = to_levels::<31>(values, 0.0, d, 16.5);
        let (qh, qs) = pack_five_bits(&levels);
        Self { d: F16Le::saturating_from_f32(d), qh, qs }
    }
}

impl Block<32> for BlockQ5_1 {
    const DTYPE: DType = DType::Q5_1;

    fn is_finite(&self) -> bool {
        self.d.is_finite() && self.m.is_finite()
    }

    fn dequantize(&self, out: &mut [f32; 32]) {
        let (d, m) = (self.d.to_f32(), self.m.to_f32());
        for (out, q) in out.iter_mut().zip(unpack_five_bits(self.qh, &self.qs)) {
            *out = f32::from(q) * d + m;
        }
    }

    fn quantize(values: &[f32; 32], importance: Option<&[f32; 32]>) -> Self {
        let (d, min) = line::<31>(values, importance);
        let levels = to_levels::<31>(values, min, d, 0.5);
        let (qh, qs) = pack_five_bits(&levels);
        Self { d: F16Le::saturating_from_f32(d), m: F16Le::saturating_from_f32(min), qh, qs }
    }
}

impl Block<32> for BlockQ8_0 {
    const DTYPE: DType = DType::Q8_0;

    fn is_finite(&self) -> bool {
        self.d.is_finite()
    }

    fn dequantize(&self, out: &mut [f32; 32]) {
        let d = self.d.to_f32();
        for (out, q) in out.iter_mut().zip(self.qs) {
            *out = f32::from(q) * d;
        }
    }

    fn quantize(values: &[f32; 32], _importance: Option<&[f32; 32]>) -> Self {
        let d = saturate(magnitude(values) / 127.0);
        let inverse = inverse_or_zero(d);
        Self {
            d: F16Le::saturating_from_f32(d),
            qs: values.map(|x| low_byte(nearest_half_away(x * inverse)) as i8),
        }
    }
}

impl BlockIq4Nl {
    /// The value of each code.
    pub const VALUES: [i8; 16] =
        [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

    /// Half-way points between neighbouring values.
    const BOUNDARIES: [f32; 15] = {
        let mut boundaries = [0.0; 15];
        let mut i = 0;
        while i < 15 {
            boundaries[i] = (Self::VALUES[i] as i16 + Self::VALUES[i + 1] as i16) as f32 / 2.0;
            i += 1;
        }
        boundaries
    };

    /// The code of the value nearest to `x`, of two the larger one.
    pub(crate) fn nearest_code(x: f32) -> u8 {
        Self::BOUNDARIES.map(|bound| u8::from(x >= bound)).iter().sum()
    }

    /// The scale with the least error, weighted by `weights`, or by the squares of the values. Each
    /// of 16 trials rounds the values to codes and takes the scale of least squares for them. One
    /// trial puts the value of largest magnitude at 127, the others put it at -134 to -120.
    pub(crate) fn fit_scale(values: &[f32; 32], weights: Option<&[f32; 32]>) -> f32 {
        const TRIALS: usize = 16;
        /// Blocks of smaller values become zero.
        const NEGLIGIBLE: f32 = 1e-15;

        let extreme = largest(values);
        if extreme.abs() < NEGLIGIBLE {
            return 0.0;
        }
        // Divided by a power of two, so that squares do not overflow.
        let factor = f32::from_bits(extreme.to_bits() & 0x7f80_0000);
        let inverse_factor = 1.0 / factor;
        let extreme = extreme * inverse_factor;
        let end = f32::from(Self::VALUES[0]);
        let inverse: [f32; TRIALS] = std::array::from_fn(|trial| match trial {
            0 => 1.0 / (-extreme / end),
            _ => (trial as f32 - 8.0 + end) / extreme,
        });
        let (mut qx, mut qq) = ([0.0; TRIALS], [0.0; TRIALS]);
        for (i, x) in values.map(|x| x * inverse_factor).into_iter().enumerate() {
            let weight = weights.map_or(x * x, |weights| weights[i]);
            for trial in 0..TRIALS {
                let code = Self::nearest_code(inverse[trial] * x);
                let value = f32::from(Self::VALUES[usize::from(code)]);
                let weighted = weight * value;
                qx[trial] += weighted * x;
                qq[trial] += weighted * value;
            }
        }
        let (mut scale, mut gain) = (qx[0] / qq[0], qx[0] / qq[0] * qx[0]);
        for (qx, qq) in qx.into_iter().zip(qq) {
            if qq > 0.0 && qx * qx > gain * qq {
                (scale, gain) = (qx / qq, qx / qq * qx);
            }
        }
        scale * factor
    }
}

impl Block<32> for BlockIq4Nl {
    const DTYPE: DType = DType::Iq4Nl;

    fn is_finite(&self) -> bool {
        self.d.is_finite()
    }

    fn dequantize(&self, out: &mut [f32; 32]) {
        let d = self.d.to_f32();
        let (low, high) = out.split_at_mut(16);
        for ((low, high), q) in low.iter_mut().zip(high).zip(self.qs) {
            *low = d * f32::from(Self::VALUES[usize::from(q & 15)]);
            *high = d * f32::from(Self::VALUES[usize::from(q >> 4)]);
        }
    }

    fn quantize(values: &[f32; 32], importance: Option<&[f32; 32]>) -> Self {
        let weights = importance
            .and_then(|importance| Normalized::new(values).and_then(|x| x.weigh(importance)));
        let d = saturate(Self::fit_scale(values, weights.as_ref()));
        let inverse = inverse_or_zero(d);
        let codes = values.map(|x| Self::nearest_code(x * inverse));
        Self { d: F16Le::saturating_from_f32(d), qs: pack_nibbles(&codes) }
    }
}

/// The scale of a format with levels `-HALF..HALF`: the value of largest magnitude gets the end of
/// the range, or the weighted error is least.
fn symmetric_scale<const HALF: u8>(values: &[f32; 32], importance: Option<&[f32; 32]>) -> f32 {
    let weighted = importance.and_then(|importance| weighted_scale::<HALF>(values, importance));
    saturate(weighted.unwrap_or_else(|| largest(values) / -f32::from(HALF)))
}

/// The scale and the minimum of a format with levels `0..=MAX`: minimum and maximum get the ends of
/// the range, or the weighted error is least.
fn line<const MAX: u8>(values: &[f32; 32], importance: Option<&[f32; 32]>) -> (f32, f32) {
    let weighted = importance.and_then(|importance| weighted_line::<MAX>(values, importance));
    if let Some((d, min)) = weighted {
        return (saturate(d), -min);
    }
    let (min, max) = range(values);
    (saturate((max - min) / f32::from(MAX)), min)
}

/// `floor((x - min) / d + offset)` clamped to `0..=MAX`; the offset holds the half of rounding.
fn to_levels<const MAX: u8>(values: &[f32; 32], min: f32, d: f32, offset: f32) -> [u8; 32] {
    let inverse = inverse_or_zero(d);
    values.map(|x| low_byte(floor(((x - min) * inverse + offset).clamp(0.0, f32::from(MAX)))))
}

/// Limits a scale to what f16 can hold, for values beyond 8 × 65504.
fn saturate(d: f32) -> f32 {
    d.clamp(-65504.0, 65504.0)
}

/// `1 / d`, or 0 where a block is all zero or too small to invert.
fn inverse_or_zero(d: f32) -> f32 {
    let inverse = 1.0 / d;
    if inverse.is_finite() { inverse } else { 0.0 }
}

fn pack_nibbles(levels: &[u8; 32]) -> [u8; 16] {
    std::array::from_fn(|j| levels[j] & 15 | (levels[j + 16] & 15) << 4)
}

fn pack_five_bits(levels: &[u8; 32]) -> ([u8; 4], [u8; 16]) {
    let mut high = 0u32;
    for (j, q) in levels.iter().enumerate() {
        high |= u32::from(q >> 4 & 1) << j;
    }
    (high.to_le_bytes(), pack_nibbles(levels))
}

fn unpack_five_bits(qh: [u8; 4], qs: &[u8; 16]) -> [u8; 32] {
    let high = u32::from_le_bytes(qh);
    std::array::from_fn(|j| {
        let low = if j < 16 { qs[j] & 15 } else { qs[j - 16] >> 4 };
        low | ((high >> j & 1) as u8) << 4
    })
}
