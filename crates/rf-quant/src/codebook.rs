//! The IQ formats below four bits: super-blocks of 256 whose values are points of a codebook.
//!
//! Every value is `d UNIT (2 s + 1) v` with the f16 scale `d` of the super-block, a scale `s` per
//! 16 or 32 values, and an integer `v`. Groups of values share an index into a codebook.
//!
//! | block | bits | scales | group | `v` | `UNIT` |
//! |---|---|---|---|---|---|
//! | [`BlockIq1S`] | 1.5625 | 8 of 3 bits | 8 of 2048 points | ±1, ±7, ±9 | 1/8 |
//! | [`BlockIq1M`] | 1.75 | 16 of 3 bits | 8 of 2048 points | ±1, ±7, ±9 | 1/8 |
//! | [`BlockIq2Xxs`] | 2.0625 | 8 of 4 bits | 8 of 256 points | ±8, ±25, ±43 | 1/8 |
//! | [`BlockIq2Xs`] | 2.3125 | 16 of 4 bits | 8 of 512 points | ±8, ±25, ±43 | 1/8 |
//! | [`BlockIq2S`] | 2.5625 | 16 of 4 bits | 8 of 1024 points | ±8, ±25, ±43 | 1/8 |
//! | [`BlockIq3Xxs`] | 3.0625 | 8 of 4 bits | 4 of 256 points | ±4, ±12, …, ±52, ±62 | 1/4 |
//! | [`BlockIq3S`] | 3.4375 | 8 of 4 bits | 4 of 512 points | ±1, ±3, …, ±15 | 1 |
//!
//! `search` chooses the points and the scales, with a `book` for each codebook. A useful
//! quantisation to the formats below three bits needs the importance of the columns.

mod book;
mod grids;
mod iq1;
mod iq2;
mod iq3;
mod points;
mod search;

use crate::{Block, DType, F16Le};

pub use grids::c_grids;
pub use iq1::{BlockIq1M, BlockIq1S};
pub use iq2::{BlockIq2S, BlockIq2Xs, BlockIq2Xxs};
pub use iq3::{BlockIq3S, BlockIq3Xxs};
pub use points::CodebookBlock;

/// Sets the scales of blocks of a codebook format such that the root mean square of each block's
/// values is near `rms`. This makes test weights of arbitrary bytes. Blocks of other formats and
/// a partial last block stay as they are.
pub fn normalize_codebook_blocks(dtype: DType, blocks: &mut [u8], rms: f32) {
    match dtype {
        DType::Iq1S => normalize::<BlockIq1S>(blocks, rms),
        DType::Iq1M => normalize::<BlockIq1M>(blocks, rms),
        DType::Iq2Xxs => normalize::<BlockIq2Xxs>(blocks, rms),
        DType::Iq2Xs => normalize::<BlockIq2Xs>(blocks, rms),
        DType::Iq2S => normalize::<BlockIq2S>(blocks, rms),
        DType::Iq3Xxs => normalize::<BlockIq3Xxs>(blocks, rms),
        DType::Iq3S => normalize::<BlockIq3S>(blocks, rms),
        _ => {}
    }
}

fn normalize<B: CodebookBlock>(blocks: &mut [u8], rms: f32) {
    for bytes in blocks.chunks_exact_mut(size_of::<B>()) {
        let mut block: B = bytemuck::pod_read_unaligned(bytes);
        block.set_d(F16Le::saturating_from_f32(1.0));
        let mut values = [0.0; 256];
        block.dequantize(&mut values);
        let mean = values.iter().map(|x| x * x).sum::<f32>() / 256.0;
        block.set_d(F16Le::saturating_from_f32(rms / mean.sqrt()));
        bytes.copy_from_slice(bytemuck::bytes_of(&block));
    }
}
