//! [`E4m3`], an eight-bit float: values of the KV cache, and the scales of NVFP4.

/// An eight-bit float: sign, four bits of exponent with bias 7, three of mantissa.
///
/// The E4M3 of the OCP 8-bit floating point specification: no infinity, the largest value is 448,
/// the least subnormal 2⁻⁹. Conversion of NaN differs: see [`Self::to_f32`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct E4m3(u8);

/// The value of each code. Subnormals make arithmetic on their bits slow.
static VALUES: [f32; 256] = {
    let mut values = [0.0; 256];
    let mut code = 0;
    while code < 256 {
        values[code] = value(code as u8);
        code += 1;
    }
    values
};

impl E4m3 {
    /// The largest value.
    pub const MAX: f32 = 448.0;

    /// The float with these bits.
    pub fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// The bits.
    pub fn to_bits(self) -> u8 {
        self.0
    }

    /// The nearest value, ties to even. Magnitudes beyond [`Self::MAX`] become the maximum. NaN
    /// becomes 0x7f with the sign of the NaN.
    pub fn from_f32(x: f32) -> Self {
        /// The smallest normal number, with code 8. Below it the code counts steps of 2⁻⁹; this
        /// number is eight steps.
        const LEAST_NORMAL: f32 = 1.0 / 64.0;
        let magnitude = x.abs();
        let code = if magnitude.is_nan() {
            0x7f
        } else if magnitude >= Self::MAX {
            0x7e
        } else if magnitude < LEAST_NORMAL {
            crate::rounding::low_byte(magnitude * 512.0)
        } else {
            // The upper bits of a float are those of an E4M3 except for the bias. A carry out of
            // the mantissa correctly increments the exponent.
            let bits = magnitude.to_bits();
            (((bits + 0x7_ffff + (bits >> 20 & 1)) >> 20) - (120 << 3)) as u8
        };
        Self(code | if x.is_sign_negative() { 0x80 } else { 0 })
    }

    /// The exact value. The NaN of the specification reads as 480, so that kernels need no
    /// instruction for it.
    pub fn to_f32(self) -> f32 {
        VALUES[usize::from(self.0)]
    }
}

const fn value(code: u8) -> f32 {
    /// 2¹²⁰, the difference of the biases.
    const SCALE: f32 = f32::from_bits((120 + 127) << 23);
    let magnitude = f32::from_bits(((code & 0x7f) as u32) << 20) * SCALE;
    if code & 0x80 == 0 { magnitude } else { -magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of a code by the formula of the specification.
    fn specified(code: u8) -> f64 {
        let (exponent, mantissa) = (code >> 3 & 15, f64::from(code & 7));
        let magnitude = match exponent {
            0 => mantissa / 512.0,
            _ => (1.0 + mantissa / 8.0) * f64::from(1 << exponent) / 128.0,
        };
        if code < 0x80 { magnitude } else { -magnitude }
    }

    #[test]
    fn values_are_those_of_the_specification_and_come_back() {
        for code in 0..=255 {
            let x = E4m3::from_bits(code).to_f32();
            assert_eq!(f64::from(x).to_bits(), specified(code).to_bits(), "{code:#04x}");
            if code & 0x7f != 0x7f {
                assert_eq!(E4m3::from_f32(x).to_bits(), code);
            }
        }
        assert_eq!(E4m3::from_bits(0x7e).to_f32().to_bits(), E4m3::MAX.to_bits());
    }

    #[test]
    fn floats_go_to_the_nearest_and_ties_to_even() {
        for code in 0..0x7e_u8 {
            let [low, high] = [code, code + 1].map(|code| E4m3::from_bits(code).to_f32());
            // The conversion is exact, because values have four bits of mantissa.
            let middle = f32::midpoint(low, high);
            let even = code + code % 2;
            for (x, nearest) in
                [(middle.next_down(), code), (middle, even), (middle.next_up(), code + 1)]
            {
                assert_eq!(E4m3::from_f32(x).to_bits(), nearest, "{x}");
                assert_eq!(E4m3::from_f32(-x).to_bits(), nearest | 0x80, "{x}");
            }
        }
    }

    #[test]
    fn what_is_too_large_saturates_and_nan_keeps_its_sign() {
        for x in [448.0f32.next_up(), 464.0, 480.0, 1e9, f32::MAX, f32::INFINITY] {
            assert_eq!(E4m3::from_f32(x).to_bits(), 0x7e);
            assert_eq!(E4m3::from_f32(-x).to_bits(), 0xfe);
        }
        assert_eq!(E4m3::from_f32(f32::NAN.copysign(1.0)).to_bits(), 0x7f);
        assert_eq!(E4m3::from_f32(f32::NAN.copysign(-1.0)).to_bits(), 0xff);
        assert_eq!(E4m3::from_f32(f32::from_bits(1)).to_bits(), 0);
        assert_eq!(E4m3::from_f32(-0.0).to_bits(), 0x80);
    }
}
