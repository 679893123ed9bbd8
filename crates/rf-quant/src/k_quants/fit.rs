//! Parts of both searches: the f16 super-scale, moments, errors.

use half::f16;

use crate::F16Le;

/// Values in a super-block.
pub(super) const SUPER: usize = 256;

/// Trial scales per sub-block.
pub(super) const TRIALS: usize = 24;

/// The difference between trial scales, in levels over the span of values.
pub(super) const STRETCH: f32 = 0.1;

/// A span of normalised values far below the least scale of a super-block, whose inverse does not
/// overflow.
pub(super) const NEGLIGIBLE: f32 = 1e-12;

/// The scale of the scales, so that `extreme`, the sub-block scale of largest magnitude, is `steps`
/// times it. Returns the stored scale and its value divided by `factor`.
pub(super) fn super_scale(extreme: f32, steps: f32, factor: f32) -> (F16Le, f32) {
    let exact = extreme * factor / steps;
    let mut d = F16Le::saturating_from_f32(exact);
    // Subnormal rounding is so coarse that the extreme may be out of range.
    if (d.to_f32() * (steps.abs() + 0.5)).abs() < (extreme * factor).abs() {
        d = d.away_from_zero(exact);
    }
    (d, d.to_f32() / factor)
}

/// The least-squares moments of `T` trial roundings `q` of a sub-block.
pub(super) struct Moments<const T: usize> {
    /// `Σ w q`
    pub(super) q: [f32; T],
    /// `Σ w q²`
    pub(super) qq: [f32; T],
    /// `Σ w q x`
    pub(super) qx: [f32; T],
}

impl<const T: usize> Moments<T> {
    /// Moments of `q = round(trial, x)`. The trials are the inner loop, because independent sums
    /// vectorise and the terms of one sum do not.
    pub(super) fn new(x: &[f32], weights: &[f32], round: impl Fn(usize, f32) -> f32) -> Self {
        let (mut q, mut qq, mut qx) = ([0.0; T], [0.0; T], [0.0; T]);
        for (&x, &weight) in x.iter().zip(weights) {
            let levels: [f32; T] = std::array::from_fn(|trial| round(trial, x));
            for trial in 0..T {
                let weighted = weight * levels[trial];
                q[trial] += weighted;
                qq[trial] += weighted * levels[trial];
                qx[trial] += weighted * x;
            }
        }
        Self { q, qq, qx }
    }
}

/// The weighted squared errors of `T` trial quantisations: `Σ w (restored(trial, x) - x)²`.
pub(super) fn errors<const T: usize>(
    x: &[f32],
    weights: &[f32],
    restored: impl Fn(usize, f32) -> f32,
) -> [f32; T] {
    let mut sums = [0.0; T];
    for (&x, &weight) in x.iter().zip(weights) {
        let errors: [f32; T] = std::array::from_fn(|trial| restored(trial, x) - x);
        for trial in 0..T {
            sums[trial] += weight * errors[trial] * errors[trial];
        }
    }
    sums
}

/// The index of the least error.
pub(super) fn least(errors: &[f32]) -> usize {
    (1..errors.len()).fold(0, |best, i| if errors[i] < errors[best] { i } else { best })
}

/// `1 / x`, or 0 for 0.
pub(super) fn inverse_or_zero(x: f32) -> f32 {
    let inverse = 1.0 / x;
    if inverse.is_finite() { inverse } else { 0.0 }
}

impl F16Le {
    /// The next f16 in the direction of `sign`, or the same if the next is not finite.
    fn away_from_zero(self, sign: f32) -> Self {
        let magnitude = f16::from_f32(self.to_f32().abs());
        let next = f16::from_bits(magnitude.to_bits() + 1).min(f16::MAX);
        Self::saturating_from_f32(next.to_f32().copysign(sign))
    }
}
