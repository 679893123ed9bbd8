//! [`CodebookBlock`], and the signs of points.

use bytemuck::Pod;

use crate::DType;
use crate::block::{Block, F16Le};

/// A super-block whose values are points of a codebook: `d UNIT (2 s + 1) v`.
pub trait CodebookBlock: Pod {
    /// The format of these blocks.
    const DTYPE: DType;
    /// The scale of the integers, a power of two.
    const UNIT: f32;

    /// The scale of the super-block.
    fn d(&self) -> F16Le;

    /// Replaces the scale of the super-block.
    fn set_d(&mut self, d: F16Le);

    /// The scale `s` of each 16 values.
    fn scales(&self) -> [u8; 16];

    /// The integers `v`.
    fn values(&self) -> [i8; 256];

    /// The block of least error that the search finds: see [`Block::quantize`].
    fn search(values: &[f32; 256], importance: Option<&[f32; 256]>) -> Self;
}

impl<B: CodebookBlock> Block<256> for B {
    const DTYPE: DType = <B as CodebookBlock>::DTYPE;

    fn is_finite(&self) -> bool {
        self.d().is_finite()
    }

    fn dequantize(&self, out: &mut [f32; 256]) {
        // All products are exact: d has 11 bits, `2 s + 1` at most 5 and `v` at most 6.
        let d = self.d().to_f32() * Self::UNIT;
        let (values, scales) = (self.values(), self.scales());
        let subs = out.as_chunks_mut::<16>().0.iter_mut().zip(values.as_chunks::<16>().0);
        for ((out, values), s) in subs.zip(scales) {
            let scale = d * f32::from(2 * s + 1);
            for (out, v) in out.iter_mut().zip(values) {
                *out = scale * f32::from(*v);
            }
        }
    }

    fn quantize(values: &[f32; 256], importance: Option<&[f32; 256]>) -> Self {
        Self::search(values, importance)
    }
}

/// Signs of 8 values in 7 bits: an even number of them is negative. Bit `i` of the result is set if
/// value `i` is negative.
pub(super) fn even_signs(bits: u32) -> u8 {
    let seven = bits as u8 & 127;
    seven | (seven.count_ones() as u8 & 1) << 7
}

/// Negates the values whose bit is set.
pub(super) fn apply_signs<const N: usize>(magnitudes: [i8; N], signs: u8) -> [i8; N] {
    std::array::from_fn(|i| if signs >> i & 1 == 1 { -magnitudes[i] } else { magnitudes[i] })
}
