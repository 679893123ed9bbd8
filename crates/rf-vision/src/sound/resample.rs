//! Resampling by a windowed sinc.

use std::f64::consts::PI;

/// Zero crossings of the sinc on each side.
const CROSSINGS: f64 = 24.0;

/// The share of the lower Nyquist frequency that passes; the rest is the width of the transition.
const PASS: f64 = 0.94;

/// Samples of one rate at another one.
pub(super) fn resample(samples: Vec<f32>, from: usize, to: usize) -> Vec<f32> {
    if from == to {
        return samples;
    }
    let divisor = greatest_common_divisor(from, to);
    let (step, phases) = (from / divisor, to / divisor);
    let mut filter = Filter::new(from, to, phases);
    let len = (samples.len() as u64 * to as u64).div_ceil(from as u64) as usize;
    let mut out = Vec::with_capacity(len);
    let (mut at, mut phase) = (0, 0);
    for _ in 0..len {
        out.push(filter.apply(&samples, at, phase));
        phase += step;
        (at, phase) = (at + phase / phases, phase % phases);
    }
    out
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// The weights of the samples around a place, for each phase of the place between two samples. They
/// are computed when a phase occurs: rates without a common divisor have thousands of phases, and a
/// short sound has few samples.
struct Filter {
    /// The highest frequency that passes, as a fraction of the source's Nyquist frequency.
    cutoff: f64,
    /// Half the width of the window, in samples.
    reach: f64,
    /// Samples before the place; as many follow.
    half: usize,
    phases: Vec<Option<Box<[f32]>>>,
}

impl Filter {
    fn new(from: usize, to: usize, phases: usize) -> Self {
        let cutoff = PASS * (to as f64 / from as f64).min(1.0);
        let reach = CROSSINGS / cutoff;
        Self { cutoff, reach, half: reach.ceil() as usize, phases: vec![None; phases] }
    }

    /// The value at a place; samples beyond the ends are 0.
    fn apply(&mut self, samples: &[f32], at: usize, phase: usize) -> f32 {
        // The tap of the first sample, if it is among them.
        let skipped = (self.half - 1).saturating_sub(at);
        let first = (at + 1).saturating_sub(self.half).min(samples.len());
        let pairs = self.weights(phase)[skipped..].iter().zip(&samples[first..]);
        pairs.map(|(weight, sample)| weight * sample).sum()
    }

    fn weights(&mut self, phase: usize) -> &[f32] {
        let Self { cutoff, reach, half, .. } = *self;
        let place = phase as f64 / self.phases.len() as f64;
        self.phases[phase].get_or_insert_with(|| {
            let weight = |tap: usize| {
                let distance = tap as f64 + 1.0 - half as f64 - place;
                sinc(distance * cutoff) * window(distance / reach)
            };
            let taps: Vec<f64> = (0..2 * half).map(weight).collect();
            let sum: f64 = taps.iter().sum();
            taps.iter().map(|tap| (tap / sum) as f32).collect()
        })
    }
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 { 1.0 } else { (PI * x).sin() / (PI * x) }
}

/// The Blackman window on −1 to 1.
fn window(x: f64) -> f64 {
    if x.abs() >= 1.0 {
        return 0.0;
    }
    0.42 + 0.5 * (PI * x).cos() + 0.08 * (2.0 * PI * x).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tone(frequency: f64, rate: usize, len: usize) -> Vec<f32> {
        let sample = |i: usize| (2.0 * PI * frequency * i as f64 / rate as f64).sin() as f32;
        (0..len).map(sample).collect()
    }

    #[test]
    fn tones_keep_their_phase_and_height() {
        for from in [8000, 11_025, 22_050, 44_100, 48_000, 96_000] {
            let resampled = resample(tone(440.0, from, from / 2), from, 16_000);
            let expected = tone(440.0, 16_000, 8000);
            assert_eq!(resampled.len(), expected.len(), "{from}");
            // The ends see silence beyond them.
            let differences = resampled.iter().zip(&expected).map(|(a, b)| (a - b).abs());
            let inner = differences.skip(200).take(7600);
            let largest = inner.fold(0.0, f32::max);
            assert!(largest < 1e-3, "{from}: {largest}");
        }
    }

    #[test]
    fn tones_beyond_the_new_range_are_removed() {
        let resampled = resample(tone(9000.0, 48_000, 24_000), 48_000, 16_000);
        let largest = resampled[200..7800].iter().fold(0.0_f32, |a, b| a.max(b.abs()));
        assert!(largest < 1e-3, "{largest}");
    }

    #[test]
    fn short_sounds_do_not_panic() {
        for len in [1, 2, 7] {
            let resampled = resample(vec![0.5; len], 44_100, 16_000);
            assert_eq!(resampled.len(), (len * 16_000).div_ceil(44_100));
        }
    }
}
