//! [`BlockIq1S`], [`BlockIq1M`].

use std::sync::LazyLock;

use bytemuck::{Pod, Zeroable};

use super::book::Book;
use super::grids::IQ1;
use super::points::CodebookBlock;
use super::search::{Search, Signs};
use crate::DType;
use crate::block::{F16Le, assert_layout};

/// A block of [`DType::Iq1S`]: ternary points, shifted by an eighth per 32 values.
///
/// ```text
/// byte  0       2                           34                                             50
///       | d f16 | index: bits 0-7, 32 groups | 8 u16, one per 32 values                    |
///
/// u16: | bits 0-2, 3-5, 6-8, 9-11: index bits 8-10 | bits 12-14: scale | bit 15: shift is -1/8 |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIq1S {
    /// Scale.
    pub d: F16Le,
    /// The low byte of the index of each group of 8 values.
    pub qs: [u8; 32],
    /// Upper bits of the indices, scale and shift of 32 values.
    pub qh: [[u8; 2]; 8],
}

assert_layout!(BlockIq1S, 256, DType::Iq1S);

impl CodebookBlock for BlockIq1S {
    const DTYPE: DType = DType::Iq1S;
    const UNIT: f32 = 0.125;

    fn d(&self) -> F16Le {
        self.d
    }

    fn set_d(&mut self, d: F16Le) {
        self.d = d;
    }

    fn scales(&self) -> [u8; 16] {
        std::array::from_fn(|i| self.qh[i / 2][1] >> 4 & 7)
    }

    fn values(&self) -> [i8; 256] {
        values(|group| {
            let qh = u16::from_le_bytes(self.qh[group / 4]);
            let high = qh >> (3 * (group % 4)) & 7;
            (usize::from(self.qs[group]) | usize::from(high) << 8, qh >> 15 == 1)
        })
    }

    fn search(values: &[f32; 256], importance: Option<&[f32; 256]>) -> Self {
        let mut block = Self::zeroed();
        let Some(found) = search::<32>(32).run(values, importance) else { return block };
        block.d = found.d;
        for (sub, out) in block.qh.iter_mut().enumerate() {
            let mut qh = u16::from(found.steps[2 * sub]) << 12;
            qh |= u16::from(found.shifts[4 * sub]) << 15;
            for i in 0..4 {
                let [low, high] = found.points[4 * sub + i].to_le_bytes();
                block.qs[4 * sub + i] = low;
                qh |= u16::from(high) << (3 * i);
            }
            *out = qh.to_le_bytes();
        }
        block
    }
}

/// A block of [`DType::Iq1M`]: ternary points, shifted by an eighth per group.
///
/// ```text
/// byte  0                 32                               48                                56
///       | index: low byte | nibbles, one per group         | 4 u16, one per 64 values        |
///       | of 32 groups    | bits 0-2: index bits 8-10      | bits 0-2, 3-5, 6-8, 9-11: scale |
///                         | bit 3: shift is -1/8           | bits 12-15: part of d           |
/// ```
///
/// The parts of `d` are in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIq1M {
    /// The low byte of the index of each group of 8 values.
    pub qs: [u8; 32],
    /// Upper bits of the index and shift of each group.
    pub qh: [u8; 16],
    /// Four scales and four bits of `d` per 64 values.
    pub scales: [[u8; 2]; 4],
}

assert_layout!(BlockIq1M, 256, DType::Iq1M);

impl CodebookBlock for BlockIq1M {
    const DTYPE: DType = DType::Iq1M;
    const UNIT: f32 = 0.125;

    fn d(&self) -> F16Le {
        let [a, b, c, d] = self.scales.map(|[_, high]| high >> 4);
        F16Le::from_le_bytes([a | b << 4, c | d << 4])
    }

    fn set_d(&mut self, d: F16Le) {
        let [low, high] = d.to_le_bytes();
        let parts = [low & 15, low >> 4, high & 15, high >> 4];
        for ([_, byte], part) in self.scales.iter_mut().zip(parts) {
            *byte = *byte & 15 | part << 4;
        }
    }

    fn scales(&self) -> [u8; 16] {
        std::array::from_fn(|i| (u16::from_le_bytes(self.scales[i / 4]) >> (3 * (i % 4)) & 7) as u8)
    }

    fn values(&self) -> [i8; 256] {
        values(|group| {
            let high = self.qh[group / 2] >> (4 * (group % 2)) & 15;
            (usize::from(self.qs[group]) | usize::from(high & 7) << 8, high >> 3 == 1)
        })
    }

    fn search(values: &[f32; 256], importance: Option<&[f32; 256]>) -> Self {
        let mut block = Self::zeroed();
        let Some(found) = search::<16>(8).run(values, importance) else { return block };
        for (i, out) in block.scales.iter_mut().enumerate() {
            let steps = found.steps[4 * i..][..4].iter().rev();
            *out = steps.fold(0, |bits, step| bits << 3 | u16::from(*step)).to_le_bytes();
        }
        block.set_d(found.d);
        for group in 0..32 {
            let [low, high] = found.points[group].to_le_bytes();
            block.qs[group] = low;
            block.qh[group / 2] |= (high | found.shifts[group] << 3) << (4 * (group % 2));
        }
        block
    }
}

/// The values in eighths. `group` returns the index of the point of a group, and whether its shift
/// is negative.
fn values(group: impl Fn(usize) -> (usize, bool)) -> [i8; 256] {
    let mut values = [0; 256];
    for (index, out) in values.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let (point, shift_is_negative) = group(index);
        let shift = if shift_is_negative { -1 } else { 1 };
        let point = IQ1[point];
        *out = std::array::from_fn(|i| 8 * ((point >> (2 * i) & 3) as i8 - 1) + shift);
    }
    values
}

/// Both shifts: up, down.
static BOOK: LazyLock<Book<8>> =
    LazyLock::new(|| Book::new(&IQ1, 2, &[&[-0.875, 0.125, 1.125], &[-1.125, -0.125, 0.875]]));

fn search<const SUB: usize>(shifted: usize) -> Search<8, SUB> {
    Search { book: &BOOK, signs: Signs::InPoints, most_steps: 7, shifted, stretch: (0.9, 3.2) }
}
