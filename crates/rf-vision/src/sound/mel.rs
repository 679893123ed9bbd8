//! Spectrograms on the mel scale, in pieces that an encoder computes at once.

use std::f64::consts::PI;
use std::ops::Range;

use super::fft::Fft;
use super::{RATE, Sound};

/// Samples from one frame to the next.
const HOP: usize = 160;

/// Samples that an encoder gets at once.
const PIECE_SAMPLES: usize = 30 * RATE;

/// A part of a spectrogram.
#[derive(Clone, Debug, PartialEq)]
pub struct Spectrogram {
    /// Values per frame.
    pub bins: usize,
    /// `[frames, bins]`.
    pub values: Vec<f32>,
}

impl Spectrogram {
    /// Number of frames.
    pub fn frames(&self) -> usize {
        self.values.len() / self.bins
    }
}

/// A method of computing spectrograms; each type of projector has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// Whisper's: pieces of 30 seconds, the last one filled up with silence.
    Whisper,
    /// Whisper's for the length of the sound alone: pieces of 8 seconds, the last one filled up
    /// with zeros to whole blocks.
    WhisperBlocks,
    /// Gemma 4's: pieces of 30 seconds, the last one as long as the sound.
    Gemma,
}

/// Frames of a piece of Whisper's.
pub(super) const WHISPER_FRAMES: usize = PIECE_SAMPLES / HOP;

/// Frames of a block and of a piece of [`Method::WhisperBlocks`].
pub(super) const BLOCK_FRAMES: usize = 100;
const BLOCKS_FRAMES: usize = 800;

impl Method {
    /// The frames of each piece of so many samples.
    pub(super) fn frames(self, samples: usize) -> Vec<usize> {
        match self {
            Self::Whisper => vec![WHISPER_FRAMES; samples.div_ceil(PIECE_SAMPLES)],
            Self::WhisperBlocks => {
                let starts = (0..block_frames(samples)).step_by(BLOCKS_FRAMES);
                let rest = starts.map(|start| block_frames(samples) - start);
                rest.map(|rest| rest.min(BLOCKS_FRAMES).next_multiple_of(BLOCK_FRAMES)).collect()
            }
            Self::Gemma => {
                let starts = (0..samples).step_by(PIECE_SAMPLES);
                starts.map(|start| gemma_frames((samples - start).min(PIECE_SAMPLES))).collect()
            }
        }
    }

    /// The pieces of a sound.
    pub(super) fn pieces(self, sound: &Sound, bins: usize) -> Vec<Spectrogram> {
        let samples = sound.samples();
        let pieces = self.frames(samples.len());
        match self {
            Self::Whisper => {
                let frames = pieces.len() * WHISPER_FRAMES;
                // Frames of silence only are all the same.
                let heard = (samples.len() + WHISPER_HALF).div_ceil(HOP).min(frames);
                let values = whisper(samples, bins, heard..frames, End::Silence);
                let pieces = values.chunks_exact(bins * WHISPER_FRAMES);
                pieces.map(|values| Spectrogram { bins, values: values.to_vec() }).collect()
            }
            Self::WhisperBlocks => {
                let frames = block_frames(samples.len());
                let values = whisper(samples, bins, frames..frames, End::Reflected);
                let parts = values.chunks(bins * BLOCKS_FRAMES).zip(pieces);
                let piece = |(values, frames): (&[f32], usize)| {
                    let mut values = values.to_vec();
                    values.resize(bins * frames, 0.0);
                    Spectrogram { bins, values }
                };
                parts.map(piece).collect()
            }
            Self::Gemma => {
                let parts = samples.chunks(PIECE_SAMPLES);
                parts.map(|samples| Spectrogram { bins, values: gemma(samples, bins) }).collect()
            }
        }
    }
}

/// Samples of a frame of Whisper's, and those before its centre.
const WHISPER_WINDOW: usize = 400;
const WHISPER_HALF: usize = WHISPER_WINDOW / 2;

fn block_frames(samples: usize) -> usize {
    samples / HOP + 1
}

/// The samples after the end of a sound, which the last frames contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Silence,
    Reflected,
}

/// Whisper's spectrogram, which has frames of silence from `silent.start` to `silent.end`. The
/// sound is reflected at its start.
fn whisper(samples: &[f32], bins: usize, silent: Range<usize>, end: End) -> Vec<f32> {
    const FLOOR: f64 = 5.960_464_477_539_063e-8;
    let last = samples.len() - 1;
    let sample = |place: usize| {
        let place = match place.checked_sub(WHISPER_HALF) {
            None => WHISPER_HALF - place,
            Some(place) if place > last && end == End::Reflected => {
                (2 * last).saturating_sub(place)
            }
            Some(place) => place,
        };
        samples.get(place).copied().unwrap_or(0.0)
    };
    let window = hann(WHISPER_WINDOW);
    let filters = filters(bins, WHISPER_WINDOW, Scale::Slaney);
    let mut values = Vec::with_capacity(silent.end * bins);
    let power = |[re, im]: [f64; 2]| re * re + im * im;
    spectrum(silent.start, WHISPER_WINDOW, &window, sample, power, |spectrum| {
        let sums = filters.iter().map(|filter| filter.sum(spectrum));
        values.extend(sums.map(|sum| sum.max(FLOOR).log10()));
    });
    let silence = FLOOR.log10();
    values.resize(silent.end * bins, silence);
    let loudest = values.iter().copied().fold(silence, f64::max);
    values.into_iter().map(|value| ((value.max(loudest - 8.0) + 4.0) / 4.0) as f32).collect()
}

/// Samples of a frame of Gemma's, and of its transform.
const GEMMA_WINDOW: usize = 320;
const GEMMA_FFT: usize = 512;

fn gemma_frames(samples: usize) -> usize {
    (samples + GEMMA_WINDOW / 2).saturating_sub(GEMMA_WINDOW + 1) / HOP + 1
}

/// Gemma 4's spectrogram: silence of half a window comes before the sound.
fn gemma(samples: &[f32], bins: usize) -> Vec<f32> {
    const FLOOR: f64 = 0.001;
    let sample = |place: usize| {
        let place = place.checked_sub(GEMMA_WINDOW / 2);
        place.and_then(|place| samples.get(place)).copied().unwrap_or(0.0)
    };
    let window = hann(GEMMA_WINDOW);
    let filters = filters(bins, GEMMA_FFT, Scale::Htk);
    let frames = gemma_frames(samples.len());
    let mut values = Vec::with_capacity(frames * bins);
    spectrum(
        frames,
        GEMMA_FFT,
        &window,
        sample,
        |[re, im]| re.hypot(im),
        |spectrum| {
            let sums = filters.iter().map(|filter| filter.sum(spectrum));
            values.extend(sums.map(|sum| sum.max(FLOOR).ln() as f32));
        },
    );
    values
}

/// Calls `each` with the magnitudes of the frequencies of each frame.
fn spectrum(
    frames: usize,
    fft: usize,
    window: &[f64],
    sample: impl Fn(usize) -> f32,
    magnitude: impl Fn([f64; 2]) -> f64,
    mut each: impl FnMut(&[f64]),
) {
    let transform = Fft::new(fft);
    let mut frame = vec![0.0; fft];
    let mut complex = vec![[0.0; 2]; fft];
    let mut magnitudes = vec![0.0; fft / 2 + 1];
    for start in (0..frames).map(|frame| frame * HOP) {
        for (place, (value, weight)) in frame.iter_mut().zip(window).enumerate() {
            *value = f64::from(sample(start + place)) * weight;
        }
        transform.run(&frame, &mut complex);
        for (value, complex) in magnitudes.iter_mut().zip(&complex) {
            *value = magnitude(*complex);
        }
        each(&magnitudes);
    }
}

/// The periodic Hann window.
fn hann(len: usize) -> Vec<f64> {
    (0..len).map(|i| 0.5 - 0.5 * (2.0 * PI * i as f64 / len as f64).cos()).collect()
}

/// A scale of pitch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    /// Linear up to 1 kHz; filters have the same area.
    Slaney,
    /// Filters have the same height.
    Htk,
}

/// A triangle of weights of successive frequencies.
struct Filter {
    range: Range<usize>,
    weights: Vec<f64>,
}

impl Filter {
    fn sum(&self, spectrum: &[f64]) -> f64 {
        let pairs = spectrum[self.range.clone()].iter().zip(&self.weights);
        pairs.map(|(value, weight)| value * weight).sum()
    }
}

fn filters(bins: usize, fft: usize, scale: Scale) -> Vec<Filter> {
    let top = scale.mel(RATE as f64 / 2.0);
    let edges: Vec<f64> =
        (0..bins + 2).map(|i| scale.hertz(top * i as f64 / (bins + 1) as f64)).collect();
    let hertz = |bin: usize| bin as f64 * RATE as f64 / fft as f64;
    let filter = |edges: &[f64]| {
        let &[low, centre, high] = edges else { unreachable!("three edges") };
        let height = if scale == Scale::Slaney { 2.0 / (high - low) } else { 1.0 };
        let weight = |bin: usize| {
            let up = (hertz(bin) - low) / (centre - low);
            let down = (high - hertz(bin)) / (high - centre);
            up.min(down).max(0.0) * height
        };
        let used: Vec<usize> = (0..=fft / 2).filter(|bin| weight(*bin) > 0.0).collect();
        let range = used.first().map_or(0..0, |first| *first..first + used.len());
        Filter { weights: range.clone().map(weight).collect(), range }
    };
    edges.windows(3).map(filter).collect()
}

/// Where the Slaney scale turns from linear to logarithmic, in hertz and in mels, and its steps.
const SLANEY_BREAK: f64 = 1000.0;
const SLANEY_BREAK_MEL: f64 = 15.0;
const SLANEY_STEPS_PER_6_4: f64 = 27.0;

impl Scale {
    fn mel(self, hertz: f64) -> f64 {
        match self {
            Self::Htk => 2595.0 * (1.0 + hertz / 700.0).log10(),
            Self::Slaney if hertz < SLANEY_BREAK => hertz * SLANEY_BREAK_MEL / SLANEY_BREAK,
            Self::Slaney => {
                let octaves = (hertz / SLANEY_BREAK).ln() / 6.4_f64.ln();
                SLANEY_BREAK_MEL + octaves * SLANEY_STEPS_PER_6_4
            }
        }
    }

    fn hertz(self, mel: f64) -> f64 {
        match self {
            Self::Htk => 700.0 * (10_f64.powf(mel / 2595.0) - 1.0),
            Self::Slaney if mel < SLANEY_BREAK_MEL => mel * SLANEY_BREAK / SLANEY_BREAK_MEL,
            Self::Slaney => {
                let octaves = (mel - SLANEY_BREAK_MEL) / SLANEY_STEPS_PER_6_4;
                SLANEY_BREAK * 6.4_f64.powf(octaves)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_have_the_frames_that_their_samples_announce() {
        for method in [Method::Whisper, Method::WhisperBlocks, Method::Gemma] {
            for samples in [1, 100, 201, 11_200, 8 * RATE, PIECE_SAMPLES, PIECE_SAMPLES + 1] {
                let sound = Sound::new(vec![0.1; samples]).unwrap();
                let pieces = method.pieces(&sound, 16);
                let frames: Vec<usize> = pieces.iter().map(Spectrogram::frames).collect();
                assert_eq!(frames, method.frames(samples), "{method:?}: {samples}");
                assert!(frames.iter().all(|frames| (1..=WHISPER_FRAMES).contains(frames)));
                let values = pieces.iter().flat_map(|piece| &piece.values);
                assert!(values.copied().all(f32::is_finite), "{method:?}: {samples}");
            }
        }
    }

    #[test]
    fn scales_are_inverted() {
        for scale in [Scale::Slaney, Scale::Htk] {
            for hertz in [0.0, 500.0, 1000.0, 7000.0] {
                assert!((scale.hertz(scale.mel(hertz)) - hertz).abs() < 1e-9, "{scale:?}");
            }
        }
    }
}
