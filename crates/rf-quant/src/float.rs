//! The plain float formats: F32, F16, BF16.
//!
//! These keep NaN and infinities, and conversion follows IEEE 754 (nearest, ties to even, overflow
//! to infinity).

use half::{
    bf16, f16,
    slice::{HalfBitsSliceExt, HalfFloatSliceExt},
};

/// Values converted at a time where the bytes have to pass through an aligned buffer.
const CHUNK: usize = 64;

/// Reads little-endian binary32. `bytes` holds four times as many bytes as `out` values.
pub(crate) fn f32_to_f32(bytes: &[u8], out: &mut [f32]) {
    for (bytes, out) in bytes.as_chunks::<4>().0.iter().zip(out) {
        *out = f32::from_le_bytes(*bytes);
    }
}

/// Writes little-endian binary32.
pub(crate) fn f32_from_f32(values: &[f32], out: &mut [u8]) {
    for (value, out) in values.iter().zip(out.as_chunks_mut::<4>().0) {
        *out = value.to_le_bytes();
    }
}

/// Reads little-endian binary16, exactly.
pub(crate) fn f16_to_f32(bytes: &[u8], out: &mut [f32]) {
    let mut bits = [0; CHUNK];
    for (bytes, out) in bytes.chunks(2 * CHUNK).zip(out.chunks_mut(CHUNK)) {
        for (bits, bytes) in bits.iter_mut().zip(bytes.as_chunks::<2>().0) {
            *bits = u16::from_le_bytes(*bytes);
        }
        bits[..out.len()].reinterpret_cast::<f16>().convert_to_f32_slice(out);
    }
}

/// Writes the nearest binary16.
pub(crate) fn f16_from_f32(values: &[f32], out: &mut [u8]) {
    let mut halves = [f16::ZERO; CHUNK];
    for (values, out) in values.chunks(CHUNK).zip(out.chunks_mut(2 * CHUNK)) {
        halves[..values.len()].convert_from_f32_slice(values);
        for (half, out) in halves.iter().zip(out.as_chunks_mut::<2>().0) {
            *out = half.to_le_bytes();
        }
    }
}

/// Reads little-endian bfloat16, exactly.
pub(crate) fn bf16_to_f32(bytes: &[u8], out: &mut [f32]) {
    for (bytes, out) in bytes.as_chunks::<2>().0.iter().zip(out) {
        *out = f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16);
    }
}

/// Writes the nearest bfloat16.
pub(crate) fn bf16_from_f32(values: &[f32], out: &mut [u8]) {
    for (value, out) in values.iter().zip(out.as_chunks_mut::<2>().0) {
        *out = bf16::from_f32(*value).to_le_bytes();
    }
}
