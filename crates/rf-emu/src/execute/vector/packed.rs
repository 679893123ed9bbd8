//! VOP3P: pairs of 16-bit values, mixed precision, dot products.

use super::{LANES, Lanes, OperandType, ValuOp, Vector, f, float, fma, per_lane};
use crate::isa::instruction::SourceOperand;

/// Adds two products of f16 to an f32. The products are exact, each sum is rounded.
pub(super) fn dot2_f16(a: u32, b: u32, c: u32) -> u32 {
    dot2(float::f16_value, a, b, c)
}

/// Adds two products of bf16 to an f32. Each sum is rounded.
fn dot2_bf16(a: u32, b: u32, c: u32) -> u32 {
    dot2(float::bf16_value, a, b, c)
}

fn dot2(value: fn(u32) -> f32, a: u32, b: u32, c: u32) -> u32 {
    let add = |sum: f32, shift: u32| {
        let (a, b) = (value(a >> shift & 0xffff), value(b >> shift & 0xffff));
        float::add_product(sum, a, b)
    };
    add(add(f(c), 0), 16).to_bits()
}

/// The elements of `bits` bits, sign-extended if `signed`.
fn element(value: u32, at: u32, bits: u32, signed: bool) -> i64 {
    let moved = value << (32 - bits * (at + 1));
    if signed { i64::from(moved as i32 >> (32 - bits)) } else { i64::from(moved >> (32 - bits)) }
}

impl Vector<'_> {
    pub(super) fn packed(&mut self, op: ValuOp) -> Result<(), &'static str> {
        if self.matrix(op)? || self.pairs(op) {
            return Ok(());
        }
        match op {
            ValuOp::FmaMixF32 => {
                let lanes = self.mixed();
                self.put_f32(lanes);
            }
            ValuOp::FmaMixloF16 | ValuOp::FmaMixhiF16 => self.mixed_half(op),
            ValuOp::Dot2F32F16 => self.dot2(dot2_f16),
            ValuOp::Dot2F32Bf16 => self.dot2(dot2_bf16),
            ValuOp::Dot2I32I16 => self.dot(16, [true, true], true),
            ValuOp::Dot2U32U16 => self.dot(16, [false, false], false),
            ValuOp::Dot4I32I8 => self.dot(8, [true, true], true),
            ValuOp::Dot4U32U8 => self.dot(8, [false, false], false),
            ValuOp::Dot8I32I4 => self.dot(4, [true, true], true),
            ValuOp::Dot8U32U4 => self.dot(4, [false, false], false),
            // The negation bits mark signed operands.
            ValuOp::Dot4I32Iu8 => self.dot(8, self.signs(), true),
            ValuOp::Dot8I32Iu4 => self.dot(4, self.signs(), true),
            _ => return Err("operation"),
        }
        Ok(())
    }

    pub(super) fn signs(&self) -> [bool; 2] {
        [self.instruction.src[0].neg, self.instruction.src[1].neg]
    }

    fn raw(&self, at: usize) -> Lanes {
        let mut buffer = None;
        match &self.exchanged {
            Some(exchanged) if at < 2 => exchanged[at],
            _ => *self.wave.lanes(self.instruction.src[at].operand, &mut buffer),
        }
    }

    fn dot(&mut self, bits: u32, signed: [bool; 2], signed_result: bool) {
        let (a, b, c) = (self.raw(0), self.raw(1), self.raw(2));
        let clamp = self.instruction.clamp;
        if bits == 8 && !clamp {
            let lanes = per_lane(|lane| {
                (0..4).fold(c[lane], |sum, at| {
                    let byte = |value: u32, signed: bool| {
                        let byte = (value >> (at * 8)) as u8;
                        if signed { i32::from(byte as i8) } else { i32::from(byte) }
                    };
                    let product = byte(a[lane], signed[0]) * byte(b[lane], signed[1]);
                    sum.wrapping_add(product as u32)
                })
            });
            return self.put(&lanes);
        }
        let lanes = per_lane(|lane| {
            let sum: i64 = (0..32 / bits)
                .map(|at| {
                    element(a[lane], at, bits, signed[0]) * element(b[lane], at, bits, signed[1])
                })
                .sum();
            match (clamp, signed_result) {
                (false, _) => (sum as u32).wrapping_add(c[lane]),
                (true, true) => {
                    let sum = sum + i64::from(c[lane] as i32);
                    sum.clamp(i32::MIN.into(), i32::MAX.into()) as u32
                }
                (true, false) => (sum + i64::from(c[lane])).clamp(0, u32::MAX.into()) as u32,
            }
        });
        self.put(&lanes);
    }

    fn dot2(&mut self, operation: impl Fn(u32, u32, u32) -> u32) {
        let sign = |lanes: Lanes, source: &SourceOperand| {
            let flip = u32::from(source.neg) << 15 | u32::from(source.neg_high) << 31;
            let [low, high] = [source.high, source.high_for_high].map(|high| u32::from(high) * 16);
            per_lane(|lane| (lanes[lane] >> low & 0xffff | lanes[lane] >> high << 16) ^ flip)
        };
        let [first, second, third, _] = &self.instruction.src;
        let (a, b) = (sign(self.raw(0), first), sign(self.raw(1), second));
        let flip = u32::from(third.neg) << 31;
        let c = self.raw(2);
        let c = per_lane(|lane| c[lane] ^ flip);
        let lanes = per_lane(|lane| operation(a[lane], b[lane], c[lane]));
        self.put_f32(lanes);
    }

    /// A source of mixed precision as f32.
    pub(super) fn mixed_source(&self, at: usize) -> [f32; LANES] {
        let source = &self.instruction.src[at];
        let raw = self.raw(at);
        let values = match (source.high_for_high, source.high) {
            (false, _) => per_lane(|lane| f(raw[lane])),
            (true, false) => per_lane(|lane| float::f16_value(raw[lane] & 0xffff)),
            (true, true) => per_lane(|lane| float::f16_value(raw[lane] >> 16)),
        };
        let (kept, flip) = (u32::MAX >> u32::from(source.neg_high), u32::from(source.neg) << 31);
        per_lane(|lane| f(values[lane].to_bits() & kept ^ flip))
    }

    /// The multiply-add of sources of mixed precision, rounded to f32.
    fn mixed(&self) -> Lanes {
        let bits = |at| {
            let values = self.mixed_source(at);
            per_lane(|lane| values[lane].to_bits())
        };
        fma::lanes(&bits(0), &bits(1), &bits(2))
    }

    fn mixed_half(&mut self, op: ValuOp) {
        // Rounded to f32, then to f16: LLVM uses it for the conversion of an `fma`.
        let sums = self.mixed();
        let old = self.accumulator();
        let clamp = self.instruction.clamp;
        let lanes = per_lane(|lane| {
            let sum = if clamp { self.clamped(f(sums[lane])) } else { f(sums[lane]) };
            let value = float::to_f16(sum);
            if op == ValuOp::FmaMixloF16 {
                old[lane] & 0xffff_0000 | value
            } else {
                old[lane] & 0xffff | value << 16
            }
        });
        self.put(&lanes);
    }

    /// The operands of the low and of the high result.
    fn pair(&self, at: usize) -> [Lanes; 2] {
        let source = &self.instruction.src[at];
        let lanes = self.raw(at);
        // An inline integer is a sign-extended 32-bit value. A float of an f16 instruction is in
        // the low half, with zero above (`getInlineEncodingV216` of LLVM's AMDGPU target).
        let sign = if source.kind == OperandType::PackedF16 { 0x8000 } else { 0 };
        [(source.high, source.neg), (source.high_for_high, source.neg_high)].map(
            |(high, negated)| {
                let shift = if high { 16 } else { 0 };
                let flip = if negated { sign } else { 0 };
                per_lane(|lane| lanes[lane] >> shift & 0xffff ^ flip)
            },
        )
    }

    pub(super) fn pairs2(&mut self, operation: impl Fn(u32, u32) -> u32) {
        let (a, b) = (self.pair(0), self.pair(1));
        let lanes = per_lane(|lane| {
            let result = |half: usize| operation(a[half][lane], b[half][lane]) & 0xffff;
            result(0) | result(1) << 16
        });
        self.put(&lanes);
    }

    pub(super) fn pairs3(&mut self, operation: impl Fn(u32, u32, u32) -> u32) {
        let (a, b, c) = (self.pair(0), self.pair(1), self.pair(2));
        let lanes = per_lane(|lane| {
            let result =
                |half: usize| operation(a[half][lane], b[half][lane], c[half][lane]) & 0xffff;
            result(0) | result(1) << 16
        });
        self.put(&lanes);
    }

    fn half_pairs(&mut self, operation: impl Fn(f32, f32) -> f32) {
        let (clamp, mode) = (self.instruction.clamp, self.wave.mode);
        self.pairs2(|a, b| {
            let value = operation(float::f16_value(a), float::f16_value(b));
            float::to_f16(if clamp { mode.clamped(value) } else { value })
        });
    }

    fn signed_pairs(&mut self, operation: impl Fn(i16, i16) -> i16) {
        self.pairs2(|a, b| u32::from(operation(a as i16, b as i16) as u16));
    }

    fn signed_triples(&mut self, operation: impl Fn(i16, i16, i16) -> i16) {
        self.pairs3(|a, b, c| u32::from(operation(a as i16, b as i16, c as i16) as u16));
    }

    fn unsigned_pairs(&mut self, operation: impl Fn(u16, u16) -> u16) {
        self.pairs2(|a, b| operation(a as u16, b as u16).into());
    }

    /// Returns true if the operation was one of pairs.
    pub(super) fn pairs(&mut self, op: ValuOp) -> bool {
        let (clamp, mode) = (self.instruction.clamp, self.wave.mode);
        let [min, max] = self.selections();
        match op {
            ValuOp::PkAddF16 => self.half_pairs(|a, b| a + b),
            ValuOp::PkMulF16 => self.half_pairs(|a, b| a * b),
            ValuOp::PkMinF16 => self.half_pairs(min),
            ValuOp::PkMaxF16 => self.half_pairs(max),
            ValuOp::PkFmaF16 => self.pairs3(|a, b, c| {
                let value = |bits| float::f16_value(bits);
                let result = float::fma_f16(value(a), value(b), value(c));
                if clamp { float::to_f16(mode.clamped(value(result))) } else { result }
            }),
            ValuOp::PkMadI16 if clamp => self.signed_triples(|a, b, c| {
                let sum = i32::from(a) * i32::from(b) + i32::from(c);
                sum.clamp(-0x8000, 0x7fff) as i16
            }),
            ValuOp::PkMadU16 if clamp => self.pairs3(|a, b, c| (a * b + c).min(0xffff)),
            ValuOp::PkMadI16 | ValuOp::PkMadU16 => {
                self.pairs3(|a, b, c| a.wrapping_mul(b).wrapping_add(c));
            }
            ValuOp::PkAddI16 if clamp => self.signed_pairs(i16::saturating_add),
            ValuOp::PkSubI16 if clamp => self.signed_pairs(i16::saturating_sub),
            ValuOp::PkAddU16 if clamp => self.unsigned_pairs(u16::saturating_add),
            ValuOp::PkSubU16 if clamp => self.unsigned_pairs(u16::saturating_sub),
            ValuOp::PkAddI16 | ValuOp::PkAddU16 => self.pairs2(u32::wrapping_add),
            ValuOp::PkSubI16 | ValuOp::PkSubU16 => self.pairs2(u32::wrapping_sub),
            ValuOp::PkMulLoU16 => self.pairs2(u32::wrapping_mul),
            ValuOp::PkLshlrevB16 => self.pairs2(|a, b| b << (a & 15)),
            ValuOp::PkLshrrevB16 => self.pairs2(|a, b| b >> (a & 15)),
            ValuOp::PkAshrrevI16 => self.signed_pairs(|a, b| b >> (a & 15)),
            ValuOp::PkMaxI16 => self.signed_pairs(i16::max),
            ValuOp::PkMinI16 => self.signed_pairs(i16::min),
            ValuOp::PkMaxU16 => self.unsigned_pairs(u16::max),
            ValuOp::PkMinU16 => self.unsigned_pairs(u16::min),
            _ => return false,
        }
        true
    }
}
