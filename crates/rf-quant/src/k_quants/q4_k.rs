//! [`BlockQ4K`].

use bytemuck::{Pod, Zeroable};

use super::{affine, scales};
use crate::DType;
use crate::block::{Block, F16Le, assert_layout};

/// A block of [`DType::Q4K`]: `x = d s q - dmin m` with 8 sub-blocks of 32.
///
/// ```text
/// byte  0       2          4                                 16                        144
///       | d f16 | dmin f16 | scales: 8 of 6 bits, 8 minima | qs: 4 bits each           |
///
/// qs, 32 bytes for each 64 values; byte l of those:
///       | bits 0-3 value l | bits 4-7 value 32+l |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ4K {
    /// Scale of the scales.
    pub d: F16Le,
    /// Scale of the minima.
    pub dmin: F16Le,
    /// Packed scales and minima; see [`Self::unpack_scales`].
    pub scales: [u8; 12],
    /// Values of 4 bits.
    pub qs: [u8; 128],
}

assert_layout!(BlockQ4K, 256);

impl BlockQ4K {
    /// Scales and minima of the sub-blocks, 0 to 63.
    pub fn unpack_scales(&self) -> ([u8; 8], [u8; 8]) {
        scales::unpack(&self.scales)
    }
}

impl Block<256> for BlockQ4K {
    const DTYPE: DType = DType::Q4K;

    fn is_finite(&self) -> bool {
        self.d.is_finite() && self.dmin.is_finite()
    }

    fn dequantize(&self, out: &mut [f32; 256]) {
        let (d, dmin) = (self.d.to_f32(), self.dmin.to_f32());
        let (scales, mins) = self.unpack_scales();
        let pairs = out.as_chunks_mut::<64>().0.iter_mut().zip(self.qs.as_chunks::<32>().0);
        for (pair, (out, qs)) in pairs.enumerate() {
            let scale = [0, 1].map(|half| d * f32::from(scales[2 * pair + half]));
            let min = [0, 1].map(|half| dmin * f32::from(mins[2 * pair + half]));
            let (low, high) = out.split_at_mut(32);
            for ((low, high), q) in low.iter_mut().zip(high).zip(qs) {
                *low = scale[0] * f32::from(q & 15) - min[0];
                *high = scale[1] * f32::from(q >> 4) - min[1];
            }
        }
    }

    fn quantize(values: &[f32; 256], importance: Option<&[f32; 256]>) -> Self {
        let fit = affine::search::<32, 15, 63>(values, importance);
        let mut qs = [0; 128];
        let pairs = qs.as_chunks_mut::<32>().0.iter_mut().zip(fit.levels.as_chunks::<64>().0);
        for (qs, levels) in pairs {
            *qs = std::array::from_fn(|l| levels[l] | levels[l + 32] << 4);
        }
        let scales = scales::pack(fit.first_scales(), fit.first_mins());
        Self { d: fit.d, dmin: fit.dmin, scales, qs }
    }
}
