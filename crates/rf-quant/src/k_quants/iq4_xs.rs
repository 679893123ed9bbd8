//! [`BlockIq4Xs`].

use bytemuck::{Pod, Zeroable};

use super::fit::inverse_or_zero;
use crate::block::{Block, F16Le, assert_layout};
use crate::extent::largest;
use crate::normalized::Normalized;
use crate::rounding::nearest;
use crate::{BlockIq4Nl, DType};

/// A block of [`DType::Iq4Xs`]: `x = d s VALUES[q]` with 8 sub-blocks of 32, `s` from -32 to 31,
/// and the values of [`BlockIq4Nl`].
///
/// ```text
/// byte  0       2                        4                       8                       136
///       | d f16 | scales: bits 4-5 u16   | scales: bits 0-3      | qs: 8 of 16 bytes     |
///
/// scales u16 bits 2j, 2j+1 and nibble j of the four bytes hold scale j, plus 32
/// qs     byte l of 16: | value l in the low nibble | value 16+l in the high one |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIq4Xs {
    /// Scale of the scales.
    pub d: F16Le,
    /// The upper two bits of the scales; see [`Self::unpack_scales`].
    pub scales_high: [u8; 2],
    /// The lower four bits of the scales.
    pub scales_low: [u8; 4],
    /// The codes.
    pub qs: [[u8; 16]; 8],
}

assert_layout!(BlockIq4Xs, 256);

impl BlockIq4Xs {
    /// The scales of the sub-blocks, -32 to 31.
    pub fn unpack_scales(&self) -> [i8; 8] {
        let high = u16::from_le_bytes(self.scales_high);
        std::array::from_fn(|j| {
            let low = self.scales_low[j / 2] >> (4 * (j % 2)) & 15;
            (low | ((high >> (2 * j) & 3) as u8) << 4) as i8 - 32
        })
    }
}

impl Block<256> for BlockIq4Xs {
    const DTYPE: DType = DType::Iq4Xs;

    fn is_finite(&self) -> bool {
        self.d.is_finite()
    }

    fn dequantize(&self, out: &mut [f32; 256]) {
        let d = self.d.to_f32();
        let subs = out.as_chunks_mut::<32>().0.iter_mut().zip(&self.qs);
        for ((out, qs), s) in subs.zip(self.unpack_scales()) {
            let scale = d * f32::from(s);
            let (low, high) = out.split_at_mut(16);
            for ((low, high), q) in low.iter_mut().zip(high).zip(qs) {
                *low = scale * f32::from(BlockIq4Nl::VALUES[usize::from(q & 15)]);
                *high = scale * f32::from(BlockIq4Nl::VALUES[usize::from(q >> 4)]);
            }
        }
    }

    fn quantize(values: &[f32; 256], importance: Option<&[f32; 256]>) -> Self {
        let subs = values.as_chunks::<32>().0;
        let weights = importance
            .and_then(|importance| Normalized::new(values).and_then(|x| x.weigh(importance)));
        let mut fits = [0.0; 8];
        for (sub, (fit, values)) in fits.iter_mut().zip(subs).enumerate() {
            let weights = weights.as_ref().map(|weights| &weights.as_chunks().0[sub]);
            *fit = BlockIq4Nl::fit_scale(values, weights);
        }
        // The extreme gets the larger end of the range of scales.
        let d = (largest(&fits) / -32.0).clamp(-65504.0, 65504.0);
        let inverse = inverse_or_zero(d);
        let mut block = Self { d: F16Le::saturating_from_f32(d), ..Self::zeroed() };
        let mut high = 0u16;
        for (j, (values, fit)) in subs.iter().zip(fits).enumerate() {
            let s = nearest((fit * inverse).clamp(-32.0, 31.0));
            let bits = (s + 32.0) as u8;
            block.scales_low[j / 2] |= (bits & 15) << (4 * (j % 2));
            high |= u16::from(bits >> 4) << (2 * j);
            let inverse = inverse_or_zero(d * s);
            let codes = values.map(|x| BlockIq4Nl::nearest_code(x * inverse));
            block.qs[j] = std::array::from_fn(|l| codes[l] | codes[l + 16] << 4);
        }
        block.scales_high = high.to_le_bytes();
        block
    }
}
