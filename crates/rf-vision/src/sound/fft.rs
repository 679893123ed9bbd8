//! The Fourier transform of short frames.

/// A transform of a fixed length, by halves as long as the length is even.
pub(super) struct Fft {
    /// The complex roots of 1, `[real, imaginary]`.
    roots: Vec<[f64; 2]>,
}

impl Fft {
    pub(super) fn new(len: usize) -> Self {
        let angle = |i: usize| -2.0 * std::f64::consts::PI * i as f64 / len as f64;
        Self { roots: (0..len).map(|i| [angle(i).cos(), angle(i).sin()]).collect() }
    }

    /// The transform of real samples, as many as `out` has.
    pub(super) fn run(&self, samples: &[f64], out: &mut [[f64; 2]]) {
        self.part(samples, 1, out);
    }

    /// The transform of every `stride`-th sample.
    fn part(&self, samples: &[f64], stride: usize, out: &mut [[f64; 2]]) {
        let len = out.len();
        if len % 2 == 1 {
            for (k, value) in out.iter_mut().enumerate() {
                *value = [0.0; 2];
                for (i, sample) in samples.iter().step_by(stride).enumerate() {
                    let [re, im] = self.roots[i * k % len * stride];
                    value[0] += sample * re;
                    value[1] += sample * im;
                }
            }
            return;
        }
        let (even, odd) = out.split_at_mut(len / 2);
        self.part(samples, 2 * stride, even);
        self.part(&samples[stride..], 2 * stride, odd);
        for (k, (a, b)) in even.iter_mut().zip(odd).enumerate() {
            let [re, im] = self.roots[k * stride];
            let turned = [b[0] * re - b[1] * im, b[0] * im + b[1] * re];
            *b = [a[0] - turned[0], a[1] - turned[1]];
            *a = [a[0] + turned[0], a[1] + turned[1]];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transform_is_the_sum_of_its_definition() {
        for len in [400, 512, 25] {
            let fft = Fft::new(len);
            let samples: Vec<f64> =
                (0..len).map(|i| ((i * i * 7 + 3) % 31) as f64 - 15.0).collect();
            let mut out = vec![[0.0; 2]; len];
            fft.run(&samples, &mut out);
            for (k, [re, im]) in out.into_iter().enumerate() {
                let (mut sum_re, mut sum_im) = (0.0, 0.0);
                for (i, sample) in samples.iter().enumerate() {
                    let [root_re, root_im] = fft.roots[i * k % len];
                    sum_re += sample * root_re;
                    sum_im += sample * root_im;
                }
                assert!((re - sum_re).abs() + (im - sum_im).abs() < 1e-9, "{len}: {k}");
            }
        }
    }
}
