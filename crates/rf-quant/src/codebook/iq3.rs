//! [`BlockIq3Xxs`], [`BlockIq3S`].

use bytemuck::{Pod, Zeroable};

use super::grids::{IQ3_S, IQ3_XXS};
use super::points::{CodebookBlock, apply_signs, even_signs};
use crate::{
    DType,
    block::{F16Le, assert_layout},
};

/// A block of [`DType::Iq3Xxs`].
///
/// ```text
/// byte  0       2                      66                                                  98
///       | d f16 | index of 64 groups   | 8 u32: 4 of 7 sign bits, scale in bits 28-31      |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIq3Xxs {
    /// Scale.
    pub d: F16Le,
    /// The index of each group of 4 values.
    pub qs: [u8; 64],
    /// Signs of 8 values each, and a scale, per 32 values.
    pub signs_and_scales: [[u8; 4]; 8],
}

assert_layout!(BlockIq3Xxs, 256, DType::Iq3Xxs);

impl CodebookBlock for BlockIq3Xxs {
    const DTYPE: DType = DType::Iq3Xxs;
    const UNIT: f32 = 0.25;

    fn d(&self) -> F16Le {
        self.d
    }

    fn set_d(&mut self, d: F16Le) {
        self.d = d;
    }

    fn scales(&self) -> [u8; 16] {
        std::array::from_fn(|i| self.signs_and_scales[i / 2][3] >> 4)
    }

    fn values(&self) -> [i8; 256] {
        const MAGNITUDES: [i8; 8] = [4, 12, 20, 28, 36, 44, 52, 62];
        values(MAGNITUDES, |group| {
            // Eight values have 7 sign bits.
            let (sub, eight) = (group / 8, group % 8 / 2);
            let signs = even_signs(u32::from_le_bytes(self.signs_and_scales[sub]) >> (7 * eight));
            (IQ3_XXS[usize::from(self.qs[group])], signs >> (4 * (group % 2)))
        })
    }
}

/// A block of [`DType::Iq3S`].
///
/// ```text
/// byte  0       2                 66               74                 106                  110
///       | d f16 | index: low byte | index: bit 8   | signs: 8 bits    | scales: 2 of 4 bits |
///               | of 64 groups    | of 8 groups    | of 2 groups      | for 64 values       |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIq3S {
    /// Scale.
    pub d: F16Le,
    /// The low byte of the index of each group of 4 values.
    pub qs: [u8; 64],
    /// The upper bit of eight indices per byte.
    pub qh: [u8; 8],
    /// The signs of 8 values per byte.
    pub signs: [u8; 32],
    /// Two scales of 4 bits per 64 values, the low one first.
    pub scales: [u8; 4],
}

assert_layout!(BlockIq3S, 256, DType::Iq3S);

impl CodebookBlock for BlockIq3S {
    const DTYPE: DType = DType::Iq3S;
    const UNIT: f32 = 1.0;

    fn d(&self) -> F16Le {
        self.d
    }

    fn set_d(&mut self, d: F16Le) {
        self.d = d;
    }

    fn scales(&self) -> [u8; 16] {
        std::array::from_fn(|i| self.scales[i / 4] >> (4 * (i / 2 % 2)) & 15)
    }

    fn values(&self) -> [i8; 256] {
        const MAGNITUDES: [i8; 8] = [1, 3, 5, 7, 9, 11, 13, 15];
        values(MAGNITUDES, |group| {
            let high = self.qh[group / 8] >> (group % 8) & 1;
            let index = usize::from(self.qs[group]) | usize::from(high) << 8;
            (IQ3_S[index], self.signs[group / 2] >> (4 * (group % 2)))
        })
    }
}

/// The values of all groups, `group` being the point and the signs of one.
fn values(magnitudes: [i8; 8], group: impl Fn(usize) -> (u16, u8)) -> [i8; 256] {
    let mut values = [0; 256];
    for (index, out) in values.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        let (point, signs) = group(index);
        let four = std::array::from_fn(|i| magnitudes[usize::from(point >> (4 * i) & 7)]);
        *out = apply_signs(four, signs);
    }
    values
}
