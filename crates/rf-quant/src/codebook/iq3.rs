//! [`BlockIq3Xxs`], [`BlockIq3S`].

use std::sync::LazyLock;

use bytemuck::{Pod, Zeroable};

use super::book::Book;
use super::grids::{IQ3_S, IQ3_XXS};
use super::points::{CodebookBlock, apply_signs, even_signs};
use super::search::{Search, Signs};
use crate::DType;
use crate::block::{F16Le, assert_layout};

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

    fn search(values: &[f32; 256], importance: Option<&[f32; 256]>) -> Self {
        let mut block = Self::zeroed();
        let Some(found) = search(&BOOK_XXS, Signs::Even).run(values, importance) else {
            return block;
        };
        block.d = found.d;
        block.qs = found.points.map(|point| point as u8);
        for (sub, out) in block.signs_and_scales.iter_mut().enumerate() {
            let mut bits = u32::from(found.steps[2 * sub]) << 28;
            for i in 0..4 {
                bits |= u32::from(found.signs[4 * sub + i] & 127) << (7 * i);
            }
            *out = bits.to_le_bytes();
        }
        block
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

    fn search(values: &[f32; 256], importance: Option<&[f32; 256]>) -> Self {
        let mut block = Self::zeroed();
        let Some(found) = search(&BOOK_S, Signs::Free).run(values, importance) else {
            return block;
        };
        block.d = found.d;
        block.signs = found.signs;
        block.scales = std::array::from_fn(|i| found.steps[4 * i] | found.steps[4 * i + 2] << 4);
        for (group, point) in found.points.iter().enumerate() {
            let [low, high] = point.to_le_bytes();
            block.qs[group] = low;
            block.qh[group / 8] |= high << (group % 8);
        }
        block
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

static BOOK_XXS: LazyLock<Book<4>> =
    LazyLock::new(|| Book::new(&IQ3_XXS, 4, &[&[1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.5]]));
static BOOK_S: LazyLock<Book<4>> =
    LazyLock::new(|| Book::new(&IQ3_S, 4, &[&[1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0]]));

fn search(book: &'static Book<4>, signs: Signs) -> Search<4, 32> {
    Search { book, signs, most_steps: 15, shifted: 32, stretch: (0.75, 1.5) }
}
