//! [`BlockQ6K`].

use bytemuck::{Pod, Zeroable};

use super::symmetric;
use crate::DType;
use crate::block::{Block, F16Le, assert_layout};

/// A block of [`DType::Q6K`]: `x = d s (q - 32)` with 16 sub-blocks of 16.
///
/// ```text
/// byte  0                 128               192                    208    210
///       | ql: bits 0-3 of q | qh: bits 4-5  | scales: signed bytes | d f16 |
///
/// two halves for 128 values each:
/// ql, 64 bytes of the half; byte l < 32: | bits 0-3 value l    | bits 4-7 value 64+l |
///                           byte 32 + l: | bits 0-3 value 32+l | bits 4-7 value 96+l |
/// qh, 32 bytes of the half; byte l:
///       | bits 0-1 value l | bits 2-3 value 32+l | bits 4-5 value 64+l | bits 6-7 value 96+l |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ6K {
    /// The lower four bits of the values.
    pub ql: [u8; 128],
    /// The upper two bits of the values.
    pub qh: [u8; 64],
    /// The scales of the sub-blocks.
    pub scales: [i8; 16],
    /// Scale of the scales.
    pub d: F16Le,
}

assert_layout!(BlockQ6K, 256);

impl Block<256> for BlockQ6K {
    const DTYPE: DType = DType::Q6K;

    fn is_finite(&self) -> bool {
        self.d.is_finite()
    }

    fn dequantize(&self, out: &mut [f32; 256]) {
        let d = self.d.to_f32();
        for (sub, (out, s)) in out.as_chunks_mut::<16>().0.iter_mut().zip(self.scales).enumerate() {
            let scale = d * f32::from(s);
            let (low, low_shift, high, high_shift) = place(sub);
            let bytes = self.ql[low..].iter().zip(&self.qh[high..]);
            for (out, (low, high)) in out.iter_mut().zip(bytes) {
                let bits = low >> low_shift & 15 | (high >> high_shift & 3) << 4;
                *out = scale * f32::from(bits as i8 - 32);
            }
        }
    }

    fn quantize(values: &[f32; 256], importance: Option<&[f32; 256]>) -> Self {
        let fit = symmetric::search::<32, 128>(values, importance);
        let (mut ql, mut qh) = ([0; 128], [0; 64]);
        for (sub, levels) in fit.levels.as_chunks::<16>().0.iter().enumerate() {
            let (low, low_shift, high, high_shift) = place(sub);
            let bytes = ql[low..].iter_mut().zip(&mut qh[high..]);
            for ((low, high), level) in bytes.zip(levels) {
                *low |= (level & 15) << low_shift;
                *high |= level >> 4 << high_shift;
            }
        }
        Self { ql, qh, scales: fit.scales, d: fit.d }
    }
}

/// Where a sub-block's bits are: first byte and bit position in `ql`, then in `qh`.
fn place(sub: usize) -> (usize, usize, usize, usize) {
    let (half, in_half) = (sub / 8, sub % 8);
    let low = half * 64 + in_half % 4 * 16;
    let high = half * 32 + in_half % 2 * 16;
    (low, in_half / 4 * 4, high, in_half / 2 * 2)
}
