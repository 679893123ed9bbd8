//! Arithmetic of floats that Rust's operators do not cover: f16, bf16, special rounding, division.

/// The value of an f16.
#[inline]
pub(crate) fn f16_value(bits: u32) -> f32 {
    // Multiplying moves the exponent and normalises denormals; infinities and NaN need their own.
    let scaled = f32::from_bits((bits & 0x7fff) << 13) * f32::from_bits(0x7780_0000);
    let special = if bits & 0x7c00 == 0x7c00 { 0x7f80_0000 } else { 0 };
    f32::from_bits(scaled.to_bits() | special | (bits & 0x8000) << 16)
}

/// The value of a bf16.
#[inline]
pub(crate) fn bf16_value(bits: u32) -> f32 {
    f32::from_bits(bits << 16)
}

/// The nearest f16, ties to even. It has neither calls nor branches, so that loops over lanes are
/// vectorised.
#[inline]
pub(crate) fn to_f16(value: f32) -> u32 {
    /// The bits of 2^16, which rounds to infinity, and of 2^-14, the smallest normal f16.
    const OVERFLOW: u32 = 143 << 23;
    const SMALLEST_NORMAL: u32 = 113 << 23;

    let magnitude = value.to_bits() & 0x7fff_ffff;
    // The last bit that is kept decides ties. A carry moves on into the exponent.
    let rounded = magnitude.wrapping_add(0xfff + (magnitude >> 13 & 1));
    let normal = rounded.wrapping_sub(112 << 23) >> 13;
    // The last bit of a sum with 0.5 is that of a denormal f16, so the addition rounds to it.
    let denormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let nan = 0x7e00 | magnitude >> 13 & 0x1ff;
    let special = if magnitude > 0x7f80_0000 { nan } else { 0x7c00 };
    let finite = if magnitude < SMALLEST_NORMAL { denormal } else { normal };
    let result = if magnitude >= OVERFLOW { special } else { finite };
    result | value.to_bits() >> 16 & 0x8000
}

/// The nearest f16 of an f64, ties to even.
pub(crate) fn f64_to_f16(value: f64) -> u32 {
    // Rounding to odd first keeps what the second rounding must know.
    let near = value as f32;
    let error = value - f64::from(near);
    let odd = if error == 0.0 || near.to_bits() & 1 != 0 || !near.is_finite() {
        near
    } else if (error > 0.0) == (near > 0.0 || near == 0.0 && value > 0.0) {
        f32::from_bits(near.to_bits() + 1)
    } else {
        f32::from_bits(near.to_bits() - 1)
    };
    to_f16(odd)
}

/// The f16 next to the value toward zero.
pub(crate) fn to_f16_toward_zero(value: f32) -> u32 {
    let near = to_f16(value);
    if f16_value(near).abs() > value.abs() && !value.is_nan() && value.is_finite() {
        return near - 1;
    }
    near
}

/// `a * b + c` of f16 values, rounded once.
pub(crate) fn fma_f16(a: f32, b: f32, c: f32) -> u32 {
    f64_to_f16(sum_to_odd(f64::from(a) * f64::from(b), f64::from(c)))
}

/// `sum + a * b` of bf16 or f16 values, rounded once. Only bf16 values can have a product that is
/// not exact.
#[inline]
pub(crate) fn add_product(sum: f32, a: f32, b: f32) -> f32 {
    if is_moderate(a) && is_moderate(b) { sum + a * b } else { a.mul_add(b, sum) }
}

/// Returns true if products with another such value of f16 or bf16 are exact.
#[inline]
pub(crate) fn is_moderate(value: f32) -> bool {
    value == 0.0 || (67..188).contains(&exponent(value))
}

/// The sum rounded to odd, so that a later rounding to fewer bits is right.
pub(crate) fn sum_to_odd(a: f64, b: f64) -> f64 {
    let sum = a + b;
    if !sum.is_finite() {
        return sum;
    }
    let part = sum - a;
    let error = (a - (sum - part)) + (b - part);
    if error == 0.0 || sum.to_bits() & 1 != 0 {
        return sum;
    }
    let away = (error > 0.0) == (sum > 0.0);
    f64::from_bits(if away { sum.to_bits() + 1 } else { sum.to_bits() - 1 })
}

/// The nearest bf16, ties to even.
pub(crate) fn to_bf16(value: f32) -> u32 {
    let bits = value.to_bits();
    if value.is_nan() {
        return bits >> 16 | 0x40;
    }
    (bits + 0x7fff + (bits >> 16 & 1)) >> 16
}

/// The larger value; a NaN gives way, and +0 is larger than -0. This and the next ones have no
/// branches, so that loops over lanes are vectorised.
#[inline]
pub(crate) fn max(a: f32, b: f32) -> f32 {
    let equal = f32::from_bits(a.to_bits() & b.to_bits());
    let other = if (a < b) | a.is_nan() { b } else { equal };
    if (a > b) | b.is_nan() { a } else { other }
}

/// The smaller value; a NaN gives way, and -0 is smaller than +0.
#[inline]
pub(crate) fn min(a: f32, b: f32) -> f32 {
    let equal = f32::from_bits(a.to_bits() | b.to_bits());
    let other = if (a > b) | a.is_nan() { b } else { equal };
    if (a < b) | b.is_nan() { a } else { other }
}

/// The NaN that an operation makes of the first signalling one, otherwise `other`.
#[inline]
fn quieted_or(a: f32, b: f32, other: f32) -> f32 {
    let is_signalling = |value: f32| value.is_nan() & (value.to_bits() & 0x0040_0000 == 0);
    let quiet = |value: f32| f32::from_bits(value.to_bits() | 0x0040_0000);
    let second = if is_signalling(b) { quiet(b) } else { other };
    if is_signalling(a) { quiet(a) } else { second }
}

fn quieted_f64(value: f64) -> Option<f64> {
    let bits = value.to_bits();
    (value.is_nan() && bits & 1 << 51 == 0).then(|| f64::from_bits(bits | 1 << 51))
}

/// [`max`], but a signalling NaN does not give way: what instructions do in IEEE mode.
#[inline]
pub(crate) fn ieee_max(a: f32, b: f32) -> f32 {
    quieted_or(a, b, max(a, b))
}

/// [`min`], but a signalling NaN does not give way.
#[inline]
pub(crate) fn ieee_min(a: f32, b: f32) -> f32 {
    quieted_or(a, b, min(a, b))
}

/// [`max_f64`], but a signalling NaN does not give way.
pub(crate) fn ieee_max_f64(a: f64, b: f64) -> f64 {
    quieted_f64(a).or(quieted_f64(b)).unwrap_or(max_f64(a, b))
}

/// [`min_f64`], but a signalling NaN does not give way.
pub(crate) fn ieee_min_f64(a: f64, b: f64) -> f64 {
    quieted_f64(a).or(quieted_f64(b)).unwrap_or(min_f64(a, b))
}

/// The larger f64; a NaN gives way.
pub(crate) fn max_f64(a: f64, b: f64) -> f64 {
    if a > b || b.is_nan() {
        a
    } else if a < b || a.is_nan() {
        b
    } else {
        f64::from_bits(a.to_bits() & b.to_bits())
    }
}

/// The smaller f64; a NaN gives way.
pub(crate) fn min_f64(a: f64, b: f64) -> f64 {
    if a < b || b.is_nan() {
        a
    } else if a > b || a.is_nan() {
        b
    } else {
        f64::from_bits(a.to_bits() | b.to_bits())
    }
}

/// An operation of two values that selects one.
pub(crate) type SelectFunction = fn(f32, f32) -> f32;

/// The selection of the smaller or the larger of two values. Modes differ in what NaNs do.
pub(crate) trait Selection {
    fn min(a: f32, b: f32) -> f32;
    fn max(a: f32, b: f32) -> f32;
}

/// Every NaN gives way.
pub(crate) struct NumberSelection;

impl Selection for NumberSelection {
    #[inline]
    fn min(a: f32, b: f32) -> f32 {
        min(a, b)
    }

    #[inline]
    fn max(a: f32, b: f32) -> f32 {
        max(a, b)
    }
}

/// IEEE mode: a signalling NaN does not give way.
pub(crate) struct IeeeSelection;

impl Selection for IeeeSelection {
    #[inline]
    fn min(a: f32, b: f32) -> f32 {
        ieee_min(a, b)
    }

    #[inline]
    fn max(a: f32, b: f32) -> f32 {
        ieee_max(a, b)
    }
}

/// The middle value; with a NaN, the smallest of the others.
#[inline]
pub(crate) fn median(
    [a, b, c]: [f32; 3],
    min: impl Fn(f32, f32) -> f32,
    max: impl Fn(f32, f32) -> f32,
) -> f32 {
    if a.is_nan() || b.is_nan() || c.is_nan() {
        return min(min(a, b), c);
    }
    let most = max(max(a, b), c);
    if most <= a {
        max(b, c)
    } else if most <= b {
        max(a, c)
    } else {
        max(a, b)
    }
}

/// A power, logarithm, sine or cosine, which read and write denormals as zero.
#[inline]
pub(crate) fn transcendental(value: f32, function: impl Fn(f32) -> f32) -> f32 {
    let input = f32::from_bits(super::wave::flush(value.to_bits()));
    f32::from_bits(super::wave::flush(function(input).to_bits()))
}

/// `value * 2^exponent`, rounded once.
pub(crate) fn scale(value: f32, exponent: i32) -> f32 {
    scale_f64(f64::from(value), exponent.clamp(-400, 400)) as f32
}

/// `value * 2^exponent`, rounded once.
pub(crate) fn scale_f64(value: f64, exponent: i32) -> f64 {
    let power = |exponent: i32| f64::from_bits(((exponent + 1023) as u64) << 52);
    let (mut value, mut exponent) = (value, exponent);
    for _ in 0..2 {
        if exponent > 1023 {
            value *= power(1023);
            exponent -= 1023;
        } else if exponent < -1022 {
            // 53 bits less than possible, so that a denormal result is rounded only at the end.
            value *= power(53 - 1022);
            exponent += 1022 - 53;
        }
    }
    value * power(exponent.clamp(-1022, 1023))
}

/// The mantissa in 0.5..1 and the exponent.
pub(crate) fn split_f64(value: f64) -> (f64, i32) {
    if value == 0.0 || !value.is_finite() {
        return (value, 0);
    }
    let (value, moved) =
        if value.abs() < f64::MIN_POSITIVE { (value * 2f64.powi(64), 64) } else { (value, 0) };
    let exponent = (value.to_bits() >> 52 & 0x7ff) as i32 - 1022;
    (f64::from_bits(value.to_bits() & !(0x7ff << 52) | 1022 << 52), exponent - moved)
}

/// The part after the decimal point, below 1.
pub(crate) fn fraction(value: f32) -> f32 {
    below(value - value.floor(), f32::from_bits(0x3f7f_ffff))
}

/// At most `most`, or NaN.
pub(crate) fn below<T: PartialOrd>(value: T, most: T) -> T {
    if value > most { most } else { value }
}

fn exponent(value: f32) -> i32 {
    (value.to_bits() >> 23 & 0xff) as i32
}

fn is_denormal(value: f64) -> bool {
    value != 0.0 && value.abs() < f64::from(f32::MIN_POSITIVE)
}

/// `v_div_scale_f32`: the scaled operand and whether `v_div_fmas` scales back.
pub(crate) fn div_scale(value: f32, denominator: f32, numerator: f32) -> (f32, bool) {
    if numerator == 0.0 || denominator == 0.0 {
        return (f32::NAN, false);
    }
    let is = |other: f32| value.to_bits() == other.to_bits();
    let up = |scaled: bool| if scaled { scale(value, 64) } else { value };
    let quotient_is_denormal = is_denormal(f64::from(numerator) / f64::from(denominator));
    if exponent(numerator) - exponent(denominator) >= 96 {
        (up(is(denominator)), true)
    } else if is_denormal(f64::from(denominator)) {
        (up(true), false)
    } else if quotient_is_denormal {
        (up(is(numerator)), true)
    } else {
        (up(exponent(numerator) <= 23), false)
    }
}

/// `v_div_fmas_f32`: a multiply-add whose result is scaled back.
pub(crate) fn div_fmas(a: f32, b: f32, c: f32, scaled: bool) -> f32 {
    if !scaled {
        return a.mul_add(b, c);
    }
    // Scaled before it is rounded.
    let exact = sum_to_odd(f64::from(a) * f64::from(b), c.into());
    scale_f64(exact, if exponent(c) > 127 { 64 } else { -64 }) as f32
}

/// `v_div_fixup_f32`: the quotient, or the special value that the operands require.
pub(crate) fn div_fixup(quotient: f32, denominator: f32, numerator: f32) -> f32 {
    let negative = denominator.is_sign_negative() != numerator.is_sign_negative();
    let signed = |value: f32| if negative { -value } else { value };
    let quiet = |value: f32| f32::from_bits(value.to_bits() | 0x0040_0000);
    let both_zero = numerator == 0.0 && denominator == 0.0;
    let both_infinite = numerator.is_infinite() && denominator.is_infinite();
    if numerator.is_nan() {
        quiet(numerator)
    } else if denominator.is_nan() {
        quiet(denominator)
    } else if both_zero || both_infinite {
        f32::from_bits(0xffc0_0000)
    } else if denominator == 0.0 || numerator.is_infinite() {
        signed(f32::INFINITY)
    } else if denominator.is_infinite()
        || numerator == 0.0
        || exponent(numerator) - exponent(denominator) < -150
    {
        signed(0.0)
    } else if quotient.is_nan() {
        // The steps before overflowed, so the quotient does.
        signed(f32::INFINITY)
    } else {
        signed(quotient.abs())
    }
}

/// `v_div_scale_f64`.
pub(crate) fn div_scale_f64(value: f64, denominator: f64, numerator: f64) -> (f64, bool) {
    if numerator == 0.0 || denominator == 0.0 {
        return (f64::NAN, false);
    }
    let exponent = |value: f64| (value.to_bits() >> 52 & 0x7ff) as i32;
    let denormal = |value: f64| value != 0.0 && value.abs() < f64::MIN_POSITIVE;
    let is = |other: f64| value.to_bits() == other.to_bits();
    let up = |scaled: bool| if scaled { scale_f64(value, 128) } else { value };
    let inverse_is_denormal = denormal(1.0 / denominator);
    let quotient_is_denormal = denormal(numerator / denominator);
    if exponent(numerator) - exponent(denominator) >= 768 {
        (up(is(denominator)), true)
    } else if denormal(denominator) {
        (up(true), false)
    } else if inverse_is_denormal && quotient_is_denormal {
        (up(is(denominator)), true)
    } else if inverse_is_denormal {
        (scale_f64(value, -128), false)
    } else if quotient_is_denormal {
        (up(is(numerator)), true)
    } else {
        (up(exponent(numerator) <= 53), false)
    }
}

/// `v_div_fmas_f64`.
pub(crate) fn div_fmas_f64(a: f64, b: f64, c: f64, scaled: bool) -> f64 {
    let result = a.mul_add(b, c);
    match scaled {
        false => result,
        true if (c.to_bits() >> 52 & 0x7ff) > 1023 => scale_f64(result, 128),
        true => scale_f64(result, -128),
    }
}

/// `v_div_fixup_f64`.
pub(crate) fn div_fixup_f64(quotient: f64, denominator: f64, numerator: f64) -> f64 {
    let negative = denominator.is_sign_negative() != numerator.is_sign_negative();
    let signed = |value: f64| if negative { -value } else { value };
    let both_infinite = numerator.is_infinite() && denominator.is_infinite();
    if numerator.is_nan() || denominator.is_nan() {
        numerator + denominator
    } else if numerator == 0.0 && denominator == 0.0 || both_infinite {
        f64::from_bits(0xfff8_0000_0000_0000)
    } else if denominator == 0.0 || numerator.is_infinite() {
        signed(f64::INFINITY)
    } else if denominator.is_infinite() || numerator == 0.0 {
        signed(0.0)
    } else if quotient.is_nan() {
        signed(f64::INFINITY)
    } else {
        signed(quotient.abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_to_f16_are_those_of_another_implementation() {
        // Every sign and exponent, with the bits around each rounding and in between.
        let mantissas = (0..1 << 10).flat_map(|kept| {
            [0, 1, 0xfff, 0x1000, 0x1001, 0x1fff].map(|dropped| kept << 13 | dropped)
        });
        let mantissas: Vec<u32> = mantissas.collect();
        for high in 0..1 << 9 {
            for &mantissa in &mantissas {
                let value = f32::from_bits(high << 23 | mantissa);
                let expected = u32::from(half::f16::from_f32(value).to_bits());
                assert_eq!(to_f16(value), expected, "{:#x}", value.to_bits());
            }
        }
    }
}
