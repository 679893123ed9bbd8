//! Sound: decoding, spectrograms, and the audio encoders of projector files.
//!
//! A [`Sound`] has mono samples at 16 kHz. [`decode_sound`] reads one from a file. A
//! [`SoundProjector`] is an opened file: it says how many rows a sound becomes, from the number of
//! its samples alone. A [`SoundEncoder`] has its weights on a backend and computes the rows.
//!
//! A type is a `SoundKind`: its spectrogram (`mel`), the text around its rows, and its network. As
//! for pictures, a network is a few stages of one program: a convolution is a matmul with windows
//! that the host gathers (`conv`).

mod conv;
mod decode;
mod decoded;
mod encoder;
mod encoders;
mod fft;
mod kind;
mod mel;
mod projector;
mod resample;
mod wav;

pub use decode::decode_sound;
pub use decoded::SoundLimits;
pub use encoder::SoundEncoder;
pub use mel::Spectrogram;
pub use projector::SoundProjector;

/// Samples per second of a [`Sound`].
pub(crate) const RATE: usize = 16_000;

/// Mono samples at 16 kHz, from −1 to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Sound {
    samples: Vec<f32>,
}

impl Sound {
    /// A sound of these samples at 16 kHz; `None` if there are none, or one is not a finite number.
    pub fn new(samples: Vec<f32>) -> Option<Self> {
        let is_valid = !samples.is_empty() && samples.iter().all(|sample| sample.is_finite());
        is_valid.then_some(Self { samples })
    }

    /// The samples.
    pub fn samples(&self) -> &[f32] {
        &self.samples
    }

    /// Length in seconds.
    pub fn seconds(&self) -> f64 {
        self.samples.len() as f64 / RATE as f64
    }
}
