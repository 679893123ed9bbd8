//! The microscaling formats of OCP MX 1.0, 32 small floats with one power-of-two scale, and NVFP4.
//!
//! | block | element | magnitudes | largest |
//! |---|---|---|---|
//! | [`BlockMxfp4`] | E2M1 | 0, 0.5, 1, 1.5, 2, 3, 4, 6 | 6 |
//! | [`BlockMxfp6E2M3`] | E2M3 | steps of 0.125 below 2, then 3 bits of mantissa | 7.5 |
//! | [`BlockMxfp6E3M2`] | E3M2 | steps of 0.0625 below 0.5, then 2 bits of mantissa | 28 |
//!
//! The specification defines the values, not the bytes. MXFP4 has the layout of ggml. The layout of
//! MXFP6 is our own, because ggml has none: the scale byte, then 32 elements of 6 bits, least
//! significant bit first.
//!
//! [`BlockNvfp4`] has the elements of MXFP4 and, per 16 of them, a scale with a mantissa of three
//! bits.

mod e8m0;
mod mxfp4;
mod mxfp6;
mod nvfp4;

use crate::Block;

pub use mxfp4::BlockMxfp4;
pub use mxfp6::{BlockMxfp6E2M3, BlockMxfp6E3M2};
pub use nvfp4::BlockNvfp4;

/// Returns true if every value of a block with the scale `e` is finite.
fn is_finite(block: &impl Block<32>, e: u8) -> bool {
    // Elements are less than 2⁵.
    const LARGEST: u8 = 127 + 128 - 5;
    e <= LARGEST || values_are_finite(block)
}

#[cold]
fn values_are_finite(block: &impl Block<32>) -> bool {
    let mut values = [0.0; 32];
    block.dequantize(&mut values);
    values.iter().all(|value| value.is_finite())
}
