//! A bound of the magnitudes of packed weights, from which f16 matmuls choose a unit.

use half::f16;
use rf_quant::{DType, E4m3};

/// An upper bound of the weights in packed planes (low, high, scale and super-scale), and of what
/// their conversion to f16 adds up (`rf/halves.h`). It reads the scales, and for float formats the
/// values.
pub(crate) fn largest_magnitude(dtype: DType, planes: [&[u8]; 4]) -> f32 {
    let [low, _, scale, super_scale] = planes;
    // The largest code, times the largest integer scale where there is one. Formats with minima
    // become f16 as (32 + code) · scale − (32 · scale + minimum), so theirs is 32.
    match dtype {
        DType::F32 => largest(low.as_chunks::<4>().0, |bytes| f32::from_le_bytes(*bytes).abs()),
        DType::F16 => largest_f16(low, 0, 2),
        DType::Bf16 => f32::from_bits(u32::from(largest_bits(low, 0, 2)) << 16),
        DType::Q4_0 => 8.0 * largest_f16(scale, 0, 2),
        DType::Q5_0 => 16.0 * largest_f16(scale, 0, 2),
        DType::Q8_0 | DType::Iq4Nl => 128.0 * largest_f16(scale, 0, 2),
        DType::Q4_1 | DType::Q5_1 => 32.0 * largest_f16(scale, 0, 4) + largest_f16(scale, 2, 4),
        DType::Q2K => {
            480.0 * largest_f16(super_scale, 0, 4) + 15.0 * largest_f16(super_scale, 2, 4)
        }
        DType::Q4K | DType::Q5K => {
            2016.0 * largest_f16(super_scale, 0, 4) + 63.0 * largest_f16(super_scale, 2, 4)
        }
        DType::Q3K => 128.0 * largest_f16(super_scale, 0, 2),
        DType::Q6K | DType::Iq4Xs => 4096.0 * largest_f16(super_scale, 0, 2),
        DType::Iq3S
        | DType::Iq3Xxs
        | DType::Iq2S
        | DType::Iq2Xs
        | DType::Iq2Xxs
        | DType::Iq1M
        | DType::Iq1S => 512.0 * largest_f16(super_scale, 0, 2),
        DType::Tq1_0 | DType::Tq2_0 | DType::Q1_0 => largest_f16(super_scale, 0, 2),
        DType::Q2_0 => 2.0 * largest_f16(super_scale, 0, 2),
        DType::Nvfp4 => 6.0 * largest_scale(scale),
        DType::Mxfp4 => 6.0 * largest_power(scale),
        DType::Mxfp6E2M3 => 7.5 * largest_power(scale),
        DType::Mxfp6E3M2 => 28.0 * largest_power(scale),
    }
}

/// The factor by which weights of at most this magnitude are multiplied before they become f16: a
/// power of two with which the largest is below 2^14. It is 1 for zeros.
pub(crate) fn half_unit(largest: f32) -> f32 {
    let exponent = (largest.to_bits() >> 23) as i32 - 127;
    let is_power = (-112..=126).contains(&exponent);
    match largest {
        0.0 => 1.0,
        _ if is_power => f32::from_bits(((13 - exponent + 127) as u32) << 23),
        // A subnormal bound, or one near the largest float.
        _ if exponent < 0 => f32::from_bits((125 + 127) << 23),
        _ => f32::from_bits((127 - 114) << 23),
    }
}

fn largest<T>(values: &[T], magnitude: impl Fn(&T) -> f32) -> f32 {
    values.iter().map(magnitude).fold(0.0, f32::max)
}

/// The largest magnitude of the f16 at byte `at` of each `stride` bytes.
fn largest_f16(bytes: &[u8], at: usize, stride: usize) -> f32 {
    f16::from_bits(largest_bits(bytes, at, stride)).to_f32()
}

/// The largest of the 16-bit words at byte `at` of each `stride` bytes, without their sign. The
/// order of floats is that of their bits.
fn largest_bits(bytes: &[u8], at: usize, stride: usize) -> u16 {
    let word = |bytes: &[u8]| u16::from_le_bytes([bytes[at], bytes[at + 1]]) & 0x7fff;
    bytes.chunks_exact(stride).map(word).max().unwrap_or(0)
}

/// The largest of scales without sign, whose order is that of their bits.
fn largest_scale(scales: &[u8]) -> f32 {
    E4m3::from_bits(scales.iter().copied().max().unwrap_or(0)).to_f32()
}

/// 2^(e − 127) of the largest exponent e of the microscaling formats.
fn largest_power(exponents: &[u8]) -> f32 {
    let largest = exponents.iter().copied().max().unwrap_or(0);
    f32::from_bits(u32::from(largest.max(1)) << 23)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::PackedLayout;

    #[test]
    fn no_weight_exceeds_the_bound_by_which_its_unit_is_chosen() {
        for &dtype in &DType::ALL {
            let columns = dtype.block_elements().max(256);
            let values: Vec<f32> = (0..4 * columns)
                .map(|i| ((i * 37 % 101) as f32 - 50.0) * if i < columns { 0.001 } else { 0.9 })
                .collect();
            let bytes = rf_quant::quantize_to_vec(dtype, &values).unwrap();
            let mut restored = vec![0.0; values.len()];
            rf_quant::dequantize(dtype, &bytes, &mut restored).unwrap();
            let most = restored.iter().fold(0.0_f32, |most, x| most.max(x.abs()));

            let layout = PackedLayout::new(dtype, 4, columns);
            let sizes = layout.plane_bytes(4);
            let mut packed = vec![0; sizes.iter().sum()];
            layout.pack(&bytes, 4, &mut packed);
            let bound = largest_magnitude(dtype, layout.planes(&packed, 4));
            assert!(
                most > 0.0 && most <= bound && bound <= 400.0 * most,
                "{dtype}: {most} {bound}"
            );
            assert!((8192.0..16384.0).contains(&(bound * half_unit(bound))), "{dtype}");
        }
    }

    #[test]
    fn every_magnitude_has_a_unit() {
        for largest in [0.0, f32::MIN_POSITIVE / 8.0, 1e-37, 1e-20, 1.0, 1023.0, 1e30, f32::MAX] {
            let unit = half_unit(largest);
            assert!(
                unit > 0.0 && (largest * unit).is_finite() && largest * unit < 65504.0,
                "{unit}"
            );
            assert_eq!(((1.0 / unit) * unit).to_bits(), 1.0_f32.to_bits());
        }
    }
}
