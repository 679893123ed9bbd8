//! Rounding in a direction: the exact result of an operation, rounded as the MODE register says.
//!
//! Rounding to nearest is what the host does. The other directions are rare, so they are computed
//! with integers: one way for all formats.

use super::wave::FloatMode;

/// The direction of rounding; the numbers are those of the MODE register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounding {
    /// To the nearest value, ties to the even one.
    NearestEven,
    Up,
    Down,
    TowardZero,
}

/// A format of floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FloatFormat {
    /// The bits of a value.
    bits: u32,
    /// Stored bits of the mantissa.
    mantissa: u32,
}

pub(crate) const F16: FloatFormat = FloatFormat { bits: 16, mantissa: 10 };
pub(crate) const F32: FloatFormat = FloatFormat { bits: 32, mantissa: 23 };
pub(crate) const F64: FloatFormat = FloatFormat { bits: 64, mantissa: 52 };

/// `magnitude * 2^exponent`, with a sign.
#[derive(Clone, Copy, Debug)]
struct Exact {
    negative: bool,
    magnitude: u128,
    exponent: i32,
}

impl Rounding {
    /// The rounding of f32.
    pub(crate) fn of_f32(mode: FloatMode) -> Self {
        Self::from_bits(mode.bits)
    }

    /// The rounding of f16 and f64.
    pub(crate) fn of_f16(mode: FloatMode) -> Self {
        Self::from_bits(mode.bits >> 2)
    }

    /// The direction of two bits.
    fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::NearestEven,
            1 => Self::Up,
            2 => Self::Down,
            _ => Self::TowardZero,
        }
    }

    /// `a + b`.
    pub(crate) fn add(self, format: FloatFormat, a: u64, b: u64) -> u64 {
        match (format.exact(a), format.exact(b)) {
            (Some(a), Some(b)) => self.sum(format, a, b),
            _ => format.special(a, format.one(), b),
        }
    }

    /// `a * b`.
    pub(crate) fn multiply(self, format: FloatFormat, a: u64, b: u64) -> u64 {
        match (format.exact(a), format.exact(b)) {
            (Some(a), Some(b)) => self.round(format, a.times(b)),
            _ => format.special(a, b, format.zero_of(a, b)),
        }
    }

    /// `a * b + c`, rounded once.
    pub(crate) fn multiply_add(self, format: FloatFormat, a: u64, b: u64, c: u64) -> u64 {
        match (format.exact(a), format.exact(b), format.exact(c)) {
            (Some(a), Some(b), Some(c)) => self.sum(format, a.times(b), c),
            _ => format.special(a, b, c),
        }
    }

    /// A float of another format.
    pub(crate) fn convert(self, to: FloatFormat, from: FloatFormat, value: u64) -> u64 {
        match from.exact(value) {
            Some(value) => self.round(to, value),
            None => to.special_of(from, value),
        }
    }

    /// The float of an integer.
    pub(crate) fn of_integer(self, format: FloatFormat, value: i64) -> u64 {
        let magnitude = value.unsigned_abs().into();
        self.round(format, Exact { negative: value < 0, magnitude, exponent: 0 })
    }

    fn sum(self, format: FloatFormat, a: Exact, b: Exact) -> u64 {
        if a.magnitude == 0 && b.magnitude == 0 {
            // Zeros of one sign keep it.
            let negative = if a.negative == b.negative { a.negative } else { self == Self::Down };
            return self.round(format, Exact { negative, ..a });
        }
        if a.magnitude == 0 || b.magnitude == 0 {
            return self.round(format, if a.magnitude == 0 { b } else { a });
        }
        let (high, low) = if a.top() >= b.top() { (a, b) } else { (b, a) };
        // The higher one has at most 106 bits, so that none of the lower one is lost where the two
        // nearly cancel. Elsewhere one bit stands for all that is lost.
        let up = high.magnitude.leading_zeros().saturating_sub(2);
        let (magnitude, exponent) = (high.magnitude << up, high.exponent - up as i32);
        let distance = low.exponent - exponent;
        let moved = if distance >= 0 {
            low.magnitude << distance
        } else {
            let distance = distance.unsigned_abs();
            let kept = low.magnitude.checked_shr(distance).unwrap_or(0);
            let is_exact = distance < 128 && kept << distance == low.magnitude;
            kept | u128::from(!is_exact)
        };
        let (negative, magnitude) = if high.negative == low.negative {
            (high.negative, magnitude + moved)
        } else if magnitude == moved {
            (self == Self::Down, 0)
        } else if magnitude > moved {
            (high.negative, magnitude - moved)
        } else {
            (low.negative, moved - magnitude)
        };
        self.round(format, Exact { negative, magnitude, exponent })
    }

    fn round(self, format: FloatFormat, exact: Exact) -> u64 {
        let Exact { negative, magnitude, exponent } = exact;
        let sign = u64::from(negative) << (format.bits - 1);
        if magnitude == 0 {
            return sign;
        }
        // The unit of the last place: of a normal number, but at least that of denormals.
        let unit = (exact.top() - format.mantissa as i32).max(format.least_exponent());
        let (kept, is_half, is_more) = match unit - exponent {
            up @ ..=0 => (magnitude << up.unsigned_abs(), false, false),
            down => {
                let down = down.unsigned_abs();
                let kept = magnitude.checked_shr(down).unwrap_or(0);
                let half = magnitude.checked_shr(down - 1).unwrap_or(0) & 1 != 0;
                let below = if down > 128 { magnitude } else { magnitude << (128 - down) << 1 };
                (kept, half, below != 0)
            }
        };
        let is_inexact = is_half || is_more;
        let adds = match self {
            Self::NearestEven => is_half && (is_more || kept & 1 != 0),
            Self::Up => is_inexact && !negative,
            Self::Down => is_inexact && negative,
            Self::TowardZero => false,
        };
        // A carry out of the mantissa goes to the exponent, where it belongs.
        let kept = kept as u64 + u64::from(adds);
        let exponent_bits = (unit - format.least_exponent()) as u64;
        let bits = (exponent_bits << format.mantissa) + kept;
        if bits < format.infinity() {
            return sign | bits;
        }
        let stays_finite = match self {
            Self::NearestEven => false,
            Self::Up => negative,
            Self::Down => !negative,
            Self::TowardZero => true,
        };
        sign | (format.infinity() - u64::from(stays_finite))
    }
}

impl Exact {
    /// The exponent of the highest bit; of zero, below all others.
    fn top(self) -> i32 {
        match self.magnitude.checked_ilog2() {
            Some(bits) => self.exponent + bits as i32,
            None => i32::MIN,
        }
    }

    fn times(self, other: Self) -> Self {
        Self {
            negative: self.negative != other.negative,
            magnitude: self.magnitude * other.magnitude,
            exponent: self.exponent + other.exponent,
        }
    }
}

impl FloatFormat {
    fn infinity(self) -> u64 {
        ((1 << (self.bits - 1)) - 1) >> self.mantissa << self.mantissa
    }

    /// The exponent of the smallest denormal.
    fn least_exponent(self) -> i32 {
        let bias = (1 << (self.bits - self.mantissa - 2)) - 1;
        1 - bias - self.mantissa as i32
    }

    fn one(self) -> u64 {
        let bias = (1 << (self.bits - self.mantissa - 2)) - 1;
        bias << self.mantissa
    }

    /// The zero with the sign of the product.
    fn zero_of(self, a: u64, b: u64) -> u64 {
        (a ^ b) & 1 << (self.bits - 1)
    }

    /// The value of bits that are neither infinity nor NaN.
    fn exact(self, bits: u64) -> Option<Exact> {
        let magnitude = bits & ((1 << (self.bits - 1)) - 1);
        if magnitude >= self.infinity() {
            return None;
        }
        let field = (magnitude >> self.mantissa) as i32;
        let fraction = magnitude & ((1 << self.mantissa) - 1);
        let implied = u64::from(field > 0) << self.mantissa;
        Some(Exact {
            negative: bits >> (self.bits - 1) & 1 != 0,
            magnitude: (fraction | implied).into(),
            exponent: self.least_exponent() + (field - 1).max(0),
        })
    }

    /// `a * b + c` with an operand that is infinite or NaN, where nothing is rounded.
    fn special(self, a: u64, b: u64, c: u64) -> u64 {
        let value = |bits: u64| match self.bits {
            64 => f64::from_bits(bits),
            32 => f64::from(f32::from_bits(bits as u32)),
            _ => f64::from(super::float::f16_value(bits as u32)),
        };
        F64.special_into(self, value(a).mul_add(value(b), value(c)).to_bits())
    }

    /// Infinity or NaN of another format in this one.
    fn special_of(self, from: Self, bits: u64) -> u64 {
        from.special_into(self, bits)
    }

    /// Infinity or NaN of this format in another one.
    fn special_into(self, to: Self, bits: u64) -> u64 {
        let sign = (bits >> (self.bits - 1) & 1) << (to.bits - 1);
        let fraction = bits & ((1 << self.mantissa) - 1);
        if fraction == 0 {
            return sign | to.infinity();
        }
        let payload = if to.mantissa >= self.mantissa {
            fraction << (to.mantissa - self.mantissa)
        } else {
            fraction >> (self.mantissa - to.mantissa)
        };
        sign | to.infinity() | payload | 1 << (to.mantissa - 1)
    }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "results are exact")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bits32(a: u32) -> u64 {
        a.into()
    }

    fn is_same32(result: u64, expected: f32) -> bool {
        result == u64::from(expected.to_bits())
            || expected.is_nan() && f32::from_bits(result as u32).is_nan()
    }

    fn is_same64(result: u64, expected: f64) -> bool {
        result == expected.to_bits() || expected.is_nan() && f64::from_bits(result).is_nan()
    }

    /// Floats whose exponents are close to each other, and all others.
    fn single() -> impl Strategy<Value = f32> {
        prop_oneof![
            2 => (any::<bool>(), 118u32..138, any::<u32>()).prop_map(|(sign, exponent, bits)| {
                f32::from_bits(u32::from(sign) << 31 | exponent << 23 | bits >> 9)
            }),
            1 => any::<u32>().prop_map(f32::from_bits),
            1 => (any::<bool>(), any::<u32>()).prop_map(|(sign, bits)| {
                f32::from_bits(u32::from(sign) << 31 | bits >> 8)
            }),
        ]
    }

    fn double() -> impl Strategy<Value = f64> {
        prop_oneof![
            2 => (any::<bool>(), 1000u64..1046, any::<u64>()).prop_map(|(sign, exponent, bits)| {
                f64::from_bits(u64::from(sign) << 63 | exponent << 52 | bits >> 12)
            }),
            1 => any::<u64>().prop_map(f64::from_bits),
        ]
    }

    /// The neighbours of a finite value in the direction, by its order among all values.
    fn step(value: f32, up: bool) -> f32 {
        if up { value.next_up() } else { value.next_down() }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]
        #[test]
        fn rounding_to_nearest_is_what_the_host_does(
            a in single(), b in single(), c in single(), x in double(), y in double(), z in double(),
        ) {
            let nearest = Rounding::NearestEven;
            let [p, q, r] = [a, b, c].map(|value| bits32(value.to_bits()));
            prop_assert!(is_same32(nearest.add(F32, p, q), a + b), "{a:e} + {b:e}");
            prop_assert!(is_same32(nearest.multiply(F32, p, q), a * b), "{a:e} * {b:e}");
            let sum = nearest.multiply_add(F32, p, q, r);
            prop_assert!(is_same32(sum, a.mul_add(b, c)), "{a:e} * {b:e} + {c:e}");
            let [p, q, r] = [x, y, z].map(f64::to_bits);
            prop_assert!(is_same64(nearest.add(F64, p, q), x + y), "{x:e} + {y:e}");
            prop_assert!(is_same64(nearest.multiply(F64, p, q), x * y), "{x:e} * {y:e}");
            let sum = nearest.multiply_add(F64, p, q, r);
            prop_assert!(is_same64(sum, x.mul_add(y, z)), "{x:e} * {y:e} + {z:e}");
            prop_assert!(is_same32(nearest.convert(F32, F64, p), x as f32), "{x:e}");
            let half = u64::from(super::super::float::f64_to_f16(x));
            prop_assert!(x.is_nan() || nearest.convert(F16, F64, p) == half, "{x:e}");
        }

        /// The exact sum of two f32 that are close to each other is an f64.
        #[test]
        fn directed_sums_and_products_are_next_to_the_exact_result(a in single(), b in single()) {
            let (wide_a, wide_b) = (f64::from(a), f64::from(b));
            let [p, q] = [a, b].map(|value| bits32(value.to_bits()));
            let error = {
                let sum = wide_a + wide_b;
                let part = sum - wide_a;
                (wide_a - (sum - part)) + (wide_b - part)
            };
            let directions = [Rounding::Up, Rounding::Down, Rounding::TowardZero];
            let products = directions.map(|rounding| rounding.multiply(F32, p, q));
            let mut cases = vec![(wide_a * wide_b, products)];
            if error == 0.0 {
                let sums = directions.map(|rounding| rounding.add(F32, p, q));
                cases.push((wide_a + wide_b, sums));
            }
            for (exact, results) in cases {
                if !exact.is_finite() {
                    continue;
                }
                let [up, down, zero] = results.map(|bits| f32::from_bits(bits as u32));
                prop_assert!(f64::from(up) >= exact && f64::from(down) <= exact, "{a:e} {b:e}");
                prop_assert!(up == down || step(down, true) == up, "{a:e} {b:e}: {down:e} {up:e}");
                prop_assert!((up == down) == (f64::from(up) == exact));
                prop_assert_eq!(zero, if exact > 0.0 { down } else { up });
            }
        }
    }

    #[test]
    fn sums_that_cancel_are_minus_zero_only_when_rounding_down() {
        let [one, minus_one] = [1f32, -1.0].map(|value| bits32(value.to_bits()));
        let sum = |rounding: Rounding| rounding.add(F32, one, minus_one);
        assert_eq!(sum(Rounding::Down), 1 << 31);
        assert_eq!([Rounding::NearestEven, Rounding::Up, Rounding::TowardZero].map(sum), [0; 3]);
    }

    #[test]
    fn overflow_is_infinite_only_away_from_zero() {
        let most = bits32(f32::MAX.to_bits());
        let least = most | 1 << 31;
        let (infinity, sign) = (0x7f80_0000, 1 << 31);
        let sums =
            |rounding: Rounding| (rounding.add(F32, most, most), rounding.add(F32, least, least));
        assert_eq!(sums(Rounding::NearestEven), (infinity, sign | infinity));
        assert_eq!(sums(Rounding::Up), (infinity, least));
        assert_eq!(sums(Rounding::Down), (most, sign | infinity));
        assert_eq!(sums(Rounding::TowardZero), (most, least));
    }

    #[test]
    fn integers_and_halves_round_in_each_direction() {
        let all = [0, 1, 2, 3].map(Rounding::from_bits);
        assert_eq!(
            all.map(|rounding| rounding.of_integer(F32, 0x0100_0001)),
            [0x4b80_0000, 0x4b80_0001, 0x4b80_0000, 0x4b80_0000]
        );
        let third = bits32((-1.0f32 / 3.0).to_bits());
        assert_eq!(
            all.map(|rounding| rounding.convert(F16, F32, third)),
            [0xb555, 0xb555, 0xb556, 0xb555]
        );
        // Half of the smallest denormal.
        let tiny = bits32(2f32.powi(-25).to_bits());
        assert_eq!(all.map(|rounding| rounding.convert(F16, F32, tiny)), [0, 1, 0, 0]);
    }
}
