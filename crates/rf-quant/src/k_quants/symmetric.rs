//! The search for scales of `Q3_K` and `Q6_K`: `x = d s q`, `q` signed.
//!
//! Two stages as in `affine`, with a line through 0 instead of a minimum.

use super::fit::{
    Moments, NEGLIGIBLE, STRETCH, SUPER, TRIALS, errors, inverse_or_zero, least, super_scale,
};
use crate::F16Le;
use crate::extent::largest;
use crate::normalized::Normalized;
use crate::rounding::{low_byte, nearest};

/// A quantised super-block before packing.
pub(super) struct Symmetric {
    pub(super) d: F16Le,
    pub(super) scales: [i8; 16],
    /// `q` plus the offset that makes it unsigned.
    pub(super) levels: [u8; SUPER],
}

/// Quantises a super-block of sub-blocks of 16 values to `q` in `-HALF..HALF` with scales in
/// `-SCALE..SCALE`.
pub(super) fn search<const HALF: u8, const SCALE: u8>(
    values: &[f32; SUPER],
    importance: Option<&[f32; SUPER]>,
) -> Symmetric {
    let mut result = Symmetric { d: F16Le::default(), scales: [0; 16], levels: [HALF; SUPER] };
    let Some(x) = Normalized::new(values) else { return result };

    let subs = x.values.as_chunks::<16>().0;
    let weights = x.weights::<16>(importance);
    let weights = weights.as_chunks::<16>().0;
    let mut fits = [0.0f32; 16];
    for ((x, weights), fit) in subs.iter().zip(weights).zip(&mut fits) {
        *fit = fit_scale::<HALF, 16>(x, weights);
    }
    // The extreme gets the larger end of the range.
    let extreme = largest(&fits);
    let d;
    (result.d, d) = super_scale(extreme, -f32::from(SCALE), x.factor);

    let outs = result.levels.as_chunks_mut::<16>().0;
    for (sub, (x, out)) in subs.iter().zip(outs).enumerate() {
        let scale = round_scale::<HALF, SCALE>(fits[sub], d, x, &weights[sub]);
        result.scales[sub] = scale as i8;
        *out = levels::<HALF>(x, d * scale);
    }
    result
}

/// The scale of least error for one block of 32 values. `None` if no value or no column matters.
pub(crate) fn weighted_scale<const HALF: u8>(
    values: &[f32; 32],
    importance: &[f32; 32],
) -> Option<f32> {
    let x = Normalized::new(values)?;
    Some(fit_scale::<HALF, 32>(&x.values, &x.weigh(importance)?) * x.factor)
}

/// The best scale found for a sub-block.
fn fit_scale<const HALF: u8, const N: usize>(x: &[f32; N], weights: &[f32; N]) -> f32 {
    let extreme = largest(x);
    if extreme.abs() < NEGLIGIBLE {
        return 0.0;
    }
    let limit = f32::from(HALF);
    let inverse: [f32; TRIALS] = std::array::from_fn(|trial| {
        let stretch = trial as f32 - (TRIALS / 2) as f32;
        -(limit + stretch * STRETCH) / extreme
    });
    let Moments { qq, qx, .. } = Moments::<TRIALS>::new(x, weights, |trial, x| {
        nearest((x * inverse[trial]).clamp(-limit, limit - 1.0))
    });

    // Least squares: scale = qx / qq lowers the error by qx² / qq.
    let mut best = (0.0, 0.0);
    for (qq, qx) in qq.iter().zip(qx) {
        let gain = qx * qx / qq;
        if gain > best.1 {
            best = (qx / qq, gain);
        }
    }
    best.0
}

/// The best multiple of `d` near `scale`.
fn round_scale<const HALF: u8, const SCALE: u8>(
    scale: f32,
    d: f32,
    x: &[f32; 16],
    weights: &[f32; 16],
) -> f32 {
    let limit = f32::from(SCALE);
    let closest = nearest((scale * inverse_or_zero(d)).clamp(-limit, limit));
    // The ranges of scale and `q` are larger below 0, so the opposite sign may have less error.
    let steps = [closest, closest - 1.0, closest + 1.0, -closest, 1.0 - closest, -1.0 - closest]
        .map(|steps| steps.clamp(-limit, limit - 1.0));
    let scales = steps.map(|steps| d * steps);
    let inverse = scales.map(inverse_or_zero);
    let limit = f32::from(HALF);
    let errors = errors::<6>(x, weights, |trial, x| {
        scales[trial] * nearest((x * inverse[trial]).clamp(-limit, limit - 1.0))
    });
    steps[least(&errors)]
}

/// The integers nearest to `x / scale`, plus `HALF`.
fn levels<const HALF: u8>(x: &[f32; 16], scale: f32) -> [u8; 16] {
    let inverse = inverse_or_zero(scale);
    let limit = f32::from(HALF);
    x.map(|x| low_byte((x * inverse).clamp(-limit, limit - 1.0)).wrapping_add(HALF))
}
