//! [`BlockMxfp4`].

use bytemuck::{Pod, Zeroable};

use super::{e8m0, is_finite};
use crate::DType;
use crate::block::{Block, assert_layout};

/// A block of [`DType::Mxfp4`]: `x = 2^(e - 127) E2M1(q)`.
///
/// ```text
/// byte  0   1                                               17
///       | e | qs: byte j = value j (low 4 bits) | value j+16 (high) |
///
/// q     | bit 3 sign | bits 1-2 exponent | bit 0 mantissa |
/// ```
///
/// `e = 255`, a NaN in the OCP specification, is `2^128` here as in ggml.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockMxfp4 {
    /// Scale, E8M0.
    pub e: u8,
    /// Low halves: values 0 to 15; high halves: values 16 to 31.
    pub qs: [u8; 16],
}

assert_layout!(BlockMxfp4, 32);

/// Twice the value of each E2M1 code, so that all are integers.
pub(super) const DOUBLED: [f32; 16] =
    [0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 0.0, -1.0, -2.0, -3.0, -4.0, -6.0, -8.0, -12.0];

/// Half-way points between the doubled magnitudes.
const BOUNDARIES: [f32; 7] = [0.5, 1.5, 2.5, 3.5, 5.0, 7.0, 10.0];

impl Block<32> for BlockMxfp4 {
    const DTYPE: DType = DType::Mxfp4;

    fn is_finite(&self) -> bool {
        is_finite(self, self.e)
    }

    fn dequantize(&self, out: &mut [f32; 32]) {
        let d = e8m0::to_f32_halved(self.e);
        let (low, high) = out.split_at_mut(16);
        for ((low, high), q) in low.iter_mut().zip(high).zip(self.qs) {
            *low = DOUBLED[usize::from(q & 15)] * d;
            *high = DOUBLED[usize::from(q >> 4)] * d;
        }
    }

    /// Rounds as ggml does: to the nearest element, ties towards zero (OCP: ties to even). Values
    /// that round to zero lose their sign.
    fn quantize(values: &[f32; 32], _importance: Option<&[f32; 32]>) -> Self {
        let e = e8m0::for_values(values, 2);
        let d = e8m0::to_f32_halved(e);
        let codes = values.map(|x| nearest_code(x, d));
        Self { e, qs: std::array::from_fn(|j| codes[j] | codes[j + 16] << 4) }
    }
}

/// The code of the element nearest to `x / (2 d)`, ties towards zero. A value that rounds to zero
/// loses its sign.
pub(super) fn nearest_code(x: f32, d: f32) -> u8 {
    let magnitude = x.abs();
    // Counting boundaries compiles to compares and adds without branches. Scaling the boundaries
    // instead of the value is exact for the smallest scales too.
    let code = BOUNDARIES.map(|bound| u8::from(magnitude > bound * d)).iter().sum::<u8>();
    code | u8::from(x < 0.0 && code > 0) << 3
}
