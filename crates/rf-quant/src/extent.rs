//! Extremes of a block, reduced in independent lanes so that the loop vectorises.

const LANES: usize = 8;

/// Minimum and maximum.
pub(crate) fn range<const N: usize>(values: &[f32; N]) -> (f32, f32) {
    let (mut min, mut max) = ([f32::INFINITY; LANES], [f32::NEG_INFINITY; LANES]);
    for chunk in values.as_chunks::<LANES>().0 {
        for lane in 0..LANES {
            let x = chunk[lane];
            min[lane] = if x < min[lane] { x } else { min[lane] };
            max[lane] = if x > max[lane] { x } else { max[lane] };
        }
    }
    (min.into_iter().fold(min[0], f32::min), max.into_iter().fold(max[0], f32::max))
}

/// The value of largest magnitude, with its sign. The first one if both signs have it. 0 for zeros
/// of either sign.
pub(crate) fn largest<const N: usize>(values: &[f32; N]) -> f32 {
    let (min, max) = range(values);
    if max > -min {
        max
    } else if max < -min {
        min
    } else {
        values.iter().copied().find(|x| max > 0.0 && x.abs() >= max).unwrap_or(0.0)
    }
}

/// The largest magnitude.
pub(crate) fn magnitude<const N: usize>(values: &[f32; N]) -> f32 {
    // The bits of positive floats have the order of the floats, and integers reduce in any order.
    f32::from_bits(values.iter().fold(0, |max, x| x.abs().to_bits().max(max)))
}
