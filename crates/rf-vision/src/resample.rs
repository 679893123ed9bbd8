//! Resampling in fixed point, bit for bit as Pillow's, with which the models were trained.

use std::f64::consts::PI;

use crate::rgb::Rgb;

/// The interpolation between pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interpolation {
    Bilinear,
    Bicubic,
    Lanczos,
}

impl Interpolation {
    /// The distance from which on the kernel is zero.
    fn radius(self) -> f64 {
        match self {
            Self::Bilinear => 1.0,
            Self::Bicubic => 2.0,
            Self::Lanczos => 3.0,
        }
    }

    fn at(self, x: f64) -> f64 {
        let x = x.abs();
        match self {
            Self::Bilinear => (1.0 - x).max(0.0),
            Self::Bicubic => {
                const A: f64 = -0.5;
                if x < 1.0 {
                    ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0
                } else if x < 2.0 {
                    (((x - 5.0) * x + 8.0) * x - 4.0) * A
                } else {
                    0.0
                }
            }
            Self::Lanczos if x < 3.0 => sinc(x) * sinc(x / 3.0),
            Self::Lanczos => 0.0,
        }
    }
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 { 1.0 } else { (x * PI).sin() / (x * PI) }
}

/// Resizes a picture: first its rows, then its columns. A side that stays is not filtered.
pub(crate) fn resize(picture: &Rgb, [width, height]: [usize; 2], kernel: Interpolation) -> Rgb {
    let mut picture = picture.clone();
    if width != picture.width() {
        let axis = Axis::new(picture.width(), width, kernel);
        let rows = (0..picture.height()).flat_map(|y| axis.filter_row(picture.row(y)));
        let pixels = rows.collect();
        picture = Rgb::new(width, picture.height(), pixels).expect("a row per row");
    }
    if height != picture.height() {
        let axis = Axis::new(picture.height(), height, kernel);
        let rows = axis.taps.iter().flat_map(|taps| taps.sum_rows(&picture));
        let pixels = rows.collect();
        picture = Rgb::new(width, height, pixels).expect("as many rows as taps");
    }
    picture
}

/// Bits after the point of a weight.
const FRACTION_BITS: u32 = 22;
const HALF: i32 = 1 << (FRACTION_BITS - 1);

/// The weights of each output pixel along one side.
struct Axis {
    taps: Vec<Taps>,
}

/// Weights of successive input pixels.
struct Taps {
    first: usize,
    weights: Vec<i32>,
}

impl Axis {
    fn new(input: usize, output: usize, kernel: Interpolation) -> Self {
        let scale = input as f64 / output as f64;
        let filter_scale = scale.max(1.0);
        let support = kernel.radius() * filter_scale;
        let taps = (0..output).map(|i| {
            let centre = (i as f64 + 0.5) * scale;
            let first = (centre - support + 0.5).max(0.0) as usize;
            let end = ((centre + support + 0.5) as usize).min(input);
            let weight = |x: usize| kernel.at((x as f64 - centre + 0.5) * (1.0 / filter_scale));
            let weights: Vec<f64> = (first..end).map(weight).collect();
            let sum: f64 = weights.iter().sum();
            let fixed = |weight: f64| {
                let weight = weight / sum * f64::from(1 << FRACTION_BITS);
                (weight + 0.5_f64.copysign(weight)) as i32
            };
            Taps { first, weights: weights.into_iter().map(fixed).collect() }
        });
        Self { taps: taps.collect() }
    }

    fn filter_row(&self, row: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.taps.len() * 3);
        for Taps { first, weights } in &self.taps {
            let mut sums = [HALF; 3];
            for (weight, pixel) in weights.iter().zip(row[first * 3..].chunks_exact(3)) {
                for (sum, value) in sums.iter_mut().zip(pixel) {
                    *sum += weight * i32::from(*value);
                }
            }
            out.extend(sums.map(byte));
        }
        out
    }
}

impl Taps {
    /// The row of the output: a sum of rows.
    fn sum_rows(&self, picture: &Rgb) -> Vec<u8> {
        let mut sums = vec![HALF; picture.width() * 3];
        for (row, weight) in (self.first..).zip(&self.weights) {
            for (sum, value) in sums.iter_mut().zip(picture.row(row)) {
                *sum += weight * i32::from(*value);
            }
        }
        sums.into_iter().map(byte).collect()
    }
}

fn byte(sum: i32) -> u8 {
    (sum >> FRACTION_BITS).clamp(0, 255) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_of_one_colour_keeps_it() {
        let picture = Rgb::new(7, 5, [9, 130, 255].repeat(35)).unwrap();
        for kernel in [Interpolation::Bilinear, Interpolation::Bicubic, Interpolation::Lanczos] {
            for size in [[3, 2], [7, 11], [20, 5], [40, 1]] {
                let resized = resize(&picture, size, kernel);
                assert_eq!(resized.size(), size);
                let pixels = resized.pixels().chunks_exact(3);
                assert!(pixels.into_iter().all(|pixel| pixel == [9, 130, 255]), "{kernel:?}");
            }
        }
    }

    #[test]
    fn the_same_size_is_a_copy() {
        let picture = Rgb::new(2, 2, (0..12).collect()).unwrap();
        assert_eq!(resize(&picture, [2, 2], Interpolation::Lanczos), picture);
    }
}
