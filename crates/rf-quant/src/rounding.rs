//! Rounding of floats to small integers in plain additions.
//!
//! `f32::round` is a function call per value on the CPU baseline (SSE2), and `as` conversions check
//! for NaN and overflow one value at a time. These functions are additions and selections, so loops
//! over them vectorise. They are valid for magnitudes below 2²².

/// A float whose last bit has the value one. Adding it rounds to an integer, ties to even, in the
/// low bits. The half above 2²³ allows negative integers.
const ONES: f32 = 1.5 * (1 << 23) as f32;

/// Nearest integer, ties to even.
pub(crate) fn nearest(x: f32) -> f32 {
    (x + ONES) - ONES
}

/// Nearest integer, ties away from zero.
pub(crate) fn nearest_half_away(x: f32) -> f32 {
    // With one half itself, 0.49999997 would become 1.
    const BEFORE_HALF: f32 = 0.5f32.next_down();
    floor(x.abs() + BEFORE_HALF).copysign(x)
}

/// Next integer below or equal.
pub(crate) fn floor(x: f32) -> f32 {
    let nearest = nearest(x);
    nearest - if nearest > x { 1.0 } else { 0.0 }
}

/// The low byte, two's complement, of the nearest integer, ties to even.
pub(crate) fn low_byte(x: f32) -> u8 {
    (x + ONES).to_bits() as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes under Miri")]
    fn rounding_agrees_with_the_standard_library() {
        let edges = (-1040..=1040).map(|eighths| eighths as f32 / 8.0);
        for x in edges.flat_map(|x| [x.next_down(), x, x.next_up()]) {
            assert_eq!(nearest(x) as i32, x.round_ties_even() as i32, "{x}");
            assert_eq!(nearest_half_away(x) as i32, x.round() as i32, "{x}");
            assert_eq!(floor(x) as i32, x.floor() as i32, "{x}");
            assert_eq!(low_byte(x), x.round_ties_even() as i32 as u8, "{x}");
        }
    }
}
