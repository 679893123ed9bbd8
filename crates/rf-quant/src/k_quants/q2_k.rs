//! [`BlockQ2K`].

use bytemuck::{Pod, Zeroable};

use super::affine;
use crate::DType;
use crate::block::{Block, F16Le, assert_layout};

/// A block of [`DType::Q2K`]: `x = d s q - dmin m` with 16 sub-blocks of 16.
///
/// ```text
/// byte  0                                       16              80     82        84
///       | scales: sub-block s (low 4) | m (high) | qs: 2 bits each | d f16 | dmin f16 |
///
/// qs, two halves of 32 bytes for 128 values each; byte l of a half:
///       | bits 0-1 value l | bits 2-3 value 32+l | bits 4-5 value 64+l | bits 6-7 value 96+l |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ2K {
    /// Per sub-block: scale in the low 4 bits, minimum in the high 4.
    pub scales: [u8; 16],
    /// Values of 2 bits.
    pub qs: [u8; 64],
    /// Scale of the scales.
    pub d: F16Le,
    /// Scale of the minima.
    pub dmin: F16Le,
}

assert_layout!(BlockQ2K, 256);

impl Block<256> for BlockQ2K {
    const DTYPE: DType = DType::Q2K;

    fn is_finite(&self) -> bool {
        self.d.is_finite() && self.dmin.is_finite()
    }

    fn dequantize(&self, out: &mut [f32; 256]) {
        let (d, dmin) = (self.d.to_f32(), self.dmin.to_f32());
        for (sub, (out, sm)) in out.as_chunks_mut::<16>().0.iter_mut().zip(self.scales).enumerate()
        {
            let (scale, min) = (d * f32::from(sm & 15), dmin * f32::from(sm >> 4));
            let (start, shift) = place(sub);
            for (out, q) in out.iter_mut().zip(&self.qs[start..]) {
                *out = scale * f32::from(q >> shift & 3) - min;
            }
        }
    }

    fn quantize(values: &[f32; 256], importance: Option<&[f32; 256]>) -> Self {
        let fit = affine::search::<16, 3, 15>(values, importance);
        let mut qs = [0; 64];
        for (sub, levels) in fit.levels.as_chunks::<16>().0.iter().enumerate() {
            let (start, shift) = place(sub);
            for (q, level) in qs[start..].iter_mut().zip(levels) {
                *q |= level << shift;
            }
        }
        let scales = std::array::from_fn(|sub| fit.scales[sub] | fit.mins[sub] << 4);
        Self { scales, qs, d: fit.d, dmin: fit.dmin }
    }
}

/// First byte in `qs` and bit position of a sub-block's values. `Q3_K` has the same arrangement.
pub(super) fn place(sub: usize) -> (usize, usize) {
    (sub / 8 * 32 + sub % 2 * 16, sub % 8 / 2 * 2)
}
