//! The search for points and scales of the codebook formats.
//!
//! The first stage fits a scale to each sub-block: trial scales choose points, and least squares
//! gives the best scale for each choice in closed form. The second stage alternates: it chooses the
//! scale steps and the points of all sub-blocks for a scale of the super-block, then the best scale
//! of the super-block for them.

use super::book::Book;
use crate::F16Le;
use crate::normalized::Normalized;

/// Trial scales per sub-block.
const TRIALS: usize = 16;

/// Rounds of the second stage.
const ROUNDS: usize = 2;

/// The relative error of an f16 above that of a normal one.
const COARSE: f32 = 1.0 / 1024.0;

/// The properties of a format that the search depends on. Sub-blocks have `SUB` values.
pub(super) struct Search<const G: usize, const SUB: usize> {
    pub(super) book: &'static Book<G>,
    pub(super) signs: Signs,
    /// The largest scale step `s`.
    pub(super) most_steps: u8,
    /// Values that have the same shift.
    pub(super) shifted: usize,
    /// The largest magnitude of a sub-block in the first and the last trial, in units of the
    /// largest value of a point.
    pub(super) stretch: (f32, f32),
}

/// Where a format stores the signs of values.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Signs {
    /// The points have signs.
    InPoints,
    /// One sign bit per value.
    Free,
    /// Seven bits per eight values, of which an even number is negative.
    Even,
}

/// A quantised super-block before packing.
pub(super) struct Found {
    pub(super) d: F16Le,
    /// The scale step of each 16 values.
    pub(super) steps: [u8; 16],
    /// The index of the point of each group.
    pub(super) points: [u16; 64],
    /// The shift of each 8 values.
    pub(super) shifts: [u8; 32],
    /// The signs of each 8 values.
    pub(super) signs: [u8; 32],
}

/// The points of a sub-block, and the shift of each.
#[derive(Clone, Copy, Default)]
struct Choice {
    points: [u16; 8],
    shifts: [u8; 8],
}

/// The moments of a choice: `Σ w x q` and `Σ w q²`.
#[derive(Clone, Copy, Default)]
struct Moments {
    xq: f32,
    qq: f32,
}

impl<const G: usize, const SUB: usize> Search<G, SUB> {
    /// Quantises a super-block. `None` if all values are negligible.
    pub(super) fn run(
        &self,
        values: &[f32; 256],
        importance: Option<&[f32; 256]>,
    ) -> Option<Found> {
        let Normalized { values: mut x, factor } = Normalized::new(values)?;
        let weights = Normalized { values: x, factor }.weights::<SUB>(importance);
        let signs = self.take_signs(&mut x, &weights);
        let x = x.as_chunks::<SUB>().0;
        let weights = weights.as_chunks::<SUB>().0;

        let mut scales = [0.0; 16];
        for ((x, weights), scale) in x.iter().zip(weights).zip(&mut scales) {
            *scale = self.fit_scale(x, weights);
        }
        let largest = scales.iter().fold(0.0, |a: f32, b| a.max(*b));
        let mut d = largest / f32::from(2 * self.most_steps + 1);
        let (mut steps, mut choices) = ([0; 16], [Choice::default(); 16]);
        for _ in 0..ROUNDS {
            let mut moments = Moments::default();
            for (sub, (x, weights)) in x.iter().zip(weights).enumerate() {
                (steps[sub], choices[sub]) = self.choose_step(scales[sub], d, x, weights);
                let of_sub = self.moments(&choices[sub], x, weights);
                let step = f32::from(2 * steps[sub] + 1);
                moments.xq += of_sub.xq * step;
                moments.qq += of_sub.qq * step * step;
            }
            d = moments.scale().unwrap_or(d);
        }
        let stored = F16Le::saturating_from_f32(d * factor);
        let rounded = stored.to_f32() / factor;
        if rounded == 0.0 {
            return None;
        }
        // Subnormal rounding is so coarse that other steps may be better.
        if (rounded - d).abs() > COARSE * d {
            for (sub, (x, weights)) in x.iter().zip(weights).enumerate() {
                (steps[sub], choices[sub]) = self.choose_step(scales[sub], rounded, x, weights);
            }
        }

        let groups = SUB / G;
        Some(Found {
            d: stored,
            steps: std::array::from_fn(|i| steps[i * 16 / SUB]),
            points: std::array::from_fn(|i| choices[(i / groups) % 16].points[i % groups]),
            shifts: std::array::from_fn(|i| choices[i * 8 / SUB].shifts[i * 8 % SUB / G]),
            signs,
        })
    }

    /// Makes the values positive, and returns their signs. If the signs of eight values must be
    /// even and are not, the value of least weighted square keeps the wrong sign.
    fn take_signs(&self, x: &mut [f32; 256], weights: &[f32; 256]) -> [u8; 32] {
        let mut signs = [0; 32];
        if self.signs == Signs::InPoints {
            return signs;
        }
        let eights = x.as_chunks_mut::<8>().0.iter_mut().zip(weights.as_chunks::<8>().0);
        for ((x, weights), signs) in eights.zip(&mut signs) {
            for (i, x) in x.iter_mut().enumerate() {
                *signs |= u8::from(*x < 0.0) << i;
                *x = x.abs();
            }
            if self.signs == Signs::Even && signs.count_ones() % 2 == 1 {
                let cost = |i: usize| weights[i] * x[i] * x[i];
                let least = (1..8).fold(0, |best, i| if cost(i) < cost(best) { i } else { best });
                *signs ^= 1 << least;
                x[least] = -x[least];
            }
        }
        signs
    }

    /// The best scale found for a sub-block; 0 if it has none.
    fn fit_scale(&self, x: &[f32; SUB], weights: &[f32; SUB]) -> f32 {
        let extreme = x.iter().fold(0.0, |a: f32, x| a.max(x.abs()));
        if extreme == 0.0 {
            return 0.0;
        }
        let shift = self.book.shifts.first();
        let top = shift.map_or(1.0, |shift| shift.largest);
        let (first, last) = self.stretch;
        let ratio = (last / first).powf(1.0 / (TRIALS - 1) as f32);
        let (mut best, mut best_gain) = (0.0, 0.0);
        let mut trial = extreme / (top * first);
        // The last trial is the best scale so far, for which other points may be better.
        for i in 0..=TRIALS {
            let scale = if i < TRIALS { trial } else { best };
            if scale <= 0.0 {
                break;
            }
            let (choice, _) = self.choose(x, weights, scale);
            let moments = self.moments(&choice, x, weights);
            if let Some(scale) = moments.scale() {
                // Least squares lowers the error by this much.
                let gain = scale * moments.xq;
                if gain > best_gain {
                    (best, best_gain) = (scale, gain);
                }
            }
            trial /= ratio;
        }
        best
    }

    /// The scale step of a sub-block near `scale`, and the points for it.
    fn choose_step(
        &self,
        scale: f32,
        d: f32,
        x: &[f32; SUB],
        weights: &[f32; SUB],
    ) -> (u8, Choice) {
        let most = f32::from(self.most_steps);
        let nearest = ((scale / d - 1.0) / 2.0).round();
        let (mut best, mut least) = ((0, Choice::default()), f32::INFINITY);
        let mut tried = None;
        for step in [nearest, nearest - 1.0, nearest + 1.0].map(|step| step.clamp(0.0, most)) {
            if tried.replace(step) == Some(step) {
                continue;
            }
            let (choice, error) = self.choose(x, weights, d * (2.0 * step + 1.0));
            if error < least {
                (best, least) = ((step as u8, choice), error);
            }
        }
        best
    }

    /// The points of a sub-block for a scale, and their error.
    fn choose(&self, x: &[f32; SUB], weights: &[f32; SUB], scale: f32) -> (Choice, f32) {
        let (x, weights) = (x.as_chunks::<G>().0, weights.as_chunks::<G>().0);
        let (mut choice, mut total) = (Choice::default(), 0.0);
        let unit = self.shifted.min(SUB) / G;
        for first in (0..x.len()).step_by(unit) {
            let mut least = f32::INFINITY;
            for (index, shift) in (0..).zip(&self.book.shifts) {
                let (mut points, mut error) = ([0; 8], 0.0);
                for group in first..first + unit {
                    let (point, of_group) =
                        self.book.nearest(shift, &x[group], &weights[group], scale);
                    points[group] = point;
                    error += of_group;
                }
                if error < least {
                    least = error;
                    choice.points[first..first + unit].copy_from_slice(&points[first..][..unit]);
                    choice.shifts[first..first + unit].fill(index);
                }
            }
            total += least;
        }
        (choice, total)
    }

    fn moments(&self, choice: &Choice, x: &[f32; SUB], weights: &[f32; SUB]) -> Moments {
        let mut moments = Moments::default();
        let groups = x.as_chunks::<G>().0.iter().zip(weights.as_chunks::<G>().0);
        for ((x, weights), (point, shift)) in groups.zip(choice.points.iter().zip(choice.shifts)) {
            let point = &self.book.shifts[usize::from(shift)].points[usize::from(*point)];
            for ((x, weight), q) in x.iter().zip(weights).zip(point) {
                moments.xq += weight * x * q;
                moments.qq += weight * q * q;
            }
        }
        moments
    }
}

impl Moments {
    /// The scale of least squares, if it is above 0.
    fn scale(self) -> Option<f32> {
        (self.xq > 0.0 && self.qq > 0.0).then(|| self.xq / self.qq)
    }
}
