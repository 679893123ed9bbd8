//! Samples of a file as its decoder gives them, and the limits on them.

/// The limits on a sound file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SoundLimits {
    /// Bytes of the file.
    pub file_bytes: usize,
    /// Length in seconds, after which decoding ends with an error.
    pub seconds: u32,
}

impl Default for SoundLimits {
    /// 64 MB, 30 minutes.
    fn default() -> Self {
        Self { file_bytes: 64_000_000, seconds: 30 * 60 }
    }
}

impl SoundLimits {
    /// Sets [`file_bytes`](Self::file_bytes).
    #[must_use]
    pub fn with_file_bytes(mut self, file_bytes: usize) -> Self {
        self.file_bytes = file_bytes;
        self
    }

    /// Sets [`seconds`](Self::seconds).
    #[must_use]
    pub fn with_seconds(mut self, seconds: u32) -> Self {
        self.seconds = seconds;
        self
    }
}

/// Mono samples at the rate of a file.
#[derive(Debug)]
pub(super) struct Decoded {
    pub(super) rate: u32,
    pub(super) samples: Vec<f32>,
}

/// The most samples that a sound of a rate may have.
pub(super) fn most_samples(rate: u32, limits: &SoundLimits) -> usize {
    rate as usize * limits.seconds as usize
}

/// Appends the mean of the channels of each sample.
pub(super) fn push_mono(samples: &mut Vec<f32>, interleaved: &[f32], channels: usize) {
    let frames = interleaved.chunks_exact(channels);
    samples.extend(frames.map(|frame| frame.iter().sum::<f32>() / channels as f32));
}
