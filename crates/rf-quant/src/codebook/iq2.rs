//! [`BlockIq2Xxs`], [`BlockIq2Xs`], [`BlockIq2S`].

use std::sync::LazyLock;

use bytemuck::{Pod, Zeroable};

use super::book::Book;
use super::grids::{IQ2_S, IQ2_XS, IQ2_XXS};
use super::points::{CodebookBlock, apply_signs, even_signs};
use super::search::{Search, Signs};
use crate::DType;
use crate::block::{F16Le, assert_layout};

/// A block of [`DType::Iq2Xxs`].
///
/// ```text
/// byte  0       2                                      66
///       | d f16 | 8 of 8 bytes, one per 32 values       |
///
/// 8 bytes: | index of group 0 | 1 | 2 | 3 | u32: 4 of 7 sign bits, scale in bits 28-31 |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIq2Xxs {
    /// Scale.
    pub d: F16Le,
    /// Indices, signs and scales.
    pub qs: [[u8; 8]; 8],
}

assert_layout!(BlockIq2Xxs, 256, DType::Iq2Xxs);

impl BlockIq2Xxs {
    /// Signs and scale of 32 values.
    fn signs_and_scale(&self, sub: usize) -> u32 {
        let [.., a, b, c, d] = self.qs[sub];
        u32::from_le_bytes([a, b, c, d])
    }
}

impl CodebookBlock for BlockIq2Xxs {
    const DTYPE: DType = DType::Iq2Xxs;
    const UNIT: f32 = 0.125;

    fn d(&self) -> F16Le {
        self.d
    }

    fn set_d(&mut self, d: F16Le) {
        self.d = d;
    }

    fn scales(&self) -> [u8; 16] {
        std::array::from_fn(|i| (self.signs_and_scale(i / 2) >> 28) as u8)
    }

    fn values(&self) -> [i8; 256] {
        values(|group| {
            let (sub, i) = (group / 4, group % 4);
            let signs = even_signs(self.signs_and_scale(sub) >> (7 * i));
            (IQ2_XXS[usize::from(self.qs[sub][i])], signs)
        })
    }

    fn search(values: &[f32; 256], importance: Option<&[f32; 256]>) -> Self {
        let mut block = Self::zeroed();
        let Some(found) = search::<32>(&BOOK_XXS, Signs::Even).run(values, importance) else {
            return block;
        };
        block.d = found.d;
        for (sub, qs) in block.qs.iter_mut().enumerate() {
            let mut bits = u32::from(found.steps[2 * sub]) << 28;
            for (i, q) in qs[..4].iter_mut().enumerate() {
                *q = found.points[4 * sub + i] as u8;
                bits |= u32::from(found.signs[4 * sub + i] & 127) << (7 * i);
            }
            qs[4..].copy_from_slice(&bits.to_le_bytes());
        }
        block
    }
}

/// A block of [`DType::Iq2Xs`].
///
/// ```text
/// byte  0       2              66                                             74
///       | d f16 | qs: 32 u16   | scales: low nibble for 16 values, then high |
///
/// qs: | bits 0-8 index | bits 9-15 signs |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIq2Xs {
    /// Scale.
    pub d: F16Le,
    /// Index and signs of each group.
    pub qs: [[u8; 2]; 32],
    /// Two scales of 4 bits per 32 values.
    pub scales: [u8; 8],
}

assert_layout!(BlockIq2Xs, 256, DType::Iq2Xs);

impl CodebookBlock for BlockIq2Xs {
    const DTYPE: DType = DType::Iq2Xs;
    const UNIT: f32 = 0.125;

    fn d(&self) -> F16Le {
        self.d
    }

    fn set_d(&mut self, d: F16Le) {
        self.d = d;
    }

    fn scales(&self) -> [u8; 16] {
        nibbles(self.scales)
    }

    fn values(&self) -> [i8; 256] {
        values(|group| {
            let q = u16::from_le_bytes(self.qs[group]);
            (IQ2_XS[usize::from(q & 511)], even_signs(u32::from(q >> 9)))
        })
    }

    fn search(values: &[f32; 256], importance: Option<&[f32; 256]>) -> Self {
        let mut block = Self::zeroed();
        let Some(found) = search::<16>(&BOOK_XS, Signs::Even).run(values, importance) else {
            return block;
        };
        block.d = found.d;
        block.scales = from_nibbles(&found.steps);
        for (group, q) in block.qs.iter_mut().enumerate() {
            *q = (found.points[group] | u16::from(found.signs[group] & 127) << 9).to_le_bytes();
        }
        block
    }
}

/// A block of [`DType::Iq2S`].
///
/// ```text
/// byte  0       2                 34                66               74        82
///       | d f16 | index: low byte | signs: 8 bits   | index: bits 8-9 | scales |
///               | of 32 groups    | of 32 groups    | of 4 groups     | as IQ2_XS
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIq2S {
    /// Scale.
    pub d: F16Le,
    /// The low byte of the index of each group.
    pub qs: [u8; 32],
    /// The signs of each group.
    pub signs: [u8; 32],
    /// The upper two bits of four indices per byte.
    pub qh: [u8; 8],
    /// Two scales of 4 bits per 32 values.
    pub scales: [u8; 8],
}

assert_layout!(BlockIq2S, 256, DType::Iq2S);

impl CodebookBlock for BlockIq2S {
    const DTYPE: DType = DType::Iq2S;
    const UNIT: f32 = 0.125;

    fn d(&self) -> F16Le {
        self.d
    }

    fn set_d(&mut self, d: F16Le) {
        self.d = d;
    }

    fn scales(&self) -> [u8; 16] {
        nibbles(self.scales)
    }

    fn values(&self) -> [i8; 256] {
        values(|group| {
            let high = self.qh[group / 4] >> (2 * (group % 4)) & 3;
            let index = usize::from(self.qs[group]) | usize::from(high) << 8;
            (IQ2_S[index], self.signs[group])
        })
    }

    fn search(values: &[f32; 256], importance: Option<&[f32; 256]>) -> Self {
        let mut block = Self::zeroed();
        let Some(found) = search::<16>(&BOOK_S, Signs::Free).run(values, importance) else {
            return block;
        };
        block.d = found.d;
        block.signs = found.signs;
        block.scales = from_nibbles(&found.steps);
        for group in 0..32 {
            let [low, high] = found.points[group].to_le_bytes();
            block.qs[group] = low;
            block.qh[group / 4] |= high << (2 * (group % 4));
        }
        block
    }
}

/// The values of all groups, `group` being the point and the signs of one.
fn values(group: impl Fn(usize) -> (u16, u8)) -> [i8; 256] {
    const MAGNITUDES: [i8; 4] = [8, 25, 43, 0];
    let mut values = [0; 256];
    for (index, out) in values.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let (point, signs) = group(index);
        let magnitudes = std::array::from_fn(|i| MAGNITUDES[usize::from(point >> (2 * i) & 3)]);
        *out = apply_signs(magnitudes, signs);
    }
    values
}

static BOOK_XXS: LazyLock<Book<8>> = LazyLock::new(|| book(&IQ2_XXS));
static BOOK_XS: LazyLock<Book<8>> = LazyLock::new(|| book(&IQ2_XS));
static BOOK_S: LazyLock<Book<8>> = LazyLock::new(|| book(&IQ2_S));

fn book(points: &[u16]) -> Book<8> {
    Book::new(points, 2, &[&[1.0, 3.125, 5.375]])
}

fn search<const SUB: usize>(book: &'static Book<8>, signs: Signs) -> Search<8, SUB> {
    Search { book, signs, most_steps: 15, shifted: SUB, stretch: (0.75, 1.5) }
}

/// Two nibbles per byte, the low one first.
fn from_nibbles(nibbles: &[u8; 16]) -> [u8; 8] {
    std::array::from_fn(|i| nibbles[2 * i] | nibbles[2 * i + 1] << 4)
}

/// The nibbles of each byte, the low one first.
fn nibbles(bytes: [u8; 8]) -> [u8; 16] {
    std::array::from_fn(|i| bytes[i / 2] >> (4 * (i % 2)) & 15)
}
