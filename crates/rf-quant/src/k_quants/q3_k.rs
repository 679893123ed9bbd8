//! [`BlockQ3K`].

use bytemuck::{Pod, Zeroable};

use super::q2_k::place;
use super::symmetric;
use crate::DType;
use crate::block::{Block, F16Le, assert_layout};

/// A block of [`DType::Q3K`]: `x = d s (q - 4)` with 16 sub-blocks of 16, `s` from -32 to 31.
///
/// ```text
/// byte  0                      32              96                       108    110
///       | hmask: bit 2 of each q | qs: bits 0-1  | scales: 16 of 6 bits + 32 | d f16 |
///
/// qs     two halves of 32 bytes for 128 values each; byte l of a half:
///        | bits 0-1 value l | bits 2-3 value 32+l | bits 4-5 value 64+l | bits 6-7 value 96+l |
/// hmask  bit b of byte l belongs to value 32 b + l
/// scales byte j < 8:  | bits 0-3 low of scale j | bits 4-7 low of scale j+8 |
///        byte 8+j:    bits 2k, 2k+1 = high of scale 4k+j
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ3K {
    /// The third bit of the values.
    pub hmask: [u8; 32],
    /// The lower two bits of the values.
    pub qs: [u8; 64],
    /// Packed scales; see [`Self::unpack_scales`].
    pub scales: [u8; 12],
    /// Scale of the scales.
    pub d: F16Le,
}

assert_layout!(BlockQ3K, 256);

impl BlockQ3K {
    /// The scales of the sub-blocks, -32 to 31.
    pub fn unpack_scales(&self) -> [i8; 16] {
        std::array::from_fn(|j| {
            let low = if j < 8 { self.scales[j] & 15 } else { self.scales[j - 8] >> 4 };
            let high = self.scales[8 + j % 4] >> (j / 4 * 2) & 3;
            (low | high << 4) as i8 - 32
        })
    }

    fn pack_scales(scales: &[i8; 16]) -> [u8; 12] {
        let mut bytes = [0; 12];
        for (j, scale) in scales.iter().enumerate() {
            let bits = (scale + 32) as u8;
            bytes[j % 8] |= (bits & 15) << (j / 8 * 4);
            bytes[8 + j % 4] |= bits >> 4 << (j / 4 * 2);
        }
        bytes
    }
}

impl Block<256> for BlockQ3K {
    const DTYPE: DType = DType::Q3K;

    fn is_finite(&self) -> bool {
        self.d.is_finite()
    }

    fn dequantize(&self, out: &mut [f32; 256]) {
        let d = self.d.to_f32();
        let scales = self.unpack_scales();
        for (sub, (out, s)) in out.as_chunks_mut::<16>().0.iter_mut().zip(scales).enumerate() {
            let scale = d * f32::from(s);
            let (start, shift) = place(sub);
            let bytes = self.qs[start..].iter().zip(&self.hmask[sub % 2 * 16..]);
            for (out, (q, high)) in out.iter_mut().zip(bytes) {
                let bits = q >> shift & 3 | (high >> (sub / 2) & 1) << 2;
                *out = scale * f32::from(bits as i8 - 4);
            }
        }
    }

    fn quantize(values: &[f32; 256], importance: Option<&[f32; 256]>) -> Self {
        let fit = symmetric::search::<4, 32>(values, importance);
        let (mut qs, mut hmask) = ([0; 64], [0; 32]);
        for (sub, levels) in fit.levels.as_chunks::<16>().0.iter().enumerate() {
            let (start, shift) = place(sub);
            let bytes = qs[start..].iter_mut().zip(&mut hmask[sub % 2 * 16..]);
            for ((q, high), level) in bytes.zip(levels) {
                *q |= (level & 3) << shift;
                *high |= level >> 2 << (sub / 2);
            }
        }
        Self { hmask, qs, scales: Self::pack_scales(&fit.scales), d: fit.d }
    }
}
