//! Decoding of sound files: untrusted bytes, within limits on length.

use std::panic::{AssertUnwindSafe, catch_unwind};

use nanomp3::SliceReader;

use super::decoded::{Decoded, SoundLimits, most_samples, push_mono};
use super::resample::resample;
use super::{RATE, Sound, wav};
use crate::error::SoundError;

/// The decoder of a format.
type Decode = fn(&[u8], &SoundLimits) -> Result<Decoded, SoundError>;

/// The first bytes of formats that are known, but not supported.
const UNSUPPORTED: [(&[u8], &str); 4] =
    [(b"fLaC", "FLAC"), (b"OggS", "Ogg"), (b"\x1a\x45\xdf\xa3", "WebM"), (b"FORM", "AIFF")];

/// Decodes a WAV file (PCM of 8, 16, 24 or 32 bits, or floats) or an MP3 file to mono samples at
/// 16 kHz. The format follows from the first bytes. Channels are averaged.
///
/// # Errors
///
/// If the bytes are no such file, it is damaged or incomplete, has no samples, or exceeds a limit.
pub fn decode_sound(bytes: &[u8], limits: &SoundLimits) -> Result<Sound, SoundError> {
    if bytes.len() > limits.file_bytes {
        let max_bytes = limits.file_bytes;
        return Err(SoundError::FileSize { bytes: bytes.len(), max_bytes });
    }
    let (format, decode): (_, Decode) =
        if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WAVE") {
            (wav::FORMAT, wav::decode)
        } else if is_mp3(bytes) {
            ("MP3", mp3)
        } else {
            return Err(unsupported(bytes));
        };
    let damaged = |reason: &str| SoundError::Decode { format, reason: reason.to_owned() };
    // A panic in a decoder is an error: their files are untrusted.
    let decoded = catch_unwind(AssertUnwindSafe(|| decode(bytes, limits)))
        .unwrap_or_else(|_| Err(damaged("its decoder failed")))?;
    if decoded.samples.is_empty() {
        return Err(SoundError::Empty { format });
    }
    let samples = resample(decoded.samples, decoded.rate as usize, RATE);
    Sound::new(samples).ok_or_else(|| damaged("a sample is not a finite number"))
}

fn unsupported(bytes: &[u8]) -> SoundError {
    let known = UNSUPPORTED.iter().find(|(start, _)| bytes.starts_with(start));
    if let Some((_, format)) = known {
        return SoundError::UnsupportedFormat { format };
    }
    if bytes.get(4..8) == Some(b"ftyp") {
        return SoundError::UnsupportedFormat { format: "MP4" };
    }
    SoundError::UnknownFormat
}

/// True for a tag of an MP3 file, or the first bits of a frame.
fn is_mp3(bytes: &[u8]) -> bool {
    bytes.starts_with(b"ID3") || matches!(bytes, [0xFF, second, ..] if second & 0xE0 == 0xE0)
}

fn mp3(bytes: &[u8], limits: &SoundLimits) -> Result<Decoded, SoundError> {
    let damaged = |reason: String| SoundError::Decode { format: "MP3", reason };
    let mut reader = SliceReader::<f32>::new(bytes);
    let Some(channels) = reader.channels() else {
        return Err(damaged("it has no frame of sound".to_owned()));
    };
    let (rate, channels) = (reader.sample_rate(), usize::from(channels.num()));
    let most = most_samples(rate, limits);
    let mut samples = Vec::new();
    while let Some(frame) = reader.read_frame().map_err(|error| damaged(error.to_string()))? {
        push_mono(&mut samples, frame, channels);
        if samples.len() > most {
            return Err(SoundError::TooLong { max_seconds: limits.seconds });
        }
    }
    Ok(Decoded { rate, samples })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_follows_from_the_first_bytes() {
        let limits = SoundLimits::default();
        let name = |bytes: &[u8]| decode_sound(bytes, &limits).unwrap_err().to_string();
        assert!(name(b"fLaC....").starts_with("FLAC is not supported"));
        assert!(name(b"\0\0\0\x18ftypM4A ").starts_with("MP4 is not supported"));
        assert!(name(b"hello, world").starts_with("the data is no WAV or MP3"));
        assert!(name(b"").starts_with("the data is no WAV or MP3"));
        assert!(name(&[0xFF; 64]).starts_with("the MP3 file cannot be decoded"));
        let short = SoundLimits { file_bytes: 4, ..limits };
        let error = decode_sound(b"fLaC....", &short).unwrap_err();
        assert!(matches!(error, SoundError::FileSize { bytes: 8, max_bytes: 4 }));
    }
}
