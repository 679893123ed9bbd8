//! The [`Block`] trait and unaligned little-endian fields.

use bytemuck::{Pod, Zeroable};
use half::f16;

use crate::DType;

/// A quantisation block of `N` values.
///
/// Implementors are plain bytes with alignment 1, so any byte slice of the right length can be
/// viewed as blocks (`bytemuck::cast_slice`) at any address.
pub trait Block<const N: usize>: Pod {
    /// The format of these blocks.
    const DTYPE: DType;

    /// Returns true if every value of the block is finite, which its scales decide.
    fn is_finite(&self) -> bool;

    /// Writes the values of the block.
    fn dequantize(&self, out: &mut [f32; N]);

    /// The nearest block to `values` that the search of the format finds.
    ///
    /// `importance` weights the error of each value in the search of the scales, as
    /// [`crate::quantize_weighted`] says. `values` must be finite, which [`crate::quantize`]
    /// checks. Other values give an unspecified block and no panic.
    fn quantize(values: &[f32; N], importance: Option<&[f32; N]>) -> Self;
}

/// Checks the size and alignment of a block struct at compile time.
macro_rules! assert_layout {
    ($block:ty, $elements:literal) => {
        assert_layout!($block, $elements, <$block as $crate::Block<$elements>>::DTYPE);
    };
    ($block:ty, $elements:literal, $dtype:expr) => {
        const _: () = {
            let dtype = $dtype;
            assert!(size_of::<$block>() == dtype.block_bytes());
            assert!(align_of::<$block>() == 1);
            assert!(dtype.block_elements() == $elements);
        };
    };
}
pub(crate) use assert_layout;

/// An IEEE 754 binary16, little-endian, at any address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct F16Le([u8; 2]);

impl F16Le {
    /// The nearest binary16, ties to even. Larger finite values become the largest binary16,
    /// because an infinite block scale would turn the whole block into NaN.
    pub fn saturating_from_f32(value: f32) -> Self {
        const MAX: f32 = 65504.0;
        Self(f16::from_f32(value.clamp(-MAX, MAX)).to_le_bytes())
    }

    /// The binary16 with these bytes, in little-endian order.
    pub const fn from_le_bytes(bytes: [u8; 2]) -> Self {
        Self(bytes)
    }

    /// The bytes in little-endian order.
    pub const fn to_le_bytes(self) -> [u8; 2] {
        self.0
    }

    /// Returns true if the value is neither NaN nor infinite.
    pub const fn is_finite(self) -> bool {
        const EXPONENT: u16 = 0x7c00;
        u16::from_le_bytes(self.0) & EXPONENT != EXPONENT
    }

    /// The value, exactly.
    pub fn to_f32(self) -> f32 {
        f16::from_le_bytes(self.0).to_f32()
    }
}
