//! Functions in terms of the vector operations, with the same polynomial on every ISA.

use super::Simd;

/// `exp` and functions built on it, for every [`Simd`].
pub(crate) trait SimdMath: Simd {
    /// `eˣ` within 2 ulp for −87.3 ≤ x ≤ 88; clamped outside (so `exp(−∞)` is 1.2e−38, not 0).
    ///
    /// Cody-Waite reduction `x = n·ln 2 + r`, `|r| ≤ ½ ln 2`, and a degree-6 polynomial for `eʳ`.
    #[inline(always)]
    fn exp(self, x: Self::F) -> Self::F {
        let low = self.splat(-87.336_54);
        let clamped = self.min(self.max(x, low), self.splat(88.0));
        let n = self.to_i(self.mul(clamped, self.splat(std::f32::consts::LOG2_E)));
        let n_f = self.to_f(n);
        let r = self.fma(n_f, self.splat(-0.693_359_4), clamped);
        let r = self.fma(n_f, self.splat(2.121_944_4e-4), r);
        let mut p = self.splat(1.0 / 720.0);
        for c in [1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
            p = self.fma(p, r, self.splat(c));
        }
        let two_to_n = self.bits_to_f(self.shl(self.add_i(n, self.splat_i(127)), 23));
        self.mul(p, two_to_n)
    }

    /// `eˣ` for x ≤ 0, but 0 below 2⁻¹⁰⁰. Smaller weights would make sums subnormal, and a
    /// multiply-add of subnormals takes a hundred times as long.
    #[inline(always)]
    fn exp_or_zero(self, x: Self::F) -> Self::F {
        // The subtraction is exact above 2⁻⁷⁶.
        self.max(self.sub(self.exp(x), self.splat(2_f32.powi(-100))), self.splat(0.0))
    }

    /// `eˣ − 1` for x ≤ 0, with the precision of small results: `eᵈ(eᵃ − 1) + (eᵈ − 1)` for
    /// `a = max(x, −½)` and `d = x − a`, where a polynomial of degree 9 is `eᵃ − 1`.
    #[inline(always)]
    fn expm1_of_negative(self, x: Self::F) -> Self::F {
        let a = self.max(x, self.splat(-0.5));
        let e = self.exp(self.sub(x, a));
        let mut p = self.splat(1.0 / 362_880.0);
        let factorials = [40_320.0, 5040.0, 720.0, 120.0, 24.0, 6.0, 2.0, 1.0];
        for factorial in factorials {
            p = self.fma(p, a, self.splat(1.0 / factorial));
        }
        self.fma(self.mul(p, a), e, self.sub(e, self.splat(1.0)))
    }

    /// `ln(1 + eˣ)` within a few ulp: `max(x, 0) + ln(1 + u)` for `u = e^−|x|`, and `ln(1 + u)` is
    /// `2·artanh(u / (2 + u))`, whose argument is at most ⅓.
    #[inline(always)]
    fn softplus(self, x: Self::F) -> Self::F {
        let (zero, two) = (self.splat(0.0), self.splat(2.0));
        let u = self.exp(self.sub(zero, self.abs(x)));
        let z = self.div(u, self.add(two, u));
        let z2 = self.mul(z, z);
        let mut series = self.splat(1.0 / 15.0);
        for divisor in [13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
            series = self.fma(series, z2, self.splat(1.0 / divisor));
        }
        self.add(self.max(x, zero), self.mul(self.mul(two, z), series))
    }

    /// `x · σ(x) = x / (1 + e⁻ˣ)`.
    #[inline(always)]
    fn silu(self, x: Self::F) -> Self::F {
        let e = self.exp(self.sub(self.splat(0.0), x));
        self.div(x, self.add(self.splat(1.0), e))
    }

    /// `σ(x) = 1 / (1 + e⁻ˣ)`.
    #[inline(always)]
    fn sigmoid(self, x: Self::F) -> Self::F {
        let (zero, one) = (self.splat(0.0), self.splat(1.0));
        self.div(one, self.add(one, self.exp(self.sub(zero, x))))
    }

    /// `tanh x = 1 − 2 / (e²ˣ + 1)`.
    #[inline(always)]
    fn tanh(self, x: Self::F) -> Self::F {
        let e = self.exp(self.add(x, x));
        let one = self.splat(1.0);
        self.sub(one, self.div(self.splat(2.0), self.add(e, one)))
    }

    /// `½x(1 + tanh(√(2/π)(x + 0.044715x³)))`.
    #[inline(always)]
    fn gelu_tanh(self, x: Self::F) -> Self::F {
        let cubic = self.mul(self.mul(x, x), self.mul(x, self.splat(0.044_715)));
        let inner = self.mul(self.splat(0.797_884_6), self.add(x, cubic));
        let half = self.mul(x, self.splat(0.5));
        self.fma(half, self.tanh(inner), half)
    }

    /// `x · Φ(x) = max(x, 0) − |x| · ½erfc(|x|/√2)`.
    ///
    /// `erfc(z) = p(t) · exp(−z²)` with `t = 1/(1 + 0.3275911 z)`, within 1.5e−7 (Abramowitz and
    /// Stegun 7.1.26).
    #[inline(always)]
    fn gelu_erf(self, x: Self::F) -> Self::F {
        let (zero, one) = (self.splat(0.0), self.splat(1.0));
        let magnitude = self.max(x, self.sub(zero, x));
        let z = self.mul(magnitude, self.splat(std::f32::consts::FRAC_1_SQRT_2));
        let t = self.div(one, self.fma(z, self.splat(0.327_591_1), one));
        let mut p = self.splat(1.061_405_4);
        for c in [-1.453_152, 1.421_413_7, -0.284_496_74, 0.254_829_6] {
            p = self.fma(p, t, self.splat(c));
        }
        let e = self.exp(self.sub(zero, self.mul(z, z)));
        let tail = self.mul(self.mul(p, t), self.mul(e, self.splat(0.5)));
        self.sub(self.max(x, zero), self.mul(magnitude, tail))
    }
}

impl<S: Simd> SimdMath for S {}
