//! Operations of f16, f32 and f64, and conversions.

use super::float::{IeeeSelection, NumberSelection, Selection};
use super::{Lanes, ValuOp, Vector, f, float, is_set, per_lane};

fn h(bits: u32) -> f32 {
    float::f16_value(bits)
}

fn d(bits: u64) -> f64 {
    f64::from_bits(bits)
}

fn sin_turns(value: f32) -> f32 {
    let turns = f64::from(value).fract();
    if (turns * 2.0).fract() == 0.0 {
        return 0f32.copysign(value);
    }
    (turns * std::f64::consts::TAU).sin() as f32
}

fn cos_turns(value: f32) -> f32 {
    let turns = f64::from(value).fract().abs();
    let is_odd_quarter = (turns * 4.0).fract() == 0.0 && (turns * 2.0).fract() != 0.0;
    if is_odd_quarter {
        return 0.0;
    }
    (turns * std::f64::consts::TAU).cos() as f32
}

fn reciprocal_root(value: f32) -> f32 {
    (1.0 / f64::from(value).sqrt()) as f32
}

/// The mantissa in 0.5..1 and the exponent of an f32.
fn split(value: f32) -> (f32, i32) {
    let (mantissa, exponent) = float::split_f64(f64::from(value));
    (mantissa as f32, exponent)
}

impl Vector<'_> {
    /// Returns true if the operation was one of floats.
    pub(super) fn real(&mut self, op: ValuOp) -> bool {
        self.real32(op) || self.real16(op) || self.real64(op) || self.convert(op)
    }

    fn f1(&mut self, operation: impl Fn(f32) -> f32) {
        let lanes = self.map1(|a| operation(f(a)).to_bits());
        self.put_f32(lanes);
    }

    fn f2(&mut self, operation: impl Fn(f32, f32) -> f32) {
        let lanes = self.map2(|a, b| operation(f(a), f(b)).to_bits());
        self.put_f32(lanes);
    }

    fn f3(&mut self, operation: impl Fn(f32, f32, f32) -> f32) {
        let lanes = self.map3(|a, b, c| operation(f(a), f(b), f(c)).to_bits());
        self.put_f32(lanes);
    }

    pub(super) fn real32(&mut self, op: ValuOp) -> bool {
        match op {
            ValuOp::AddF32 => self.f2(|a, b| a + b),
            ValuOp::SubF32 => self.f2(|a, b| a - b),
            ValuOp::SubrevF32 => self.f2(|a, b| b - a),
            ValuOp::MulF32 => self.f2(|a, b| a * b),
            ValuOp::MinF32
            | ValuOp::MaxF32
            | ValuOp::Min3F32
            | ValuOp::Max3F32
            | ValuOp::Med3F32
            | ValuOp::MaxminF32
            | ValuOp::MinmaxF32 => {
                let lanes = self.selection(op);
                self.put_f32(lanes);
            }
            ValuOp::FmacF32 => {
                let lanes = self.fma_accumulate();
                self.put_f32(lanes);
            }
            ValuOp::FmaF32 | ValuOp::FmamkF32 | ValuOp::FmaakF32 => {
                let lanes = self.fma();
                self.put_f32(lanes);
            }
            ValuOp::FractF32 => self.f1(float::fraction),
            ValuOp::TruncF32 => self.f1(f32::trunc),
            ValuOp::CeilF32 => self.f1(f32::ceil),
            ValuOp::FloorF32 => self.f1(f32::floor),
            ValuOp::RndneF32 => self.f1(f32::round_ties_even),
            ValuOp::ExpF32 | ValuOp::SExpF32 => {
                self.f1(|a| float::transcendental(a, |a| f64::from(a).exp2() as f32));
            }
            ValuOp::LogF32 | ValuOp::SLogF32 => {
                self.f1(|a| float::transcendental(a, |a| f64::from(a).log2() as f32));
            }
            ValuOp::RcpF32 | ValuOp::RcpIflagF32 | ValuOp::SRcpF32 => {
                self.f1(f32::recip);
            }
            ValuOp::RsqF32 | ValuOp::SRsqF32 => {
                self.f1(reciprocal_root);
            }
            ValuOp::SqrtF32 | ValuOp::SSqrtF32 => {
                self.f1(f32::sqrt);
            }
            ValuOp::SinF32 => self.f1(|a| float::transcendental(a, sin_turns)),
            ValuOp::CosF32 => self.f1(|a| float::transcendental(a, cos_turns)),
            ValuOp::LdexpF32 => {
                let lanes = self.map2(|a, b| float::scale(f(a), b as i32).to_bits());
                self.put_f32(lanes);
            }
            ValuOp::FrexpMantF32 => self.f1(|a| split(a).0),
            ValuOp::FrexpExpI32F32 => {
                let lanes = self.map1(|a| split(f(a)).1 as u32);
                self.put(&lanes);
            }
            ValuOp::DivScaleF32 => {
                let mut scaled = 0;
                let (mut x, mut y, mut z) = (None, None, None);
                let (a, b, c) =
                    (self.source(0, &mut x), self.source(1, &mut y), self.source(2, &mut z));
                let lanes = per_lane(|lane| {
                    let (value, flag) = float::div_scale(f(a[lane]), f(b[lane]), f(c[lane]));
                    scaled |= u32::from(flag) << lane;
                    value.to_bits()
                });
                self.put_mask(self.instruction.dst_mask, scaled);
                self.put_f32(lanes);
            }
            ValuOp::DivFmasF32 => {
                let vcc = self.wave.vcc();
                let (mut x, mut y, mut z) = (None, None, None);
                let (a, b, c) =
                    (self.source(0, &mut x), self.source(1, &mut y), self.source(2, &mut z));
                let lanes = per_lane(|lane| {
                    let scaled = is_set(vcc, lane);
                    float::div_fmas(f(a[lane]), f(b[lane]), f(c[lane]), scaled).to_bits()
                });
                self.put_f32(lanes);
            }
            ValuOp::DivFixupF32 => self.f3(float::div_fixup),
            _ => return false,
        }
        true
    }

    /// The values that a minimum, a maximum or a combination of them selects.
    pub(super) fn selection(&self, op: ValuOp) -> Lanes {
        if self.wave.mode.ieee {
            self.selection_by::<IeeeSelection>(op)
        } else {
            self.selection_by::<NumberSelection>(op)
        }
    }

    fn selection_by<S: Selection>(&self, op: ValuOp) -> Lanes {
        match op {
            ValuOp::MinF32 => self.map2(|a, b| S::min(f(a), f(b)).to_bits()),
            ValuOp::MaxF32 => self.map2(|a, b| S::max(f(a), f(b)).to_bits()),
            ValuOp::Min3F32 => self.select3(|a, b, c| S::min(S::min(a, b), c)),
            ValuOp::Max3F32 => self.select3(|a, b, c| S::max(S::max(a, b), c)),
            ValuOp::MaxminF32 => self.select3(|a, b, c| S::min(S::max(a, b), c)),
            ValuOp::MinmaxF32 => self.select3(|a, b, c| S::max(S::min(a, b), c)),
            _ => self.select3(|a, b, c| float::median([a, b, c], S::min, S::max)),
        }
    }

    fn select3(&self, select: impl Fn(f32, f32, f32) -> f32) -> Lanes {
        self.map3(|a, b, c| select(f(a), f(b), f(c)).to_bits())
    }

    fn h1(&mut self, operation: impl Fn(f32) -> f32) {
        let lanes = self.map1(|a| float::to_f16(operation(h(a))));
        self.put_f16(lanes);
    }

    fn h2(&mut self, operation: impl Fn(f32, f32) -> f32) {
        let lanes = self.map2(|a, b| float::to_f16(operation(h(a), h(b))));
        self.put_f16(lanes);
    }

    fn h3(&mut self, operation: impl Fn(f32, f32, f32) -> f32) {
        let lanes = self.map3(|a, b, c| float::to_f16(operation(h(a), h(b), h(c))));
        self.put_f16(lanes);
    }

    pub(super) fn real16(&mut self, op: ValuOp) -> bool {
        let [min, max] = self.selections();
        match op {
            ValuOp::AddF16 => self.h2(|a, b| a + b),
            ValuOp::SubF16 => self.h2(|a, b| a - b),
            ValuOp::SubrevF16 => self.h2(|a, b| b - a),
            ValuOp::MulF16 => self.h2(|a, b| a * b),
            ValuOp::MinF16 => self.h2(min),
            ValuOp::MaxF16 => self.h2(max),
            ValuOp::FmaF16 | ValuOp::FmamkF16 | ValuOp::FmaakF16 => {
                let lanes = self.map3(|a, b, c| float::fma_f16(h(a), h(b), h(c)));
                self.put_f16(lanes);
            }
            ValuOp::FmacF16 => {
                let lanes = self.map_accumulate(|a, b, c| float::fma_f16(h(a), h(b), h(c)));
                self.put_f16(lanes);
            }
            ValuOp::PkFmacF16 => {
                let lanes = self.map_accumulate(|a, b, c| {
                    let result = |shift: u32| {
                        let half = |bits: u32| h(bits >> shift & 0xffff);
                        float::fma_f16(half(a), half(b), half(c))
                    };
                    result(0) | result(16) << 16
                });
                self.put(&lanes);
            }
            ValuOp::Min3F16 => self.h3(|a, b, c| min(min(a, b), c)),
            ValuOp::Max3F16 => self.h3(|a, b, c| max(max(a, b), c)),
            ValuOp::Med3F16 => self.h3(|a, b, c| float::median([a, b, c], min, max)),
            ValuOp::MaxminF16 => self.h3(|a, b, c| min(max(a, b), c)),
            ValuOp::MinmaxF16 => self.h3(|a, b, c| max(min(a, b), c)),
            ValuOp::DivFixupF16 => self.h3(float::div_fixup),
            ValuOp::RcpF16 => self.h1(f32::recip),
            ValuOp::SqrtF16 => self.h1(f32::sqrt),
            ValuOp::RsqF16 => self.h1(reciprocal_root),
            ValuOp::LogF16 => self.h1(f32::log2),
            ValuOp::ExpF16 => self.h1(f32::exp2),
            ValuOp::SinF16 => self.h1(sin_turns),
            ValuOp::CosF16 => self.h1(cos_turns),
            ValuOp::FloorF16 => self.h1(f32::floor),
            ValuOp::CeilF16 => self.h1(f32::ceil),
            ValuOp::TruncF16 => self.h1(f32::trunc),
            ValuOp::RndneF16 => self.h1(f32::round_ties_even),
            ValuOp::FractF16 => self.h1(|a| float::below(a - a.floor(), h(0x3bff))),
            ValuOp::FrexpMantF16 => self.h1(|a| split(a).0),
            ValuOp::FrexpExpI16F16 => {
                let lanes = self.map1(|a| split(h(a)).1 as u32);
                self.put_half(&lanes);
            }
            ValuOp::LdexpF16 => {
                let scale = |a, b| float::scale_f64(f64::from(h(a)), i32::from(b as i16));
                let lanes = self.map2(|a, b| float::f64_to_f16(scale(a, b)));
                self.put_f16(lanes);
            }
            ValuOp::Dot2F16F16 => {
                // Source registers hold two halves; the sum is rounded once.
                let lanes = self.map3(|a, b, c| {
                    let product = |shift: u32| {
                        f64::from(h(a >> shift & 0xffff)) * f64::from(h(b >> shift & 0xffff))
                    };
                    float::f64_to_f16(float::sum_to_odd(product(0) + product(16), h(c).into()))
                });
                self.put_f16(lanes);
            }
            ValuOp::Dot2Bf16Bf16 => {
                let lanes = self.map3(|a, b, c| {
                    let product = |shift: u32| {
                        float::bf16_value(a >> shift & 0xffff)
                            * float::bf16_value(b >> shift & 0xffff)
                    };
                    float::to_bf16(product(0) + product(16) + float::bf16_value(c & 0xffff))
                });
                self.put_half(&lanes);
            }
            _ => return false,
        }
        true
    }

    fn d1(&mut self, operation: impl Fn(f64) -> f64) {
        let a = self.wide(0);
        let lanes = per_lane(|lane| operation(d(a[lane])));
        self.put_f64(&lanes);
    }

    fn d2(&mut self, operation: impl Fn(f64, f64) -> f64) {
        let (a, b) = (self.wide(0), self.wide(1));
        self.put_f64(&per_lane(|lane| operation(d(a[lane]), d(b[lane]))));
    }

    pub(super) fn real64(&mut self, op: ValuOp) -> bool {
        match op {
            ValuOp::AddF64 => self.d2(|a, b| a + b),
            ValuOp::MulF64 => self.d2(|a, b| a * b),
            ValuOp::MinF64 if self.wave.mode.ieee => self.d2(float::ieee_min_f64),
            ValuOp::MaxF64 if self.wave.mode.ieee => self.d2(float::ieee_max_f64),
            ValuOp::MinF64 => self.d2(float::min_f64),
            ValuOp::MaxF64 => self.d2(float::max_f64),
            ValuOp::TruncF64 => self.d1(f64::trunc),
            ValuOp::CeilF64 => self.d1(f64::ceil),
            ValuOp::FloorF64 => self.d1(f64::floor),
            ValuOp::RndneF64 => self.d1(f64::round_ties_even),
            ValuOp::FractF64 => {
                self.d1(|a| float::below(a - a.floor(), f64::from_bits(0x3fef_ffff_ffff_ffff)));
            }
            ValuOp::RcpF64 => self.d1(f64::recip),
            ValuOp::RsqF64 => self.d1(|a| a.sqrt().recip()),
            ValuOp::SqrtF64 => self.d1(f64::sqrt),
            ValuOp::FrexpMantF64 => self.d1(|a| float::split_f64(a).0),
            ValuOp::FrexpExpI32F64 => {
                let lanes = self.wide(0).map(|a| float::split_f64(d(a)).1 as u32);
                self.put(&lanes);
            }
            ValuOp::LdexpF64 => {
                let mut buffer = None;
                let exponents = *self.source(1, &mut buffer);
                let values = self.wide(0);
                self.put_f64(&per_lane(|lane| {
                    float::scale_f64(d(values[lane]), exponents[lane] as i32)
                }));
            }
            ValuOp::FmaF64 | ValuOp::DivFixupF64 | ValuOp::DivFmasF64 | ValuOp::DivScaleF64 => {
                self.three64(op);
            }
            _ => return false,
        }
        true
    }

    fn three64(&mut self, op: ValuOp) {
        let (a, b, c) = (self.wide(0), self.wide(1), self.wide(2));
        let vcc = self.wave.vcc();
        let mut scaled = 0;
        let lanes = per_lane(|lane| {
            let (a, b, c) = (d(a[lane]), d(b[lane]), d(c[lane]));
            match op {
                ValuOp::DivFixupF64 => float::div_fixup_f64(a, b, c),
                ValuOp::DivFmasF64 => float::div_fmas_f64(a, b, c, is_set(vcc, lane)),
                ValuOp::DivScaleF64 => {
                    let (value, flag) = float::div_scale_f64(a, b, c);
                    scaled |= u32::from(flag) << lane;
                    value
                }
                _ => a.mul_add(b, c),
            }
        });
        if op == ValuOp::DivScaleF64 {
            self.put_mask(self.instruction.dst_mask, scaled);
        }
        self.put_f64(&lanes);
    }

    pub(super) fn convert(&mut self, op: ValuOp) -> bool {
        match op {
            ValuOp::CvtF32I32 => {
                let lanes = self.map1(|a| (a as i32 as f32).to_bits());
                self.put_f32(lanes);
            }
            ValuOp::CvtF32U32 => {
                let lanes = self.map1(|a| (a as f32).to_bits());
                self.put_f32(lanes);
            }
            ValuOp::CvtF32Ubyte0 => self.byte(0),
            ValuOp::CvtF32Ubyte1 => self.byte(8),
            ValuOp::CvtF32Ubyte2 => self.byte(16),
            ValuOp::CvtF32Ubyte3 => self.byte(24),
            // Conversions to integers saturate, and NaN becomes zero.
            ValuOp::CvtU32F32 => self.b1(|a| f(a) as u32),
            ValuOp::CvtI32F32 => self.b1(|a| f(a) as i32 as u32),
            ValuOp::CvtNearestI32F32 => self.b1(|a| (f(a) + 0.5).floor() as i32 as u32),
            ValuOp::CvtFloorI32F32 => self.b1(|a| f(a).floor() as i32 as u32),
            ValuOp::CvtF16F32 => {
                let lanes = self.map1(|a| float::to_f16(f(a)));
                self.put_f16(lanes);
            }
            ValuOp::CvtF32F16 => {
                let lanes = self.map1(|a| h(a).to_bits());
                self.put_f32(lanes);
            }
            ValuOp::CvtF16U16 => {
                let lanes = self.map1(|a| float::to_f16((a & 0xffff) as f32));
                self.put_f16(lanes);
            }
            ValuOp::CvtF16I16 => {
                let lanes = self.map1(|a| float::to_f16(f32::from(a as i16)));
                self.put_f16(lanes);
            }
            ValuOp::CvtU16F16 => {
                let lanes = self.map1(|a| (h(a) as u16).into());
                self.put_half(&lanes);
            }
            ValuOp::CvtI16F16 => {
                let lanes = self.map1(|a| u32::from(h(a) as i16 as u16));
                self.put_half(&lanes);
            }
            ValuOp::CvtPkRtzF16F32 => self
                .b2(|a, b| float::to_f16_toward_zero(f(a)) | float::to_f16_toward_zero(f(b)) << 16),
            ValuOp::CvtPkI16F32 => {
                self.b2(|a, b| u32::from(f(a) as i16 as u16) | u32::from(f(b) as i16 as u16) << 16);
            }
            ValuOp::CvtPkU16F32 => {
                self.b2(|a, b| u32::from(f(a) as u16) | u32::from(f(b) as u16) << 16);
            }
            ValuOp::CvtPkU8F32 => {
                let lanes = self.map3(|a, b, c| {
                    let shift = (b & 3) * 8;
                    c & !(0xff << shift) | u32::from(f(a) as u8) << shift
                });
                self.put(&lanes);
            }
            ValuOp::CvtF32F64 => {
                let lanes = self.wide(0).map(|a| (d(a) as f32).to_bits());
                self.put_f32(lanes);
            }
            ValuOp::CvtI32F64 => {
                let lanes = self.wide(0).map(|a| d(a) as i32 as u32);
                self.put(&lanes);
            }
            ValuOp::CvtU32F64 => {
                let lanes = self.wide(0).map(|a| d(a) as u32);
                self.put(&lanes);
            }
            ValuOp::CvtF64F32 => {
                let lanes = self.map1(|a| a).map(|a| f64::from(f(a)));
                self.put_f64(&lanes);
            }
            ValuOp::CvtF64I32 => {
                let lanes = self.map1(|a| a).map(|a| f64::from(a as i32));
                self.put_f64(&lanes);
            }
            ValuOp::CvtF64U32 => {
                let lanes = self.map1(|a| a).map(f64::from);
                self.put_f64(&lanes);
            }
            _ => return false,
        }
        true
    }

    fn byte(&mut self, shift: u32) {
        let lanes = self.map1(|a| ((a >> shift & 0xff) as f32).to_bits());
        self.put_f32(lanes);
    }
}
