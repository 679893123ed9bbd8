//! Blocks brought into a safe range, and the weights of the errors of their values.

use crate::extent::magnitude;

/// A block divided by a power of two so that its largest magnitude is in `1..2`: the squares in a
/// search can neither overflow nor vanish, and no bit changes.
pub(crate) struct Normalized<const N: usize> {
    pub(crate) values: [f32; N],
    /// The factor that restores the original values.
    pub(crate) factor: f32,
}

impl<const N: usize> Normalized<N> {
    /// `None` if all values are nearer to 0 than to the least value of the formats, whose least
    /// scale is the least subnormal f16.
    pub(crate) fn new(values: &[f32; N]) -> Option<Self> {
        const LEAST: f32 = 1.0 / (1 << 25) as f32;

        let magnitude = magnitude(values);
        if magnitude <= LEAST {
            return None;
        }
        let factor = f32::from_bits(magnitude.to_bits() & 0x7f80_0000);
        let inverse = 1.0 / factor;
        Some(Self { values: values.map(|x| x * inverse), factor })
    }

    /// The weight of the error of each value: from the importance of the columns if there is one,
    /// else from sub-blocks of `SUB` values alone.
    pub(crate) fn weights<const SUB: usize>(&self, importance: Option<&[f32; N]>) -> [f32; N] {
        if let Some(weights) = importance.and_then(|importance| self.weigh(importance)) {
            return weights;
        }
        let mut weights = [0.0; N];
        let subs = weights.as_chunks_mut::<SUB>().0.iter_mut();
        for (weights, x) in subs.zip(self.values.as_chunks().0) {
            *weights = unaided_weights(x);
        }
        weights
    }

    /// `importance √(σ² + x²)` with `σ²` twice the mean square, as in llama.cpp. `None` if no
    /// column is important.
    pub(crate) fn weigh(&self, importance: &[f32; N]) -> Option<[f32; N]> {
        /// The least importance of a column, relative to the largest one of the block. It keeps
        /// every sum of weights above 0.
        const LEAST: f32 = 1e-6;

        let largest = importance.iter().filter(|x| x.is_finite()).fold(0.0, |a: f32, x| a.max(*x));
        if largest <= 0.0 {
            return None;
        }
        let sigma = 2.0 * self.values.iter().map(|x| x * x).sum::<f32>() / N as f32;
        Some(std::array::from_fn(|i| {
            let relative = importance[i] / largest;
            // NaN becomes the least importance.
            let relative = if relative >= LEAST { relative.min(1.0) } else { LEAST };
            relative * (sigma + self.values[i] * self.values[i]).sqrt()
        }))
    }
}

/// The weights of errors without an importance. Large values weigh more, because they change a dot
/// product more.
fn unaided_weights<const N: usize>(x: &[f32; N]) -> [f32; N] {
    let rms = (x.iter().map(|x| x * x).sum::<f32>() / N as f32).sqrt();
    x.map(|x| rms + x.abs())
}
