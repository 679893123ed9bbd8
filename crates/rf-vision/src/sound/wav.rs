//! WAV files. Their length may be missing: a program that writes to a pipe does not know it.

use super::decoded::{Decoded, SoundLimits, most_samples, push_mono};
use crate::error::SoundError;

/// The name of the format in errors.
pub(super) const FORMAT: &str = "WAV";

/// Lengths from here on mean that the length was unknown when the header was written.
const UNKNOWN_LEN: u32 = 0x7FFF_0000;

const MAX_CHANNELS: usize = 32;
/// The largest rate that sound cards have.
const MAX_RATE: u32 = 768_000;

/// The encoding of samples in a file.
#[derive(Clone, Copy, Debug)]
struct Format {
    is_float: bool,
    channels: usize,
    rate: u32,
    bits: u16,
}

/// Mono samples of a file that begins with `RIFF....WAVE`.
pub(super) fn decode(bytes: &[u8], limits: &SoundLimits) -> Result<Decoded, SoundError> {
    let mut format = None;
    let mut rest = bytes.get(12..).unwrap_or_default();
    while let Some((header, after)) = rest.split_at_checked(8) {
        let (id, len) = header.split_at(4);
        let len = u32_at(len, 0).unwrap_or_default();
        if id == b"data" {
            let format = format.ok_or_else(|| damaged("its format is missing"))?;
            let data = if len >= UNKNOWN_LEN || len == 0 {
                after
            } else {
                after.get(..len as usize).ok_or_else(|| damaged("it is incomplete"))?
            };
            return samples(format, data, limits);
        }
        let body = after.get(..len as usize).ok_or_else(|| damaged("it is incomplete"))?;
        if id == b"fmt " {
            format = Some(read_format(body)?);
        }
        // Chunks begin at even offsets.
        rest = after.get(len as usize + len as usize % 2..).unwrap_or_default();
    }
    Err(damaged("it has no samples"))
}

fn read_format(body: &[u8]) -> Result<Format, SoundError> {
    const PCM: u16 = 1;
    const FLOAT: u16 = 3;
    const EXTENSIBLE: u16 = 0xFFFE;
    let fields = || {
        let tag = u16_at(body, 0)?;
        // The tag of an extensible format is at the start of its identifier.
        let tag = if tag == EXTENSIBLE { u16_at(body, 24)? } else { tag };
        Some((tag, u16_at(body, 2)?, u32_at(body, 4)?, u16_at(body, 14)?))
    };
    let (tag, channels, rate, bits) =
        fields().ok_or_else(|| damaged("its format is incomplete"))?;
    let channels = usize::from(channels);
    if !(1..=MAX_CHANNELS).contains(&channels) || !(1..=MAX_RATE).contains(&rate) {
        let reason = format!("{channels} channels at {rate} Hz are not supported");
        return Err(SoundError::Decode { format: FORMAT, reason });
    }
    let is_float = match (tag, bits) {
        (PCM, 8 | 16 | 24 | 32) => false,
        (FLOAT, 32 | 64) => true,
        _ => {
            let reason = format!(
                "its encoding {tag} with {bits} bits is not supported: convert it to 16-bit PCM"
            );
            return Err(SoundError::Decode { format: FORMAT, reason });
        }
    };
    Ok(Format { is_float, channels, rate, bits })
}

fn samples(format: Format, data: &[u8], limits: &SoundLimits) -> Result<Decoded, SoundError> {
    let Format { is_float, channels, rate, bits } = format;
    let bytes = usize::from(bits / 8);
    let frames = data.len() / (bytes * channels);
    if frames > most_samples(rate, limits) {
        return Err(SoundError::TooLong { max_seconds: limits.seconds });
    }
    let mut samples = Vec::with_capacity(frames);
    let mut frame = Vec::with_capacity(channels);
    for stored in data.chunks_exact(bytes * channels) {
        frame.clear();
        frame.extend(stored.chunks_exact(bytes).map(|value| sample(is_float, value)));
        push_mono(&mut samples, &frame, channels);
    }
    Ok(Decoded { rate, samples })
}

/// The value of a stored sample.
fn sample(is_float: bool, bytes: &[u8]) -> f32 {
    match (is_float, bytes) {
        (false, &[a]) => (f32::from(a) - 128.0) / 128.0,
        (false, &[a, b]) => f32::from(i16::from_le_bytes([a, b])) / 32768.0,
        (false, &[a, b, c]) => (i32::from_le_bytes([0, a, b, c]) >> 8) as f32 / 8_388_608.0,
        (false, &[a, b, c, d]) => i32::from_le_bytes([a, b, c, d]) as f32 / 2_147_483_648.0,
        (true, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]),
        (true, &[a, b, c, d, e, f, g, h]) => f64::from_le_bytes([a, b, c, d, e, f, g, h]) as f32,
        _ => unreachable!("a format that was read"),
    }
}

fn damaged(reason: &str) -> SoundError {
    SoundError::Decode { format: FORMAT, reason: reason.to_owned() }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of two channels at 16 kHz.
    fn file(tag: u16, bits: u16, data: &[u8], data_len: u32) -> Vec<u8> {
        let mut bytes = b"RIFF\0\0\0\0WAVE".to_vec();
        // A chunk of odd length before the format.
        bytes.extend_from_slice(b"LIST\x03\0\0\0abc\0");
        bytes.extend_from_slice(b"fmt \x10\0\0\0");
        bytes.extend(tag.to_le_bytes().into_iter().chain([2, 0]));
        bytes.extend_from_slice(&16_000_u32.to_le_bytes());
        bytes.extend_from_slice(&[0; 6]);
        bytes.extend_from_slice(&bits.to_le_bytes());
        bytes.extend_from_slice(b"data");
        bytes.extend_from_slice(&data_len.to_le_bytes());
        bytes.extend_from_slice(data);
        bytes
    }

    fn decoded(tag: u16, bits: u16, data: &[u8]) -> Vec<f32> {
        let bytes = file(tag, bits, data, u32::try_from(data.len()).unwrap());
        decode(&bytes, &SoundLimits::default()).unwrap().samples
    }

    #[test]
    fn every_width_has_the_same_range() {
        assert_eq!(decoded(1, 8, &[0, 0, 192, 192]), [-1.0, 0.5]);
        assert_eq!(decoded(1, 16, &[0, 0x80, 0, 0x80, 0, 0x40, 0, 0x40]), [-1.0, 0.5]);
        assert_eq!(decoded(1, 24, &[0, 0, 0x80, 0, 0, 0x80]), [-1.0]);
        assert_eq!(decoded(1, 32, &[0, 0, 0, 0x80, 0, 0, 0, 0x40]), [-0.25]);
        let floats: Vec<u8> = [0.25_f32, 0.75].into_iter().flat_map(f32::to_le_bytes).collect();
        assert_eq!(decoded(3, 32, &floats), [0.5]);
        let floats: Vec<u8> = [0.25_f64, 0.75].into_iter().flat_map(f64::to_le_bytes).collect();
        assert_eq!(decoded(3, 64, &floats), [0.5]);
    }

    #[test]
    fn a_file_from_a_pipe_has_no_length() {
        for len in [0, u32::MAX] {
            let bytes = file(1, 8, &[192, 192], len);
            let decoded = decode(&bytes, &SoundLimits::default()).unwrap();
            assert_eq!((decoded.rate, &*decoded.samples), (16_000, &[0.5][..]));
        }
    }

    #[test]
    fn damaged_files_are_refused() {
        let whole = file(1, 16, &[0; 8], 8);
        let limits = SoundLimits::default();
        for end in 12..whole.len() {
            let result = decode(&whole[..end], &limits);
            assert!(matches!(result, Err(SoundError::Decode { .. })), "{end}: {result:?}");
        }
        for (tag, bits) in [(1, 12), (3, 16), (6, 8), (0xFFFE, 16)] {
            let result = decode(&file(tag, bits, &[0; 8], 8), &limits);
            assert!(matches!(result, Err(SoundError::Decode { .. })), "{tag}: {result:?}");
        }
        let none = SoundLimits { seconds: 0, ..limits };
        assert!(matches!(decode(&whole, &none), Err(SoundError::TooLong { max_seconds: 0 })));
    }
}
