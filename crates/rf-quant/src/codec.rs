//! The [`Codec`] of a format.

use std::marker::PhantomData;

use crate::{Block, Error};

/// Conversion between the bytes of a format and floats. The caller has checked the lengths.
pub(crate) trait Codec {
    fn dequantize(bytes: &[u8], out: &mut [f32]);
    fn quantize(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) -> Result<(), Error>;
    /// The index of the first block that is not finite.
    fn first_non_finite(bytes: &[u8]) -> Option<usize>;
}

/// The codec of a block format. Blocks have alignment 1, so casts of whole blocks cannot fail.
pub(crate) struct Blocks<B, const N: usize>(PhantomData<B>);

impl<B: Block<N>, const N: usize> Codec for Blocks<B, N> {
    fn dequantize(bytes: &[u8], out: &mut [f32]) {
        let blocks: &[B] = bytemuck::cast_slice(bytes);
        for (block, out) in blocks.iter().zip(out.as_chunks_mut::<N>().0) {
            block.dequantize(out);
        }
    }

    fn quantize(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) -> Result<(), Error> {
        let blocks: &mut [B] = bytemuck::cast_slice_mut(out);
        let importance = importance.map(|importance| importance.as_chunks::<N>().0);
        for (index, (values, block)) in values.as_chunks::<N>().0.iter().zip(blocks).enumerate() {
            // Counting flags vectorises; only a failure searches for the position.
            if values.iter().filter(|x| !x.is_finite()).count() > 0 {
                let within = values.iter().position(|x| !x.is_finite()).unwrap_or(0);
                let (index, nan) = (index * N + within, values[within].is_nan());
                return Err(Error::NonFinite { dtype: B::DTYPE, index, nan });
            }
            *block = B::quantize(values, importance.map(|importance| &importance[index]));
        }
        Ok(())
    }

    fn first_non_finite(bytes: &[u8]) -> Option<usize> {
        let blocks: &[B] = bytemuck::cast_slice(bytes);
        blocks.iter().position(|block| !block.is_finite())
    }
}
