//! [`BlockNvfp4`].

use bytemuck::{Pod, Zeroable};

use super::mxfp4::{DOUBLED, nearest_code};
use crate::block::{Block, assert_layout};
use crate::extent::magnitude;
use crate::{DType, E4m3};

/// A block of [`DType::Nvfp4`]: `x = E4M3(d) E2M1(q)`, a scale `d` per 16 values.
///
/// ```text
/// byte  0                       4                          12                          36
///       | d: of 16 values each  | qs of values 0 to 15     | qs of 16 to 31 | …        |
///
/// byte j of 8   | value j (low 4 bits) | value j+8 (high) |
/// ```
///
/// Elements are those of [`BlockMxfp4`](super::BlockMxfp4). Scales have no sign, and the NaN of
/// E4M3 is 0, as in ggml. A file may have a factor of the whole matrix besides, in the tensor
/// `NAME.scale`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockNvfp4 {
    /// Scales.
    pub d: [u8; 4],
    /// Per scale, low halves: values 0 to 7; high halves: values 8 to 15.
    pub qs: [[u8; 8]; 4],
}

assert_layout!(BlockNvfp4, 64);

impl BlockNvfp4 {
    /// The bits of the scales as [`E4m3`], without a sign and with 0 for NaN.
    pub fn scale_bits(&self) -> [u8; 4] {
        // 0xff is no NaN in ggml, but 480, and so are the bits 0x7f in `E4m3`.
        self.d.map(|d| if d == NAN { 0 } else { d & 0x7f })
    }
}

/// The NaN of an E4M3 without sign.
const NAN: u8 = 0x7f;

impl Block<64> for BlockNvfp4 {
    const DTYPE: DType = DType::Nvfp4;

    fn is_finite(&self) -> bool {
        true
    }

    fn dequantize(&self, out: &mut [f32; 64]) {
        let subs = out.as_chunks_mut::<16>().0.iter_mut().zip(&self.qs);
        for ((out, qs), d) in subs.zip(self.scale_bits()) {
            let d = 0.5 * E4m3::from_bits(d).to_f32();
            let (low, high) = out.split_at_mut(8);
            for ((low, high), q) in low.iter_mut().zip(high).zip(qs) {
                *low = DOUBLED[usize::from(q & 15)] * d;
                *high = DOUBLED[usize::from(q >> 4)] * d;
            }
        }
    }

    /// The scale maps the largest magnitude to 6, the largest element.
    fn quantize(values: &[f32; 64], _importance: Option<&[f32; 64]>) -> Self {
        let mut block = Self::zeroed();
        for (sub, values) in values.as_chunks::<16>().0.iter().enumerate() {
            let code = nearest_scale(magnitude(values) / 6.0);
            block.d[sub] = code;
            let d = 0.5 * E4m3::from_bits(code).to_f32();
            if d > 0.0 {
                let codes = values.map(|x| nearest_code(x, d));
                block.qs[sub] = std::array::from_fn(|j| codes[j] | codes[j + 8] << 4);
            }
        }
        block
    }
}

/// The code of the scale nearest to `x`, ties away from zero. Unlike [`E4m3::from_f32`], and as
/// ggml, it gives 448 from 248 on.
fn nearest_scale(x: f32) -> u8 {
    /// The largest scale.
    const LARGEST: u32 = 0x7e;
    /// The code of 256.
    const TOO_LARGE: u32 = 0x78;
    /// The least normal number.
    const LEAST_NORMAL: f32 = 1.0 / 64.0;
    if x < LEAST_NORMAL {
        // Steps of 2⁻⁹, of which a subnormal number has at most seven.
        return ((x * 512.0 + 0.5) as u8).min(7);
    }
    // The upper bits of a float are those of an E4M3 except for the bias. A carry out of the
    // mantissa correctly increments the exponent.
    let code = ((x.to_bits() + (1 << 19)) >> 20) - (120 << 3);
    (if code >= TOO_LARGE { LARGEST } else { code }) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values are those of ggml.
    #[test]
    fn scales_have_no_sign_and_nan_is_zero() {
        let block = BlockNvfp4 { d: [0xff, 0x80, 0x7f, 0xfe], qs: [[0x77; 8]; 4] };
        let mut values = [1.0; 64];
        block.dequantize(&mut values);
        let expected = [2880.0_f32, 0.0, 0.0, 2688.0];
        for (values, expected) in values.as_chunks::<16>().0.iter().zip(expected) {
            assert_eq!(values.map(f32::to_bits), [expected.to_bits(); 16]);
        }
    }
}
