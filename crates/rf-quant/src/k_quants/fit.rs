//! What both searches share: a normalised super-block, the weights, the f16 super-scale, rounding.

use half::f16;

use crate::F16Le;

/// Values in a super-block.
pub(super) const SUPER: usize = 256;

/// A super-block divided by a power of two so that its largest magnitude is in `1..2`: the squares
/// in the search can neither overflow nor vanish, and no bit changes.
pub(super) struct Normalized {
    pub(super) values: [f32; SUPER],
    /// What to multiply by to get the original values.
    pub(super) factor: f32,
}

impl Normalized {
    /// `None` if all values are nearer to 0 than to anything that the formats can store, whose
    /// least scale is the least subnormal f16.
    pub(super) fn new(values: &[f32; SUPER]) -> Option<Self> {
        const LEAST: f32 = 1.0 / (1 << 25) as f32;

        // Without their sign, floats order as their bits do.
        let bits = values.iter().fold(0, |max, x| x.abs().to_bits().max(max));
        let factor = f32::from_bits(bits & 0x7f80_0000);
        if f32::from_bits(bits) <= LEAST {
            return None;
        }
        let inverse = 1.0 / factor;
        Some(Self { values: values.map(|x| x * inverse), factor })
    }
}

/// The scale of the scales: `extreme`, the sub-block scale of largest magnitude, becomes `steps` of
/// it. Returns what is stored, and its value divided by `factor`.
pub(super) fn super_scale(extreme: f32, steps: f32, factor: f32) -> (F16Le, f32) {
    let exact = extreme * factor / steps;
    let mut d = F16Le::saturating_from_f32(exact);
    // Down among the subnormals, rounding is so coarse that the extreme may end up out of reach.
    if (d.to_f32() * (steps.abs() + 0.5)).abs() < (extreme * factor).abs() {
        d = d.away_from_zero(exact);
    }
    (d, d.to_f32() / factor)
}

/// How much the error of each value counts: more for large values, which move a dot product more.
pub(super) fn importance<const N: usize>(x: &[f32; N]) -> [f32; N] {
    let mean_square = sum(&x.map(|x| x * x)) / N as f32;
    let rms = mean_square.sqrt();
    x.map(|x| rms + x.abs())
}

/// Nearest integer, ties to even, for magnitudes below 2²²; a float without room for a fraction
/// rounds by itself. Unlike `f32::round_ties_even` this is no call on a baseline CPU.
pub(super) fn round(x: f32) -> f32 {
    const NO_FRACTION: f32 = 1.5 * (1 << 23) as f32;
    (x + NO_FRACTION) - NO_FRACTION
}

/// The sum, in eight lanes so that it vectorises.
pub(super) fn sum<const N: usize>(x: &[f32; N]) -> f32 {
    let mut lanes = [0.0; 8];
    for chunk in x.as_chunks::<8>().0 {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane += x;
        }
    }
    lanes.iter().sum()
}

/// `1 / x`, or 0 for 0.
pub(super) fn inverse_or_zero(x: f32) -> f32 {
    let inverse = 1.0 / x;
    if inverse.is_finite() { inverse } else { 0.0 }
}

impl F16Le {
    /// The next f16 in the direction of `sign`, or the same if that is not finite.
    fn away_from_zero(self, sign: f32) -> Self {
        let magnitude = f16::from_f32(self.to_f32().abs());
        let next = f16::from_bits(magnitude.to_bits() + 1).min(f16::MAX);
        Self::saturating_from_f32(next.to_f32().copysign(sign))
    }
}
