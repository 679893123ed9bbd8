//! The search for scales and minima of `Q2_K`, `Q4_K` and `Q5_K`: `x = d s q - dmin m`, `q`
//! unsigned.
//!
//! The search has two stages. The first fits each sub-block by `scale * q - min`: a grid of trial
//! scales gives trial roundings, and weighted least squares gives the best line for each rounding
//! in closed form. The second rounds scales and minima of all sub-blocks to multiples of `d` and
//! `dmin`. It also tries the neighbours of the rounded pair, because one can compensate for the
//! other.

use super::fit::{
    Moments, NEGLIGIBLE, STRETCH, SUPER, TRIALS, errors, inverse_or_zero, least, super_scale,
};
use crate::F16Le;
use crate::extent::range;
use crate::normalized::Normalized;
use crate::rounding::{low_byte, nearest};

/// The fraction of a sum below which a difference is a rounding error.
const NOISE: f32 = 4e-6;

/// A quantised super-block before packing.
pub(super) struct Affine {
    pub(super) d: F16Le,
    pub(super) dmin: F16Le,
    /// The scale of each sub-block. The rest is 0 if there are fewer than 16.
    pub(super) scales: [u8; 16],
    /// The minimum of each sub-block, in the order of `scales`.
    pub(super) mins: [u8; 16],
    pub(super) levels: [u8; SUPER],
}

impl Affine {
    /// The scales of a format with eight sub-blocks.
    pub(super) fn first_scales(&self) -> [u8; 8] {
        std::array::from_fn(|sub| self.scales[sub])
    }

    /// The minima of a format with eight sub-blocks.
    pub(super) fn first_mins(&self) -> [u8; 8] {
        std::array::from_fn(|sub| self.mins[sub])
    }
}

/// Quantises a super-block of sub-blocks of `N` values to levels `0..=LEVEL` with scales and minima
/// `0..=SCALE`.
pub(super) fn search<const N: usize, const LEVEL: u8, const SCALE: u8>(
    values: &[f32; SUPER],
    importance: Option<&[f32; SUPER]>,
) -> Affine {
    let mut result = Affine {
        d: F16Le::default(),
        dmin: F16Le::default(),
        scales: [0; 16],
        mins: [0; 16],
        levels: [0; SUPER],
    };
    let Some(x) = Normalized::new(values) else { return result };

    let subs = x.values.as_chunks::<N>().0;
    let weights = x.weights::<N>(importance);
    let weights = weights.as_chunks::<N>().0;
    let mut lines = [Line::default(); 16];
    for ((x, weights), line) in subs.iter().zip(weights).zip(&mut lines) {
        *line = Line::fit::<N, LEVEL>(x, weights);
    }
    let largest = |part: fn(&Line) -> f32| lines.iter().map(part).fold(0.0, f32::max);
    let steps = f32::from(SCALE);
    let (d, dmin);
    (result.d, d) = super_scale(largest(|line| line.scale), steps, x.factor);
    (result.dmin, dmin) = super_scale(largest(|line| line.min), steps, x.factor);

    let levels = result.levels.as_chunks_mut::<N>().0;
    for (sub, (x, levels)) in subs.iter().zip(levels).enumerate() {
        let (scale, min) = lines[sub].round_to::<N, LEVEL, SCALE>(d, dmin, x, &weights[sub]);
        result.scales[sub] = scale as u8;
        result.mins[sub] = min as u8;
        let line = Line { scale: d * scale, min: dmin * min };
        *levels = line.levels::<N, LEVEL>(x);
    }
    result
}

/// The scale and the minimum of least error for one block of 32 values. `None` if no value or no
/// column matters.
pub(crate) fn weighted_line<const LEVEL: u8>(
    values: &[f32; 32],
    importance: &[f32; 32],
) -> Option<(f32, f32)> {
    let x = Normalized::new(values)?;
    let line = Line::fit::<32, LEVEL>(&x.values, &x.weigh(importance)?);
    Some((line.scale * x.factor, line.min * x.factor))
}

/// `x = scale * q - min`, both at least 0.
#[derive(Clone, Copy, Default)]
struct Line {
    scale: f32,
    min: f32,
}

impl Line {
    /// The best line found for a sub-block.
    fn fit<const N: usize, const LEVEL: u8>(x: &[f32; N], weights: &[f32; N]) -> Self {
        let (low, high) = range(x);
        let low = low.min(0.0);
        let flat = Self { scale: 0.0, min: -low };
        let span = high - low;
        if span < NEGLIGIBLE {
            return flat;
        }

        // The trials stretch the span by fractions of a level. The first one is the plain range
        // from minimum to maximum.
        let inverse: [f32; TRIALS] = std::array::from_fn(|trial| {
            let stretch = if trial == 0 { 0.0 } else { trial as f32 - (TRIALS / 2) as f32 };
            (f32::from(LEVEL) + stretch * STRETCH) / span
        });
        let moments = Moments::<TRIALS>::new(x, weights, |trial, x| {
            nearest(((x - low) * inverse[trial]).clamp(0.0, f32::from(LEVEL)))
        });

        let sums = Sums::new(x, weights);
        let (lines, mut errors) = sums.fit(&moments);
        // Many trials fit few distinct values exactly. Prefer the plain range to a trial that only
        // has smaller rounding errors.
        errors[0] -= NOISE * sums.square;
        let best = lines[least(&errors)];
        if best.scale > 0.0 { best } else { flat }
    }

    /// The best multiples of `d` and `dmin` near this line.
    fn round_to<const N: usize, const LEVEL: u8, const SCALE: u8>(
        self,
        d: f32,
        dmin: f32,
        x: &[f32; N],
        weights: &[f32; N],
    ) -> (f32, f32) {
        // Candidates for both: nearest, below, above.
        const NEIGHBOURS: [(f32, f32); 9] = [
            (0.0, 0.0),
            (0.0, -1.0),
            (0.0, 1.0),
            (-1.0, 0.0),
            (-1.0, -1.0),
            (-1.0, 1.0),
            (1.0, 0.0),
            (1.0, -1.0),
            (1.0, 1.0),
        ];

        let limit = f32::from(SCALE);
        let scale = nearest((self.scale * inverse_or_zero(d)).min(limit));
        let min = nearest((self.min * inverse_or_zero(dmin)).min(limit));
        let pairs = NEIGHBOURS
            .map(|(ds, dm)| ((scale + ds).clamp(0.0, limit), (min + dm).clamp(0.0, limit)));
        let lines = pairs.map(|(scale, min)| Self { scale: d * scale, min: dmin * min });
        let inverse = lines.map(|line| inverse_or_zero(line.scale));
        let errors = errors::<9>(x, weights, |trial, x| {
            let Self { scale, min } = lines[trial];
            scale * nearest(((x + min) * inverse[trial]).clamp(0.0, f32::from(LEVEL))) - min
        });
        pairs[least(&errors)]
    }

    /// The levels nearest to `x`.
    fn levels<const N: usize, const LEVEL: u8>(self, x: &[f32; N]) -> [u8; N] {
        let inverse = inverse_or_zero(self.scale);
        x.map(|x| low_byte(((x + self.min) * inverse).clamp(0.0, f32::from(LEVEL))))
    }
}

/// Weighted sums that do not depend on the levels.
struct Sums {
    weights: f32,
    x: f32,
    square: f32,
}

impl Sums {
    fn new(x: &[f32], weights: &[f32]) -> Self {
        let mut sums = Self { weights: 0.0, x: 0.0, square: 0.0 };
        for (x, weight) in x.iter().zip(weights) {
            sums.weights += weight;
            sums.x += weight * x;
            sums.square += weight * x * x;
        }
        sums
    }

    /// For each trial, the line of least weighted squared error, and that error: the minimum of
    /// `Σ w (scale q - min - x)²` with `min >= 0`. The error is infinite if no scale above 0 fits.
    fn fit<const T: usize>(&self, moments: &Moments<T>) -> ([Line; T], [f32; T]) {
        let Moments { q, qq, qx } = moments;
        let mut lines = [Line::default(); T];
        let mut errors = [0.0; T];
        for trial in 0..T {
            let (q, qq, qx) = (q[trial], qq[trial], qx[trial]);
            let variance = self.weights * qq - q * q;
            let sloped = (self.weights * qx - q * self.x) / variance;
            let min = (sloped * q - self.x) / self.weights;
            // The variance of equal levels is a rounding error and gives no minimum.
            let has_min = min > 0.0 && variance > NOISE * self.weights * qq;
            let scale = if has_min { sloped } else { qx / qq };
            let min = if has_min { min } else { 0.0 };
            let error = self.square - scale * qx + min * self.x;
            lines[trial] = Line { scale, min };
            errors[trial] = if scale > 0.0 { error } else { f32::INFINITY };
        }
        (lines, errors)
    }
}
