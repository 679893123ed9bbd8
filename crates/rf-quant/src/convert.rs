//! Conversion of whole rows, by format.

use crate::{
    Block, DType, Error, float,
    k_quants::{BlockQ2K, BlockQ3K, BlockQ4K, BlockQ5K, BlockQ6K},
    legacy::{BlockQ4_0, BlockQ4_1, BlockQ5_0, BlockQ5_1, BlockQ8_0},
    mx::{BlockMxfp4, BlockMxfp6E2M3, BlockMxfp6E3M2},
};

/// Expands blocks to floats.
///
/// Shapes: `bytes` [`dtype.row_bytes(n)`], `out` \[n\], `n` a multiple of the block. Every byte
/// pattern is valid: scales that are infinite or NaN give infinite or NaN values.
///
/// # Errors
///
/// [`Error::PartialBlock`] and [`Error::ByteLength`] if the lengths do not fit; `out` is then
/// untouched.
///
/// [`dtype.row_bytes(n)`]: DType::row_bytes
pub fn dequantize(dtype: DType, bytes: &[u8], out: &mut [f32]) -> Result<(), Error> {
    check_lengths(dtype, out.len(), bytes.len())?;
    match dtype {
        DType::F32 => float::f32_to_f32(bytes, out),
        DType::F16 => float::f16_to_f32(bytes, out),
        DType::Bf16 => float::bf16_to_f32(bytes, out),
        DType::Q4_0 => expand::<BlockQ4_0, 32>(bytes, out),
        DType::Q4_1 => expand::<BlockQ4_1, 32>(bytes, out),
        DType::Q5_0 => expand::<BlockQ5_0, 32>(bytes, out),
        DType::Q5_1 => expand::<BlockQ5_1, 32>(bytes, out),
        DType::Q8_0 => expand::<BlockQ8_0, 32>(bytes, out),
        DType::Q2K => expand::<BlockQ2K, 256>(bytes, out),
        DType::Q3K => expand::<BlockQ3K, 256>(bytes, out),
        DType::Q4K => expand::<BlockQ4K, 256>(bytes, out),
        DType::Q5K => expand::<BlockQ5K, 256>(bytes, out),
        DType::Q6K => expand::<BlockQ6K, 256>(bytes, out),
        DType::Mxfp4 => expand::<BlockMxfp4, 32>(bytes, out),
        DType::Mxfp6E2M3 => expand::<BlockMxfp6E2M3, 32>(bytes, out),
        DType::Mxfp6E3M2 => expand::<BlockMxfp6E3M2, 32>(bytes, out),
    }
    Ok(())
}

/// Compresses floats to blocks.
///
/// Shapes: `values` \[n\], `out` [`dtype.row_bytes(n)`], `n` a multiple of the block. Blocks do not
/// depend on each other, so callers may split rows at block boundaries and work in parallel.
///
/// F32, F16 and BF16 take every value, NaN and infinities included. The block formats have no code
/// for those and refuse them. Finite values whose block scale would overflow f16 are saturated.
///
/// # Errors
///
/// [`Error::PartialBlock`] and [`Error::ByteLength`] if the lengths do not fit, with `out`
/// untouched; [`Error::NonFinite`] for a NaN or an infinity in a block format, with the blocks
/// before it written.
///
/// [`dtype.row_bytes(n)`]: DType::row_bytes
pub fn quantize(dtype: DType, values: &[f32], out: &mut [u8]) -> Result<(), Error> {
    check_lengths(dtype, values.len(), out.len())?;
    match dtype {
        DType::F32 => float::f32_from_f32(values, out),
        DType::F16 => float::f16_from_f32(values, out),
        DType::Bf16 => float::bf16_from_f32(values, out),
        DType::Q4_0 => compress::<BlockQ4_0, 32>(values, out)?,
        DType::Q4_1 => compress::<BlockQ4_1, 32>(values, out)?,
        DType::Q5_0 => compress::<BlockQ5_0, 32>(values, out)?,
        DType::Q5_1 => compress::<BlockQ5_1, 32>(values, out)?,
        DType::Q8_0 => compress::<BlockQ8_0, 32>(values, out)?,
        DType::Q2K => compress::<BlockQ2K, 256>(values, out)?,
        DType::Q3K => compress::<BlockQ3K, 256>(values, out)?,
        DType::Q4K => compress::<BlockQ4K, 256>(values, out)?,
        DType::Q5K => compress::<BlockQ5K, 256>(values, out)?,
        DType::Q6K => compress::<BlockQ6K, 256>(values, out)?,
        DType::Mxfp4 => compress::<BlockMxfp4, 32>(values, out)?,
        DType::Mxfp6E2M3 => compress::<BlockMxfp6E2M3, 32>(values, out)?,
        DType::Mxfp6E3M2 => compress::<BlockMxfp6E3M2, 32>(values, out)?,
    }
    Ok(())
}

/// [`quantize`] into a new buffer of the right size.
///
/// # Errors
///
/// As [`quantize`].
pub fn quantize_to_vec(dtype: DType, values: &[f32]) -> Result<Vec<u8>, Error> {
    let bytes =
        dtype.row_bytes(values.len()).ok_or(Error::PartialBlock { dtype, values: values.len() })?;
    let mut out = vec![0; bytes];
    quantize(dtype, values, &mut out)?;
    Ok(out)
}

fn check_lengths(dtype: DType, values: usize, bytes: usize) -> Result<(), Error> {
    let expected = dtype.row_bytes(values).ok_or(Error::PartialBlock { dtype, values })?;
    if bytes != expected {
        return Err(Error::ByteLength { dtype, values, expected, actual: bytes });
    }
    Ok(())
}

/// Lengths are checked by the caller, so the casts to blocks cannot fail: alignment is 1.
fn expand<B: Block<N>, const N: usize>(bytes: &[u8], out: &mut [f32]) {
    let blocks: &[B] = bytemuck::cast_slice(bytes);
    for (block, out) in blocks.iter().zip(out.as_chunks_mut::<N>().0) {
        block.dequantize(out);
    }
}

fn compress<B: Block<N>, const N: usize>(values: &[f32], out: &mut [u8]) -> Result<(), Error> {
    let blocks: &mut [B] = bytemuck::cast_slice_mut(out);
    for (index, (values, block)) in values.as_chunks::<N>().0.iter().zip(blocks).enumerate() {
        // A sum of finiteness flags vectorises; looking for the culprit is for the rare failure.
        if values.iter().filter(|x| !x.is_finite()).count() > 0 {
            let within = values.iter().position(|x| !x.is_finite()).unwrap_or(0);
            let (index, nan) = (index * N + within, values[within].is_nan());
            return Err(Error::NonFinite { dtype: B::DTYPE, index, nan });
        }
        *block = B::quantize(values);
    }
    Ok(())
}
