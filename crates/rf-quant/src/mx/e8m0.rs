//! The shared scale of a microscaling block: a byte `e` with the value `2^(e - 127)`.

use crate::extent::magnitude;

/// `2^(e - 127)`. NaN for 255, as in the specification.
pub(super) fn to_f32(e: u8) -> f32 {
    match e {
        0 => exp2(-127),
        255 => f32::NAN,
        _ => exp2(i32::from(e) - 127),
    }
}

/// `2^(e - 128)` for every `e`: half of the scale, which ggml uses with doubled elements. 255 is a
/// power of two as well, not NaN.
pub(super) fn to_f32_halved(e: u8) -> f32 {
    exp2(i32::from(e) - 128)
}

/// The scale byte that puts the largest magnitude of `values` into the top binade of an element
/// format whose largest exponent is `element_max_exponent`; 0 for an all-zero block.
pub(super) fn for_values(values: &[f32; 32], element_max_exponent: i32) -> u8 {
    let bits = magnitude(values).to_bits();
    // Subnormal magnitudes share the exponent of the least normal ones, so the least scale is
    // 2^-127.
    let exponent = (bits >> 23) as i32 - 127;
    let scale = if bits == 0 { 0 } else { exponent - element_max_exponent + 127 };
    scale.clamp(0, 254) as u8
}

/// `2^exponent` for -149 to 127.
fn exp2(exponent: i32) -> f32 {
    if exponent < -126 {
        f32::from_bits(1 << (exponent + 149))
    } else {
        f32::from_bits(((exponent + 127) as u32) << 23)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_powers_of_two() {
        // Unlike the result of `powi`, halves and doubles are exact.
        let mut exact = 1.0 / (1_u128 << 127) as f64;
        for e in 0..255u8 {
            assert_eq!(f64::from(to_f32(e)).to_bits(), exact.to_bits());
            assert_eq!((2.0 * f64::from(to_f32_halved(e))).to_bits(), exact.to_bits());
            exact *= 2.0;
        }
        assert!(to_f32(255).is_nan());
    }
}
