//! The search for scales and minima of Q2_K, Q4_K and Q5_K: `x = d s q - dmin m`, `q` unsigned.
//!
//! Two stages. Each sub-block alone is fitted by `scale * q - min`: a grid of trial scales gives
//! trial roundings, and for each rounding the best line through the points is weighted least squares
//! in closed form. Then scales and minima of all sub-blocks are rounded to multiples of `d` and
//! `dmin`; the neighbours of the rounded pair are tried too, as one can make up for the other.

use super::fit::{Moments, Normalized, SUPER, importance, inverse_or_zero, sum, super_scale};
use crate::{
    F16Le,
    rounding::{low_byte, nearest},
};

/// A quantised super-block before packing.
pub(super) struct Affine {
    pub(super) d: F16Le,
    pub(super) dmin: F16Le,
    /// One per sub-block; the rest is 0 where there are fewer than 16.
    pub(super) scales: [u8; 16],
    /// As `scales`.
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
    let mut lines = [Line::default(); 16];
    for (x, line) in subs.iter().zip(&mut lines) {
        *line = Line::fit::<N, LEVEL>(x, &importance(x));
    }
    let largest = |part: fn(&Line) -> f32| lines.iter().map(part).fold(0.0, f32::max);
    let steps = f32::from(SCALE);
    let (d, dmin);
    (result.d, d) = super_scale(largest(|line| line.scale), steps, x.factor);
    (result.dmin, dmin) = super_scale(largest(|line| line.min), steps, x.factor);

    let levels = result.levels.as_chunks_mut::<N>().0;
    for (sub, (x, levels)) in subs.iter().zip(levels).enumerate() {
        let (scale, min) = lines[sub].round_to::<N, LEVEL, SCALE>(d, dmin, x);
        result.scales[sub] = scale as u8;
        result.mins[sub] = min as u8;
        let line = Line { scale: d * scale, min: dmin * min };
        *levels = x.map(line.rounding::<LEVEL>()).map(low_byte);
    }
    result
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
        // Trial scales: the range of values covers this many levels more or less than there are.
        // Plain minimum to maximum comes first.
        const STRETCHES: i16 = 10;
        const STRETCH: f32 = 0.1;
        // Differences of errors below this share of the sum of squares are rounding of the sums.
        const NOISE: f32 = 1e-6;

        let low = x.iter().copied().fold(0.0, f32::min);
        let high = x.iter().copied().fold(x[0], f32::max);
        let flat = Self { scale: 0.0, min: -low };
        let span = high - low;
        if span < f32::MIN_POSITIVE {
            return flat;
        }

        let sums = Sums::new(x, weights);
        let mut best = (flat, f32::INFINITY);
        for stretch in std::iter::once(0).chain(-STRETCHES..=STRETCHES) {
            let covered = f32::from(LEVEL) + f32::from(stretch) * STRETCH;
            let trial = Self { scale: span / covered, min: -low };
            let fitted = sums.fit(&Moments::new(x, weights, trial.rounding::<LEVEL>()));
            if fitted.1 + NOISE * sums.square < best.1 {
                best = fitted;
            }
        }
        best.0
    }

    /// The function from a value to its nearest level.
    fn rounding<const LEVEL: u8>(self) -> impl Fn(f32) -> f32 {
        let inverse = inverse_or_zero(self.scale);
        move |x| nearest(((x + self.min) * inverse).clamp(0.0, f32::from(LEVEL)))
    }

    /// The best of the multiples of `d` and `dmin` about this line.
    fn round_to<const N: usize, const LEVEL: u8, const SCALE: u8>(
        self,
        d: f32,
        dmin: f32,
        x: &[f32; N],
    ) -> (f32, f32) {
        let weights = importance(x);
        let around = |value: f32, step: f32| {
            let closest = nearest((value * inverse_or_zero(step)).min(f32::from(SCALE)));
            [closest, closest - 1.0, closest + 1.0].map(|n| n.clamp(0.0, f32::from(SCALE)))
        };
        let mut best = ((0.0, 0.0), f32::INFINITY);
        for scale in around(self.scale, d) {
            for min in around(self.min, dmin) {
                let line = Self { scale: d * scale, min: dmin * min };
                let error = line.error::<N, LEVEL>(x, &weights);
                if error < best.1 {
                    best = ((scale, min), error);
                }
            }
        }
        best.0
    }

    /// The weighted squared error of the nearest levels.
    fn error<const N: usize, const LEVEL: u8>(self, x: &[f32; N], weights: &[f32; N]) -> f32 {
        let level = self.rounding::<LEVEL>();
        sum::<N>(|i| {
            let error = self.scale * level(x[i]) - self.min - x[i];
            weights[i] * error * error
        })
    }
}

/// Weighted sums that do not depend on the levels.
struct Sums {
    weights: f32,
    x: f32,
    square: f32,
}

impl Sums {
    fn new<const N: usize>(x: &[f32; N], weights: &[f32; N]) -> Self {
        Self {
            weights: sum::<N>(|i| weights[i]),
            x: sum::<N>(|i| weights[i] * x[i]),
            square: sum::<N>(|i| weights[i] * x[i] * x[i]),
        }
    }

    /// The line of least weighted squared error for given levels, and that error:
    /// the minimum of `Σ w (scale q - min - x)²` with `min >= 0`.
    fn fit(&self, &Moments { q, qq, qx }: &Moments) -> (Line, f32) {
        let scale = (self.weights * qx - q * self.x) / (self.weights * qq - q * q);
        let min = (scale * q - self.x) / self.weights;
        let line = if min > 0.0 { Line { scale, min } } else { Line { scale: qx / qq, min: 0.0 } };
        // A degenerate rounding gives a NaN here, which is below no other error.
        let error = self.square - line.scale * qx + line.min * self.x;
        (line, if line.scale > 0.0 { error } else { f32::INFINITY })
    }
}
