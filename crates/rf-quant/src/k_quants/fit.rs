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
    let mean_square = sum::<N>(|i| x[i] * x[i]) / N as f32;
    let rms = mean_square.sqrt();
    x.map(|x| rms + x.abs())
}

/// Lanes of a sum: independent of each other, so that the loop vectorises.
pub(super) const LANES: usize = 8;

/// The sum of `term(i)` for `i` in `0..N`, a multiple of [`LANES`].
pub(super) fn sum<const N: usize>(term: impl Fn(usize) -> f32) -> f32 {
    let mut sums = [0.0; LANES];
    for first in (0..N).step_by(LANES) {
        for (lane, sum) in sums.iter_mut().enumerate() {
            *sum += term(first + lane);
        }
    }
    sums.iter().sum()
}

/// What least squares needs of a trial rounding `q` of a sub-block.
pub(super) struct Moments {
    /// `Σ w q`
    pub(super) q: f32,
    /// `Σ w q²`
    pub(super) qq: f32,
    /// `Σ w q x`
    pub(super) qx: f32,
}

impl Moments {
    /// Moments of `q = round(x)`.
    pub(super) fn new<const N: usize>(
        x: &[f32; N],
        weights: &[f32; N],
        round: impl Fn(f32) -> f32,
    ) -> Self {
        let (mut q, mut qq, mut qx) = ([0.0; LANES], [0.0; LANES], [0.0; LANES]);
        for (x, weights) in x.as_chunks::<LANES>().0.iter().zip(weights.as_chunks::<LANES>().0) {
            for lane in 0..LANES {
                let level = round(x[lane]);
                let weighted = weights[lane] * level;
                q[lane] += weighted;
                qq[lane] += weighted * level;
                qx[lane] += weighted * x[lane];
            }
        }
        let [q, qq, qx] = [q, qq, qx].map(|lanes| lanes.iter().sum());
        Self { q, qq, qx }
    }
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
