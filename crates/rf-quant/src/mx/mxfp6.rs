//! [`BlockMxfp6E2M3`] and [`BlockMxfp6E3M2`].

use bytemuck::{Pod, Zeroable};

use super::{e8m0, is_finite};
use crate::DType;
use crate::block::{Block, assert_layout};
use crate::rounding::low_byte;

/// A block of [`DType::Mxfp6E2M3`]: `x = 2^(e - 127) E2M3(q)`.
///
/// ```text
/// byte  0   1                                                   25
///       | e | qs: value j in bits 6j to 6j+5, least significant first |
///
/// 3 bytes = 4 values:  | a5..a0 + b1 b0 << 6 | b5..b2 + c3..c0 << 4 | c5 c4 + d5..d0 << 2 |
/// q     | bit 5 sign | bits 3-4 exponent, bias 1 | bits 0-2 mantissa |
/// ```
///
/// `e = 255` makes the whole block NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockMxfp6E2M3 {
    /// Scale, E8M0.
    pub e: u8,
    /// Values of 6 bits.
    pub qs: [u8; 24],
}

/// A block of [`DType::Mxfp6E3M2`]: `x = 2^(e - 127) E3M2(q)`.
///
/// The bytes are those of [`BlockMxfp6E2M3`]; the value is
///
/// ```text
/// q     | bit 5 sign | bits 2-4 exponent, bias 3 | bits 0-1 mantissa |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockMxfp6E3M2 {
    /// Scale, E8M0.
    pub e: u8,
    /// Values of 6 bits.
    pub qs: [u8; 24],
}

assert_layout!(BlockMxfp6E2M3, 32);
assert_layout!(BlockMxfp6E3M2, 32);

impl Block<32> for BlockMxfp6E2M3 {
    const DTYPE: DType = DType::Mxfp6E2M3;

    fn is_finite(&self) -> bool {
        is_finite(self, self.e)
    }

    fn dequantize(&self, out: &mut [f32; 32]) {
        E2M3.dequantize(self.e, &self.qs, out);
    }

    fn quantize(values: &[f32; 32], _importance: Option<&[f32; 32]>) -> Self {
        let (e, qs) = E2M3.quantize(values);
        Self { e, qs }
    }
}

impl Block<32> for BlockMxfp6E3M2 {
    const DTYPE: DType = DType::Mxfp6E3M2;

    fn is_finite(&self) -> bool {
        is_finite(self, self.e)
    }

    fn dequantize(&self, out: &mut [f32; 32]) {
        E3M2.dequantize(self.e, &self.qs, out);
    }

    fn quantize(values: &[f32; 32], _importance: Option<&[f32; 32]>) -> Self {
        let (e, qs) = E3M2.quantize(values);
        Self { e, qs }
    }
}

const E2M3: Element = Element::new(3, 1);
const E3M2: Element = Element::new(2, 3);

/// A float of 6 bits: sign, exponent, mantissa; no infinity, no NaN.
struct Element {
    mantissa_bits: u32,
    bias: i32,
    /// The value of each code.
    values: [f32; 64],
}

impl Element {
    const fn new(mantissa_bits: u32, bias: i32) -> Self {
        let mut values = [0.0; 64];
        let mut code = 0;
        while code < 64 {
            let magnitude = code & 31;
            let exponent = magnitude >> mantissa_bits;
            let fraction = magnitude & ((1 << mantissa_bits) - 1);
            // Subnormals have the exponent of the first normal binade and no hidden bit.
            let significand = if exponent == 0 { fraction } else { fraction | 1 << mantissa_bits };
            let binade = if exponent == 0 { 1 } else { exponent as i32 };
            let step = power_of_two(binade - bias - mantissa_bits as i32);
            let value = significand as f32 * step;
            values[code] = if code < 32 { value } else { -value };
            code += 1;
        }
        Self { mantissa_bits, bias, values }
    }

    fn dequantize(&self, e: u8, qs: &[u8; 24], out: &mut [f32; 32]) {
        let scale = e8m0::to_f32(e);
        for (out, bytes) in out.as_chunks_mut::<4>().0.iter_mut().zip(qs.as_chunks::<3>().0) {
            let bits = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0]);
            for (j, out) in out.iter_mut().enumerate() {
                *out = self.values[(bits >> (6 * j) & 63) as usize] * scale;
            }
        }
    }

    /// Rounds to nearest, ties to even, and saturates.
    fn quantize(&self, values: &[f32; 32]) -> (u8, [u8; 24]) {
        let e = e8m0::for_values(values, self.max_exponent());
        let inverse_scale = 1.0 / e8m0::to_f32(e);
        let codes = values.map(|x| self.encode(x, inverse_scale));
        let mut qs = [0; 24];
        for (bytes, codes) in qs.as_chunks_mut::<3>().0.iter_mut().zip(codes.as_chunks::<4>().0) {
            let bits = codes.iter().rev().fold(0, |bits, code| bits << 6 | u32::from(*code));
            let [a, b, c, _] = bits.to_le_bytes();
            *bytes = [a, b, c];
        }
        (e, qs)
    }

    /// The code nearest to `x / scale`, given the inverse of the scale. Free of branches, so that
    /// the loop over a block vectorises.
    fn encode(&self, x: f32, inverse_scale: f32) -> u8 {
        let mantissa_bits = self.mantissa_bits;
        let min_normal = power_of_two(1 - self.bias);
        let magnitude = (x * inverse_scale).abs();

        // A float of 1.5 * 2^23 steps cannot hold fractions of a step, so the addition rounds to a
        // whole number of steps, ties to even.
        let binade = f32::from_bits(magnitude.to_bits() & 0x7f80_0000);
        let binade = if binade > min_normal { binade } else { min_normal };
        let steps = binade * (1.5 * power_of_two(23 - mantissa_bits as i32));
        let rounded = (magnitude + steps) - steps;
        let max = self.values[31];
        let rounded = if rounded < max { rounded } else { max };

        // A normal code is the exponent and mantissa of a float with another bias. A subnormal code
        // counts steps.
        let bias = (127 - self.bias) << mantissa_bits;
        let normal = (rounded.to_bits() >> (23 - mantissa_bits)) as i32 - bias;
        let subnormal = low_byte(rounded * power_of_two(self.bias - 1 + mantissa_bits as i32));
        let code = if rounded < min_normal { subnormal } else { normal as u8 };
        code | (x.to_bits() >> 31 << 5) as u8
    }

    fn max_exponent(&self) -> i32 {
        (31 >> self.mantissa_bits) - self.bias
    }
}

/// `2^exponent` in the range of normal floats.
const fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}
