//! Conversion of whole rows.

use crate::codec::{Blocks, Codec};
use crate::{DType, Error, float, for_each_format};

/// Expands blocks to floats.
///
/// Shapes: `bytes` [`dtype.row_bytes(n)`], `out` \[n\], `n` a multiple of the block. Rows follow
/// each other without gaps and are whole blocks, so a whole tensor is converted like one row. Every
/// byte pattern is valid: infinite and NaN scales give infinite and NaN values.
///
/// # Errors
///
/// [`Error::PartialBlock`] and [`Error::ByteLength`] if the lengths do not match. `out` is then
/// unchanged.
///
/// [`dtype.row_bytes(n)`]: DType::row_bytes
pub fn dequantize(dtype: DType, bytes: &[u8], out: &mut [f32]) -> Result<(), Error> {
    check_lengths(dtype, out.len(), bytes.len())?;
    for_each_format!(with_codec, dtype, C => C::dequantize(bytes, out));
    Ok(())
}

/// The index of the first block with a value that is NaN or infinite.
///
/// Shapes: `bytes` whole blocks. It reads the scales, not the values of block formats.
///
/// # Errors
///
/// [`Error::ByteLength`] if `bytes` is no whole number of blocks.
pub fn first_non_finite_block(dtype: DType, bytes: &[u8]) -> Result<Option<usize>, Error> {
    check_lengths(dtype, bytes.len() / dtype.block_bytes() * dtype.block_elements(), bytes.len())?;
    Ok(for_each_format!(with_codec, dtype, C => C::first_non_finite(bytes)))
}

/// Compresses floats to blocks.
///
/// Shapes: `values` \[n\], `out` [`dtype.row_bytes(n)`], `n` a multiple of the block. Blocks are
/// independent, so callers may split rows at block boundaries and work in parallel.
///
/// F32, F16 and BF16 store every value, including NaN and infinities. The block formats refuse
/// those. Finite values whose block scale would overflow f16 are saturated.
///
/// # Errors
///
/// [`Error::PartialBlock`] and [`Error::ByteLength`] if the lengths do not match. `out` is then
/// unchanged. [`Error::NonFinite`] for a NaN or an infinity in a block format, with the blocks
/// before it written.
///
/// [`dtype.row_bytes(n)`]: DType::row_bytes
pub fn quantize(dtype: DType, values: &[f32], out: &mut [u8]) -> Result<(), Error> {
    check_lengths(dtype, values.len(), out.len())?;
    for_each_format!(with_codec, dtype, C => C::quantize(values, None, out))
}

/// [`quantize`] with the importance of each value: how much its error counts, such as the mean
/// square of the activations that multiply its column.
///
/// Shapes: as [`quantize`], `importance` \[n\]. Only ratios within a block matter. Values that are
/// negative or not finite count as 0. Formats without a search (floats, `Q8_0`, microscaling,
/// ternary, `Q1_0`, `Q2_0`) ignore the importance.
///
/// # Errors
///
/// The errors of [`quantize`], and [`Error::ImportanceLength`] if the lengths do not match.
pub fn quantize_weighted(
    dtype: DType,
    values: &[f32],
    importance: &[f32],
    out: &mut [u8],
) -> Result<(), Error> {
    check_lengths(dtype, values.len(), out.len())?;
    if importance.len() != values.len() {
        let (values, actual) = (values.len(), importance.len());
        return Err(Error::ImportanceLength { values, actual });
    }
    for_each_format!(with_codec, dtype, C => C::quantize(values, Some(importance), out))
}

/// [`quantize`] into a new buffer of the right size.
///
/// # Errors
///
/// The errors of [`quantize`].
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

/// Evaluates an expression with `$codec` as the [`Codec`] of a format.
macro_rules! with_codec {
    ([$dtype:expr, $alias:ident => $body:expr] $({
        $number:literal $variant:ident $name:literal $kernel:literal $family:ident
        $codec:ident $ggml_id:tt $elements:literal $bytes:literal $doc:literal
    })*) => {
        match $dtype {
            $(DType::$variant => {
                type $alias = codec_of!($family $codec $elements);
                $body
            })*
        }
    };
}
use with_codec;

macro_rules! codec_of {
    (Float $codec:ident $elements:literal) => { float::$codec };
    ($family:ident $codec:ident $elements:literal) => { Blocks<crate::$codec, $elements> };
}
use codec_of;
