//! The plain float formats: F32, F16, BF16.
//!
//! They keep NaN and infinities. Conversion follows IEEE 754: nearest, ties to even, overflow to
//! infinity.

use std::ops::BitAnd;

use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use half::{bf16, f16};

use crate::Error;
use crate::codec::Codec;

/// Values per conversion through an aligned buffer.
const CHUNK: usize = 64;

/// The codec of [`DType::F32`](crate::DType::F32): little-endian binary32.
pub(crate) struct F32;

impl Codec for F32 {
    fn dequantize(bytes: &[u8], out: &mut [f32]) {
        for (bytes, out) in bytes.as_chunks::<4>().0.iter().zip(out) {
            *out = f32::from_le_bytes(*bytes);
        }
    }

    fn quantize(values: &[f32], _: Option<&[f32]>, out: &mut [u8]) -> Result<(), Error> {
        for (value, out) in values.iter().zip(out.as_chunks_mut::<4>().0) {
            *out = value.to_le_bytes();
        }
        Ok(())
    }

    fn first_non_finite(bytes: &[u8]) -> Option<usize> {
        first_of(bytes.as_chunks().0, u32::from_le_bytes, 0x7f80_0000)
    }
}

/// The codec of [`DType::F16`](crate::DType::F16): little-endian binary16.
pub(crate) struct F16;

impl Codec for F16 {
    fn dequantize(bytes: &[u8], out: &mut [f32]) {
        let mut bits = [0; CHUNK];
        for (bytes, out) in bytes.chunks(2 * CHUNK).zip(out.chunks_mut(CHUNK)) {
            for (bits, bytes) in bits.iter_mut().zip(bytes.as_chunks::<2>().0) {
                *bits = u16::from_le_bytes(*bytes);
            }
            bits[..out.len()].reinterpret_cast::<f16>().convert_to_f32_slice(out);
        }
    }

    fn quantize(values: &[f32], _: Option<&[f32]>, out: &mut [u8]) -> Result<(), Error> {
        let mut halves = [f16::ZERO; CHUNK];
        for (values, out) in values.chunks(CHUNK).zip(out.chunks_mut(2 * CHUNK)) {
            halves[..values.len()].convert_from_f32_slice(values);
            for (half, out) in halves.iter().zip(out.as_chunks_mut::<2>().0) {
                *out = half.to_le_bytes();
            }
        }
        Ok(())
    }

    fn first_non_finite(bytes: &[u8]) -> Option<usize> {
        first_of(bytes.as_chunks().0, u16::from_le_bytes, 0x7c00)
    }
}

/// The codec of [`DType::Bf16`](crate::DType::Bf16): little-endian bfloat16.
pub(crate) struct Bf16;

impl Codec for Bf16 {
    fn dequantize(bytes: &[u8], out: &mut [f32]) {
        for (bytes, out) in bytes.as_chunks::<2>().0.iter().zip(out) {
            *out = f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16);
        }
    }

    fn quantize(values: &[f32], _: Option<&[f32]>, out: &mut [u8]) -> Result<(), Error> {
        for (value, out) in values.iter().zip(out.as_chunks_mut::<2>().0) {
            *out = bf16::from_f32(*value).to_le_bytes();
        }
        Ok(())
    }

    fn first_non_finite(bytes: &[u8]) -> Option<usize> {
        first_of(bytes.as_chunks().0, u16::from_le_bytes, 0x7f80)
    }
}

/// The index of the first value that is not finite: all bits of its `exponent` are set.
fn first_of<const N: usize, T>(
    values: &[[u8; N]],
    bits: impl Fn([u8; N]) -> T,
    exponent: T,
) -> Option<usize>
where
    T: Copy + PartialEq + BitAnd<Output = T>,
{
    let is_bad = |value: &[u8; N]| bits(*value) & exponent == exponent;
    // A loop without exits vectorises; only a failure searches for the position.
    let any = values.iter().fold(false, |any, value| any | is_bad(value));
    if any { values.iter().position(is_bad) } else { None }
}
