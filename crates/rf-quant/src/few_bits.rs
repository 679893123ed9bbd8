//! The formats of one and two bits with a plain f16 scale: `Q1_0`, `Q2_0`.
//!
//! Models are trained with these weights, so quantisation is one pass, as in ggml, and ignores
//! importances.

use bytemuck::{Pod, Zeroable};

use crate::block::{Block, F16Le, assert_layout};
use crate::{DType, ternary};

/// A block of [`DType::Q1_0`]: `x = d` where the bit is set, else `-d`.
///
/// ```text
/// byte  0      2                                          18
///       | d f16| qs: bit i of byte j = value 8j + i        |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ1_0 {
    /// Scale.
    pub d: F16Le,
    /// A bit per value, lowest bits first.
    pub qs: [u8; 16],
}

/// A block of [`DType::Q2_0`]: `x = d (q - 1)`, `q` 0 to 3.
///
/// ```text
/// byte  0      2                                                18
///       | d f16| qs: bits 2i and 2i+1 of byte j = value 4j + i  |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ2_0 {
    /// Scale.
    pub d: F16Le,
    /// Two bits per value, lowest bits first.
    pub qs: [u8; 16],
}

assert_layout!(BlockQ1_0, 128);
assert_layout!(BlockQ2_0, 64);

impl Block<128> for BlockQ1_0 {
    const DTYPE: DType = DType::Q1_0;

    fn is_finite(&self) -> bool {
        self.d.is_finite()
    }

    fn dequantize(&self, out: &mut [f32; 128]) {
        let d = self.d.to_f32();
        for (out, q) in out.as_chunks_mut::<8>().0.iter_mut().zip(self.qs) {
            for (i, out) in out.iter_mut().enumerate() {
                *out = if q >> i & 1 == 1 { d } else { -d };
            }
        }
    }

    /// The mean magnitude is the scale.
    fn quantize(values: &[f32; 128], _importance: Option<&[f32; 128]>) -> Self {
        // In order, because another order could round to another scale.
        let sum: f32 = values.iter().map(|x| x.abs()).sum();
        let mut qs = [0; 16];
        for (q, values) in qs.iter_mut().zip(values.as_chunks::<8>().0) {
            *q = (0..8).fold(0, |q, i| q | u8::from(values[i] >= 0.0) << i);
        }
        // The sum of large values may be infinite.
        Self { d: F16Le::saturating_from_f32((sum / 128.0).min(f32::MAX)), qs }
    }
}

impl BlockQ2_0 {
    /// The codes `q`, 0 to 3.
    pub fn codes(&self) -> [u8; 64] {
        std::array::from_fn(|i| self.qs[i / 4] >> (i % 4 * 2) & 3)
    }
}

impl Block<64> for BlockQ2_0 {
    const DTYPE: DType = DType::Q2_0;

    fn is_finite(&self) -> bool {
        self.d.is_finite()
    }

    fn dequantize(&self, out: &mut [f32; 64]) {
        ternary::restore(self.d, &self.codes(), out);
    }

    /// The largest magnitude is the scale, so the fourth code is never written.
    fn quantize(values: &[f32; 64], _importance: Option<&[f32; 64]>) -> Self {
        let (d, codes) = ternary::round(values);
        let mut qs = [0; 16];
        for (q, codes) in qs.iter_mut().zip(codes.as_chunks::<4>().0) {
            *q = (0..4).fold(0, |q, i| q | codes[i] << (2 * i));
        }
        Self { d, qs }
    }
}
