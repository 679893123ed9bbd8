//! The search for scales of Q3_K and Q6_K: `x = d s q`, `q` signed.
//!
//! Two stages as in `affine`, with a line through 0 in place of one with a minimum.

use super::fit::{Moments, Normalized, SUPER, importance, inverse_or_zero, sum, super_scale};
use crate::{
    F16Le,
    rounding::{low_byte, nearest},
};

/// A quantised super-block before packing.
pub(super) struct Symmetric {
    pub(super) d: F16Le,
    pub(super) scales: [i8; 16],
    /// `q` plus the offset that makes it unsigned.
    pub(super) levels: [u8; SUPER],
}

/// Quantises a super-block of sub-blocks of 16 values to `q` in `-HALF..HALF` with scales in
/// `-SCALE..SCALE`.
pub(super) fn search<const HALF: u8, const SCALE: u8>(values: &[f32; SUPER]) -> Symmetric {
    let mut result = Symmetric { d: F16Le::default(), scales: [0; 16], levels: [HALF; SUPER] };
    let Some(x) = Normalized::new(values) else { return result };

    let subs = x.values.as_chunks::<16>().0;
    let mut fits = [0.0f32; 16];
    for (x, fit) in subs.iter().zip(&mut fits) {
        *fit = fit_scale::<HALF>(x, &importance(x));
    }
    // The extreme goes to the end of the range that reaches further.
    let extreme = fits.iter().fold(0.0f32, |a, b| if b.abs() > a.abs() { *b } else { a });
    let d;
    (result.d, d) = super_scale(extreme, -f32::from(SCALE), x.factor);

    let levels = result.levels.as_chunks_mut::<16>().0;
    for (sub, (x, levels)) in subs.iter().zip(levels).enumerate() {
        let scale = round_scale::<HALF, SCALE>(fits[sub], d, x);
        result.scales[sub] = scale as i8;
        *levels = x.map(rounding::<HALF>(d * scale)).map(|q| low_byte(q + f32::from(HALF)));
    }
    result
}

/// The best scale found for a sub-block.
fn fit_scale<const HALF: u8>(x: &[f32; 16], weights: &[f32; 16]) -> f32 {
    const STRETCHES: usize = 19;
    const STRETCH: f32 = 0.1;

    let extreme = x.iter().fold(0.0f32, |a, b| if b.abs() > a.abs() { *b } else { a });
    if extreme.abs() < f32::MIN_POSITIVE {
        return 0.0;
    }
    let mut best = (0.0, 0.0);
    for stretch in 0..STRETCHES {
        let offset = (stretch as f32 - (STRETCHES / 2) as f32) * STRETCH;
        let trial = -extreme / (f32::from(HALF) + offset);
        let Moments { qq, qx, .. } = Moments::new(x, weights, rounding::<HALF>(trial));
        // Least squares: scale = qx / qq lowers the error by qx² / qq.
        let gain = qx * qx / qq;
        if gain > best.1 {
            best = (qx / qq, gain);
        }
    }
    best.0
}

/// The best of the multiples of `d` about `scale`.
fn round_scale<const HALF: u8, const SCALE: u8>(scale: f32, d: f32, x: &[f32; 16]) -> f32 {
    let weights = importance(x);
    let limit = f32::from(SCALE);
    let closest = nearest((scale * inverse_or_zero(d)).clamp(-limit, limit));
    let mut best = (0.0, f32::INFINITY);
    // The ranges of both scale and `q` reach further below 0, so the opposite sign may do better.
    let around = [0.0, -1.0, 1.0].map(|step| closest + step);
    for steps in around.into_iter().chain(around.map(|steps| -steps)) {
        let steps = steps.clamp(-limit, limit - 1.0);
        let q = rounding::<HALF>(d * steps);
        let error = sum::<16>(|i| {
            let error = d * steps * q(x[i]) - x[i];
            weights[i] * error * error
        });
        if error < best.1 {
            best = (steps, error);
        }
    }
    best.0
}

/// The function from a value to the integer nearest to `x / scale`.
fn rounding<const HALF: u8>(scale: f32) -> impl Fn(f32) -> f32 {
    let inverse = inverse_or_zero(scale);
    let limit = f32::from(HALF);
    move |x| nearest((x * inverse).clamp(-limit, limit - 1.0))
}
