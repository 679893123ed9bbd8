//! Multiply-add of f32 with one rounding, without the instruction for it.
//!
//! A call of `f32::mul_add` per lane costs more than all the rest of an instruction, where the
//! compiler may not assume the processor's own instruction.

use crate::execute::wave::{Lanes, per_lane};

/// The float of these bits.
fn f(bits: u32) -> f32 {
    f32::from_bits(bits)
}

/// `a * b + c` in each lane, rounded once.
pub(super) fn lanes(a: &Lanes, b: &Lanes, c: &Lanes) -> Lanes {
    // The products are exact. The sums are rounded to 53 bits.
    let sums =
        per_lane(|lane| f64::from(f(a[lane])) * f64::from(f(b[lane])) + f64::from(f(c[lane])));
    if sums.iter().fold(false, |any, &sum| any | is_doubtful(sum)) {
        return per_lane(|lane| exact(f(a[lane]), f(b[lane]), f(c[lane])).to_bits());
    }
    per_lane(|lane| (sums[lane] as f32).to_bits())
}

/// Returns true if the second rounding may be wrong: of a sum in the middle between two f32, or of
/// one that becomes a denormal f32.
#[inline]
fn is_doubtful(sum: f64) -> bool {
    /// The upper half of the smallest f64 that is a normal f32.
    const SMALLEST_NORMAL: u32 = (1023 - 126) << 20;

    // By halves, because processors compare 32-bit integers in more lanes at once. The upper half
    // of a sum that is not zero is not zero, either.
    let (low, high) = (sum.to_bits() as u32, (sum.to_bits() >> 32) as u32 & 0x7fff_ffff);
    let is_middle = low << 3 == 1 << 31;
    let is_denormal = high.wrapping_sub(1) < SMALLEST_NORMAL - 1;
    is_middle | is_denormal
}

/// `a * b + c`, with the sum rounded to odd, so that the second rounding is right.
#[inline]
fn exact(a: f32, b: f32, c: f32) -> f32 {
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + c;
    let part = sum - product;
    let error = (product - (sum - part)) + (c - part);
    // The error of infinities and NaN is NaN, for which no comparison holds.
    // The sign of the distance from zero that the rounding took away.
    let taken = if sum < 0.0 { -error } else { error };
    let (is_less, is_more) = (u64::from(taken > 0.0), u64::from(taken < 0.0));
    let bits = sum.to_bits();
    let is_even = 1 - (bits & 1);
    f64::from_bits(bits + (is_even & is_less) - (is_even & is_more)) as f32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bits of f32 whose exponents are close to each other, zeros, denormals and special values.
    fn operand() -> impl Strategy<Value = u32> {
        let near = (any::<bool>(), 120u32..136, prop_oneof![0u32..16, any::<u32>()]);
        prop_oneof![
            4 => near.prop_map(|(sign, exponent, bits)| {
                u32::from(sign) << 31 | exponent << 23 | (bits.reverse_bits() >> 9)
            }),
            2 => (any::<bool>(), 0u32..70, any::<u32>()).prop_map(|(sign, exponent, bits)| {
                u32::from(sign) << 31 | exponent << 23 | bits >> 9
            }),
            1 => any::<u32>(),
            1 => prop::sample::select(vec![0, 1 << 31, 1, 0x7f80_0000, 0xff80_0000, 0x007f_ffff]),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]
        #[test]
        fn the_result_is_that_of_the_standard_library(
            a in operand(), b in operand(), c in operand(), quiet in operand(),
        ) {
            let expected = f(a).mul_add(f(b), f(c));
            // The second lane decides whether the exact way is taken.
            for other in [0, quiet] {
                let result = lanes(&[a; 32], &[b; 32], &std::array::from_fn(|lane| {
                    if lane == 0 { c } else { other }
                }))[0];
                let is_same = result == expected.to_bits() || expected.is_nan() && f(result).is_nan();
                prop_assert!(is_same, "{a:#x} {b:#x} {c:#x}: {result:#x}, {:#x}", expected.to_bits());
            }
        }
    }
}
