//! Operations of floats that MODE rounds in another way than to nearest.

use super::{Lanes, Op, ValuOp, Vector, float, per_lane};
use crate::execute::rounding::{F16, F32, F64, FloatFormat, Rounding};

const SIGN_F32: u32 = 1 << 31;
const SIGN_F16: u32 = 1 << 15;

impl Vector<'_> {
    /// Executes an operation that rounds its result. Returns false for all others, whose results
    /// are the same in every mode, or always rounded to nearest.
    #[cold]
    pub(super) fn directed(&mut self) -> bool {
        if self.instruction.second.is_some() {
            return false;
        }
        let Op::Valu(op) = self.instruction.op else { return false };
        if let Some(lanes) = self.directed32(op) {
            self.put_f32(lanes);
            return true;
        }
        self.directed16(op) || self.directed64(op) || self.directed_pairs(op)
    }

    /// The results of an operation of f32 or a conversion to it.
    #[cold]
    pub(super) fn directed32(&self, op: ValuOp) -> Option<Lanes> {
        let rounding = Rounding::of_f32(self.wave.mode);
        let add = |a: u32, b: u32| rounding.add(F32, a.into(), b.into()) as u32;
        let fma = |a, b, c| multiply_add(rounding, F32, [a, b, c]);
        Some(match op {
            ValuOp::AddF32 => self.map2(add),
            ValuOp::SubF32 => self.map2(|a, b| add(a, b ^ SIGN_F32)),
            ValuOp::SubrevF32 => self.map2(|a, b| add(b, a ^ SIGN_F32)),
            ValuOp::MulF32 => self.map2(|a, b| rounding.multiply(F32, a.into(), b.into()) as u32),
            ValuOp::FmaF32 | ValuOp::FmaakF32 | ValuOp::FmamkF32 => self.map3(fma),
            ValuOp::FmacF32 => self.map_accumulate(fma),
            ValuOp::FmaMixF32 => self.mixed_directed(),
            ValuOp::CvtF32I32 => self.map1(|a| rounding.of_integer(F32, (a as i32).into()) as u32),
            ValuOp::CvtF32U32 => self.map1(|a| rounding.of_integer(F32, a.into()) as u32),
            ValuOp::CvtF32F64 => self.wide(0).map(|a| rounding.convert(F32, F64, a) as u32),
            _ => return None,
        })
    }

    /// The multiply-add of sources of mixed precision.
    fn mixed_directed(&self) -> Lanes {
        let rounding = Rounding::of_f32(self.wave.mode);
        let [a, b, c] = [0, 1, 2].map(|at| self.mixed_source(at));
        per_lane(|lane| {
            let operands = [a[lane], b[lane], c[lane]].map(f32::to_bits);
            multiply_add(rounding, F32, operands)
        })
    }

    fn directed16(&mut self, op: ValuOp) -> bool {
        let rounding = Rounding::of_f16(self.wave.mode);
        let half = |bits: u32| u64::from(bits & 0xffff);
        let add = |a: u32, b: u32| rounding.add(F16, half(a), half(b)) as u32;
        let fma = |a: u32, b: u32, c: u32| {
            multiply_add(rounding, F16, [a & 0xffff, b & 0xffff, c & 0xffff])
        };
        let lanes = match op {
            ValuOp::AddF16 => self.map2(add),
            ValuOp::SubF16 => self.map2(|a, b| add(a, b ^ SIGN_F16)),
            ValuOp::SubrevF16 => self.map2(|a, b| add(b, a ^ SIGN_F16)),
            ValuOp::MulF16 => self.map2(|a, b| rounding.multiply(F16, half(a), half(b)) as u32),
            ValuOp::FmaF16 | ValuOp::FmaakF16 | ValuOp::FmamkF16 => self.map3(fma),
            ValuOp::FmacF16 => self.map_accumulate(fma),
            ValuOp::CvtF16F32 => self.map1(|a| rounding.convert(F16, F32, a.into()) as u32),
            ValuOp::CvtF16U16 => self.map1(|a| rounding.of_integer(F16, half(a) as i64) as u32),
            ValuOp::CvtF16I16 => self.map1(|a| rounding.of_integer(F16, (a as i16).into()) as u32),
            _ => return false,
        };
        self.put_f16(lanes);
        true
    }

    fn directed64(&mut self, op: ValuOp) -> bool {
        let rounding = Rounding::of_f16(self.wave.mode);
        let (a, b) = match op {
            ValuOp::AddF64 | ValuOp::MulF64 | ValuOp::FmaF64 => (self.wide(0), self.wide(1)),
            _ => return false,
        };
        let lanes = match op {
            ValuOp::AddF64 => per_lane(|lane| rounding.add(F64, a[lane], b[lane])),
            ValuOp::MulF64 => per_lane(|lane| rounding.multiply(F64, a[lane], b[lane])),
            _ => {
                let c = self.wide(2);
                per_lane(|lane| rounding.multiply_add(F64, a[lane], b[lane], c[lane]))
            }
        };
        self.put_f64(&lanes.map(f64::from_bits));
        true
    }

    fn directed_pairs(&mut self, op: ValuOp) -> bool {
        let mode = self.wave.mode;
        let rounding = Rounding::of_f16(mode);
        let is_clamped = self.instruction.clamp;
        let result = move |bits: u64| {
            let bits = bits as u32;
            if is_clamped {
                return float::to_f16(mode.clamped(float::f16_value(bits)));
            }
            bits
        };
        match op {
            ValuOp::PkAddF16 => {
                self.pairs2(|a, b| result(rounding.add(F16, a.into(), b.into())));
            }
            ValuOp::PkMulF16 => {
                self.pairs2(|a, b| result(rounding.multiply(F16, a.into(), b.into())));
            }
            ValuOp::PkFmaF16 => self
                .pairs3(|a, b, c| result(rounding.multiply_add(F16, a.into(), b.into(), c.into()))),
            _ => return false,
        }
        true
    }
}

fn multiply_add(rounding: Rounding, format: FloatFormat, operands: [u32; 3]) -> u32 {
    let [a, b, c] = operands.map(u64::from);
    rounding.multiply_add(format, a, b, c) as u32
}
