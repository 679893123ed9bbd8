//! Scalar arithmetic. Control flow, waits and barriers are in [`super::workgroup`].

use std::cmp::Ordering;

use super::float;
use super::rounding::{F16, F32, Rounding};
use super::wave::Wave;
use crate::isa::OperandType;
use crate::isa::instruction::{Encoding, Instruction, Operand, register};
use crate::isa::op::SaluOp;

/// The number of leading bits that equal the sign, beyond the first; all ones if all bits do.
fn sign_run(value: u64, bits: u32) -> u32 {
    let value = ((value << (64 - bits)) as i64) >> (64 - bits);
    let folded = (value ^ (value >> 63)) as u64;
    if folded == 0 { u32::MAX } else { folded.leading_zeros() - (64 - bits) }
}

/// The position, or all ones if there is none.
fn found(position: u32, bits: u32) -> u32 {
    if position == bits { u32::MAX } else { position }
}

/// Executes a scalar operation; false if it is not one of arithmetic.
pub(super) fn execute(wave: &mut Wave, instruction: &Instruction, op: SaluOp) -> bool {
    let mut scalar = Scalar { wave, instruction };
    scalar.add_and_compare(op)
        || scalar.bits32(op)
        || scalar.bits64(op)
        || scalar.masks(op)
        || scalar.real(op)
}

/// A function that executes some of the scalar operations; false if the operation is another one.
pub(crate) type ScalarGroup = fn(&mut Wave, &Instruction, SaluOp) -> bool;

/// The function that executes an operation, if it is one of arithmetic that leaves EXEC alone. It
/// is tried with `wave`.
pub(super) fn group(instruction: &Instruction, op: SaluOp, wave: &mut Wave) -> Option<ScalarGroup> {
    let groups: [ScalarGroup; 4] = [
        |wave, instruction, op| Scalar { wave, instruction }.add_and_compare(op),
        |wave, instruction, op| Scalar { wave, instruction }.bits32(op),
        |wave, instruction, op| Scalar { wave, instruction }.bits64(op),
        |wave, instruction, op| Scalar { wave, instruction }.real(op),
    ];
    let is_control = instruction.encoding == Encoding::Sopp;
    groups.into_iter().find(|group| !is_control && group(wave, instruction, op))
}

struct Scalar<'a> {
    wave: &'a mut Wave,
    instruction: &'a Instruction,
}

impl Scalar<'_> {
    fn a(&self) -> u32 {
        self.wave.scalar(self.instruction.src[0].operand)
    }

    fn b(&self) -> u32 {
        self.wave.scalar(self.instruction.src[1].operand)
    }

    fn wide_a(&self) -> u64 {
        self.wave.scalar_wide(self.instruction.src[0].operand)
    }

    fn wide_b(&self) -> u64 {
        self.wave.scalar_wide(self.instruction.src[1].operand)
    }

    fn put(&mut self, value: u32) {
        self.wave.set_scalar(self.instruction.dst, value);
    }

    fn put_wide(&mut self, value: u64) {
        self.wave.set_scalar_wide(self.instruction.dst, value);
    }

    /// Writes a result with a flag.
    fn with_scc(&mut self, (value, scc): (u32, bool)) {
        self.put(value);
        self.wave.scc = scc;
    }

    /// Writes a result whose flag says whether it is not zero.
    fn nonzero(&mut self, value: u32) {
        self.with_scc((value, value != 0));
    }

    fn nonzero_wide(&mut self, value: u64) {
        self.put_wide(value);
        self.wave.scc = value != 0;
    }

    fn immediate(&self) -> i32 {
        i32::from(self.instruction.immediate as i16)
    }

    fn add_and_compare(&mut self, op: SaluOp) -> bool {
        let (a, b) = (self.a(), self.b());
        let (sa, sb) = (a as i32, b as i32);
        let (ka, k) = (a as i32, self.immediate());
        let uk = u32::from(self.instruction.immediate as u16);
        let order = match op {
            SaluOp::CmpEqI32 | SaluOp::CmpEqU32 => a == b,
            SaluOp::CmpLgI32 | SaluOp::CmpLgU32 => a != b,
            SaluOp::CmpGtI32 => sa > sb,
            SaluOp::CmpGeI32 => sa >= sb,
            SaluOp::CmpLtI32 => sa < sb,
            SaluOp::CmpLeI32 => sa <= sb,
            SaluOp::CmpGtU32 => a > b,
            SaluOp::CmpGeU32 => a >= b,
            SaluOp::CmpLtU32 => a < b,
            SaluOp::CmpLeU32 => a <= b,
            SaluOp::CmpEqU64 => self.wide_a() == self.wide_b(),
            SaluOp::CmpLgU64 => self.wide_a() != self.wide_b(),
            SaluOp::Bitcmp0B32 => a >> (b & 31) & 1 == 0,
            SaluOp::Bitcmp1B32 => a >> (b & 31) & 1 == 1,
            SaluOp::Bitcmp0B64 => self.wide_a() >> (b & 63) & 1 == 0,
            SaluOp::Bitcmp1B64 => self.wide_a() >> (b & 63) & 1 == 1,
            SaluOp::CmpkEqI32 => ka == k,
            SaluOp::CmpkLgI32 => ka != k,
            SaluOp::CmpkGtI32 => ka > k,
            SaluOp::CmpkGeI32 => ka >= k,
            SaluOp::CmpkLtI32 => ka < k,
            SaluOp::CmpkLeI32 => ka <= k,
            SaluOp::CmpkEqU32 => a == uk,
            SaluOp::CmpkLgU32 => a != uk,
            SaluOp::CmpkGtU32 => a > uk,
            SaluOp::CmpkGeU32 => a >= uk,
            SaluOp::CmpkLtU32 => a < uk,
            SaluOp::CmpkLeU32 => a <= uk,
            _ => return self.arithmetic(op),
        };
        self.wave.scc = order;
        true
    }

    fn arithmetic(&mut self, op: SaluOp) -> bool {
        let carry = u64::from(self.wave.scc);
        let (a, b) = (self.a(), self.b());
        let (sa, sb) = (a as i32, b as i32);
        match op {
            SaluOp::AddU32 => self.with_scc(a.overflowing_add(b)),
            SaluOp::SubU32 => self.with_scc(a.overflowing_sub(b)),
            SaluOp::AddI32 => {
                let (sum, overflow) = sa.overflowing_add(sb);
                self.with_scc((sum as u32, overflow));
            }
            SaluOp::SubI32 => {
                let (difference, overflow) = sa.overflowing_sub(sb);
                self.with_scc((difference as u32, overflow));
            }
            SaluOp::AddcU32 => {
                let sum = u64::from(a) + u64::from(b) + carry;
                self.with_scc((sum as u32, sum >> 32 != 0));
            }
            SaluOp::SubbU32 => {
                let taken = u64::from(b) + carry;
                self.with_scc((a.wrapping_sub(taken as u32), taken > u64::from(a)));
            }
            SaluOp::MinI32 => self.with_scc((sa.min(sb) as u32, sa < sb)),
            SaluOp::MaxI32 => self.with_scc((sa.max(sb) as u32, sa > sb)),
            SaluOp::MinU32 => self.with_scc((a.min(b), a < b)),
            SaluOp::MaxU32 => self.with_scc((a.max(b), a > b)),
            SaluOp::AbsdiffI32 => self.nonzero(sa.wrapping_sub(sb).unsigned_abs()),
            SaluOp::AbsI32 => self.nonzero(sa.unsigned_abs()),
            SaluOp::MulI32 => self.put(a.wrapping_mul(b)),
            SaluOp::MulHiU32 => self.put(((u64::from(a) * u64::from(b)) >> 32) as u32),
            SaluOp::MulHiI32 => self.put(((i64::from(sa) * i64::from(sb)) >> 32) as u32),
            SaluOp::AddkI32 | SaluOp::MulkI32 => {
                let old = self.wave.scalar(self.instruction.dst) as i32;
                let k = self.immediate();
                if op == SaluOp::AddkI32 {
                    let (sum, overflow) = old.overflowing_add(k);
                    self.with_scc((sum as u32, overflow));
                } else {
                    self.put(old.wrapping_mul(k) as u32);
                }
            }
            SaluOp::MovkI32 => self.put(self.immediate() as u32),
            SaluOp::CmovkI32 => {
                if self.wave.scc {
                    self.put(self.immediate() as u32);
                }
            }
            SaluOp::Lshl1AddU32 => self.shifted_add(1),
            SaluOp::Lshl2AddU32 => self.shifted_add(2),
            SaluOp::Lshl3AddU32 => self.shifted_add(3),
            SaluOp::Lshl4AddU32 => self.shifted_add(4),
            _ => return false,
        }
        true
    }

    fn shifted_add(&mut self, shift: u32) {
        let sum = (u64::from(self.a()) << shift) + u64::from(self.b());
        self.with_scc((sum as u32, sum >> 32 != 0));
    }

    fn bits32(&mut self, op: SaluOp) -> bool {
        let (a, b) = (self.a(), self.b());
        let (shift, mask) = (b & 31, |count: u32| ((1u64 << count) - 1) as u32);
        match op {
            SaluOp::MovB32 => self.put(a),
            SaluOp::CmovB32 => {
                if self.wave.scc {
                    self.put(a);
                }
            }
            SaluOp::CselectB32 => self.put(if self.wave.scc { a } else { b }),
            SaluOp::NotB32 => self.nonzero(!a),
            SaluOp::AndB32 => self.nonzero(a & b),
            SaluOp::OrB32 => self.nonzero(a | b),
            SaluOp::XorB32 => self.nonzero(a ^ b),
            SaluOp::AndNot1B32 => self.nonzero(a & !b),
            SaluOp::OrNot1B32 => self.nonzero(a | !b),
            SaluOp::NandB32 => self.nonzero(!(a & b)),
            SaluOp::NorB32 => self.nonzero(!(a | b)),
            SaluOp::XnorB32 => self.nonzero(!(a ^ b)),
            SaluOp::LshlB32 => self.nonzero(a << shift),
            SaluOp::LshrB32 => self.nonzero(a >> shift),
            SaluOp::AshrI32 => self.nonzero((a as i32 >> shift) as u32),
            SaluOp::BfmB32 => self.put(mask(a & 31) << shift),
            SaluOp::BfeU32 => self.nonzero(a >> shift & mask((b >> 16 & 0x7f).min(32))),
            SaluOp::BfeI32 => {
                let count = (b >> 16 & 0x7f).min(32 - shift);
                let value = match count {
                    0 => 0,
                    count => ((a << (32 - shift - count)) as i32 >> (32 - count)) as u32,
                };
                self.nonzero(value);
            }
            SaluOp::BrevB32 => self.put(a.reverse_bits()),
            SaluOp::Bcnt0I32B32 => self.nonzero(a.count_zeros()),
            SaluOp::Bcnt1I32B32 => self.nonzero(a.count_ones()),
            SaluOp::Ff0I32B32 => self.put(found(a.trailing_ones(), 32)),
            SaluOp::CtzI32B32 => self.put(found(a.trailing_zeros(), 32)),
            SaluOp::ClzI32U32 => self.put(found(a.leading_zeros(), 32)),
            SaluOp::ClsI32 => self.put(sign_run(a.into(), 32)),
            SaluOp::SextI32I8 => self.put(a as i8 as u32),
            SaluOp::SextI32I16 => self.put(a as i16 as u32),
            SaluOp::Bitset0B32 | SaluOp::Bitset1B32 => {
                let old = self.wave.scalar(self.instruction.dst);
                let bit = 1 << (a & 31);
                self.put(if op == SaluOp::Bitset0B32 { old & !bit } else { old | bit });
            }
            SaluOp::PackLlB32B16 => self.put(a & 0xffff | b << 16),
            SaluOp::PackLhB32B16 => self.put(a & 0xffff | b & 0xffff_0000),
            SaluOp::PackHhB32B16 => self.put(a >> 16 | b & 0xffff_0000),
            SaluOp::PackHlB32B16 => self.put(a >> 16 | b << 16),
            _ => return false,
        }
        true
    }

    fn bits64(&mut self, op: SaluOp) -> bool {
        let (a, b) = (self.wide_a(), self.wide_b());
        let narrow = self.b();
        let shift = narrow & 63;
        let mask = |count: u32| if count >= 64 { u64::MAX } else { (1 << count) - 1 };
        match op {
            SaluOp::MovB64 => self.put_wide(a),
            SaluOp::CmovB64 => {
                if self.wave.scc {
                    self.put_wide(a);
                }
            }
            SaluOp::CselectB64 => self.put_wide(if self.wave.scc { a } else { b }),
            SaluOp::NotB64 => self.nonzero_wide(!a),
            SaluOp::AndB64 => self.nonzero_wide(a & b),
            SaluOp::OrB64 => self.nonzero_wide(a | b),
            SaluOp::XorB64 => self.nonzero_wide(a ^ b),
            SaluOp::AndNot1B64 => self.nonzero_wide(a & !b),
            SaluOp::OrNot1B64 => self.nonzero_wide(a | !b),
            SaluOp::NandB64 => self.nonzero_wide(!(a & b)),
            SaluOp::NorB64 => self.nonzero_wide(!(a | b)),
            SaluOp::XnorB64 => self.nonzero_wide(!(a ^ b)),
            SaluOp::LshlB64 => self.nonzero_wide(a << shift),
            SaluOp::LshrB64 => self.nonzero_wide(a >> shift),
            SaluOp::AshrI64 => self.nonzero_wide((a as i64 >> shift) as u64),
            SaluOp::BfmB64 => self.put_wide(mask(self.a() & 63) << shift),
            SaluOp::BfeU64 => self.nonzero_wide(a >> shift & mask(narrow >> 16 & 0x7f)),
            SaluOp::BfeI64 => {
                let count = (narrow >> 16 & 0x7f).min(64 - shift);
                let value = match count {
                    0 => 0,
                    count => ((a << (64 - shift - count)) as i64 >> (64 - count)) as u64,
                };
                self.nonzero_wide(value);
            }
            SaluOp::BrevB64 => self.put_wide(a.reverse_bits()),
            SaluOp::Bcnt0I32B64 => self.nonzero(a.count_zeros()),
            SaluOp::Bcnt1I32B64 => self.nonzero(a.count_ones()),
            SaluOp::Ff0I32B64 => self.put(found(a.trailing_ones(), 64)),
            SaluOp::CtzI32B64 => self.put(found(a.trailing_zeros(), 64)),
            SaluOp::ClzI32U64 => self.put(found(a.leading_zeros(), 64)),
            SaluOp::ClsI32I64 => self.put(sign_run(a, 64)),
            SaluOp::Bitset0B64 | SaluOp::Bitset1B64 => {
                let old = self.wave.scalar_wide(self.instruction.dst);
                let bit = 1 << (self.a() & 63);
                self.put_wide(if op == SaluOp::Bitset0B64 { old & !bit } else { old | bit });
            }
            SaluOp::AddNcU64 => self.put_wide(a.wrapping_add(b)),
            SaluOp::SubNcU64 => self.put_wide(a.wrapping_sub(b)),
            SaluOp::MulU64 => self.put_wide(a.wrapping_mul(b)),
            _ => return false,
        }
        true
    }

    /// Operations that combine a mask with EXEC: the old EXEC is kept, or the new one returned.
    fn masks(&mut self, op: SaluOp) -> bool {
        let exec_register = Operand::Sgpr(register::EXEC);
        let is_wide = self.instruction.dst_kind == OperandType::B64;
        let (a, exec) = if is_wide {
            (self.wide_a(), self.wave.scalar_wide(exec_register))
        } else {
            (self.a().into(), self.wave.exec().into())
        };
        let (value, returns_new) = match op {
            SaluOp::AndSaveexecB32 | SaluOp::AndSaveexecB64 => (a & exec, false),
            SaluOp::OrSaveexecB32 | SaluOp::OrSaveexecB64 => (a | exec, false),
            SaluOp::XorSaveexecB32 | SaluOp::XorSaveexecB64 => (a ^ exec, false),
            SaluOp::AndNot1SaveexecB32 | SaluOp::AndNot1SaveexecB64 => (a & !exec, false),
            SaluOp::OrNot1SaveexecB32 | SaluOp::OrNot1SaveexecB64 => (a | !exec, false),
            SaluOp::NandSaveexecB32 | SaluOp::NandSaveexecB64 => (!(a & exec), false),
            SaluOp::NorSaveexecB32 | SaluOp::NorSaveexecB64 => (!(a | exec), false),
            SaluOp::XnorSaveexecB32 | SaluOp::XnorSaveexecB64 => (!(a ^ exec), false),
            SaluOp::AndNot0SaveexecB32 | SaluOp::AndNot0SaveexecB64 => (!a & exec, false),
            SaluOp::OrNot0SaveexecB32 | SaluOp::OrNot0SaveexecB64 => (!a | exec, false),
            SaluOp::AndNot0WrexecB32 | SaluOp::AndNot0WrexecB64 => (!a & exec, true),
            SaluOp::AndNot1WrexecB32 | SaluOp::AndNot1WrexecB64 => (a & !exec, true),
            _ => return false,
        };
        let result = if returns_new { value } else { exec };
        if is_wide {
            self.put_wide(result);
            self.wave.set_scalar_wide(exec_register, value);
            self.wave.scc = value != 0;
        } else {
            self.put(result as u32);
            self.wave.set_scalar(exec_register, value as u32);
            self.wave.scc = value as u32 != 0;
        }
        true
    }

    fn real(&mut self, op: SaluOp) -> bool {
        let (a, b) = (f32::from_bits(self.a()), f32::from_bits(self.b()));
        let c = f32::from_bits(self.wave.scalar(self.instruction.src[2].operand));
        let old = f32::from_bits(self.wave.scalar(self.instruction.dst));
        if self.wave.mode.is_directed()
            && let Some(bits) = self.directed(op)
        {
            self.put(bits);
            return true;
        }
        let value = match op {
            SaluOp::AddF32 => a + b,
            SaluOp::SubF32 => a - b,
            SaluOp::MulF32 => a * b,
            SaluOp::MinF32 => float::min(a, b),
            SaluOp::MaxF32 => float::max(a, b),
            SaluOp::FmacF32 => a.mul_add(b, old),
            SaluOp::FmaakF32 | SaluOp::FmamkF32 => a.mul_add(b, c),
            SaluOp::CeilF32 => a.ceil(),
            SaluOp::FloorF32 => a.floor(),
            SaluOp::TruncF32 => a.trunc(),
            SaluOp::RndneF32 => a.round_ties_even(),
            SaluOp::CvtF32I32 => self.a() as i32 as f32,
            SaluOp::CvtF32U32 => self.a() as f32,
            SaluOp::CvtHiF32F16 => float::f16_value(self.a() >> 16),
            SaluOp::CvtF32F16 => float::f16_value(self.a() & 0xffff),
            _ => return self.real_to_bits(op, a, b) || self.real16(op) || self.compare_real(op),
        };
        self.put(value.to_bits());
        true
    }

    /// The result of an operation that rounds, where MODE does not round to nearest.
    #[cold]
    fn directed(&self, op: SaluOp) -> Option<u32> {
        let mode = self.wave.mode;
        let (a, b) = (u64::from(self.a()), u64::from(self.b()));
        let c = u64::from(self.wave.scalar(self.instruction.src[2].operand));
        let old = u64::from(self.wave.scalar(self.instruction.dst));
        let (rounding, half) = (Rounding::of_f32(mode), Rounding::of_f16(mode));
        let low = |bits: u64| bits & 0xffff;
        Some(match op {
            SaluOp::AddF32 => rounding.add(F32, a, b),
            SaluOp::SubF32 => rounding.add(F32, a, b ^ 1 << 31),
            SaluOp::MulF32 => rounding.multiply(F32, a, b),
            SaluOp::FmacF32 => rounding.multiply_add(F32, a, b, old),
            SaluOp::FmaakF32 | SaluOp::FmamkF32 => rounding.multiply_add(F32, a, b, c),
            SaluOp::CvtF32I32 => rounding.of_integer(F32, (a as i32).into()),
            SaluOp::CvtF32U32 => rounding.of_integer(F32, a as i64),
            SaluOp::AddF16 => half.add(F16, low(a), low(b)),
            SaluOp::SubF16 => half.add(F16, low(a), low(b) ^ 1 << 15),
            SaluOp::MulF16 => half.multiply(F16, low(a), low(b)),
            SaluOp::FmacF16 => half.multiply_add(F16, low(a), low(b), low(old)),
            SaluOp::CvtF16F32 => half.convert(F16, F32, a),
            _ => return None,
        } as u32)
    }

    fn real_to_bits(&mut self, op: SaluOp, a: f32, b: f32) -> bool {
        let bits = match op {
            SaluOp::CvtI32F32 => a as i32 as u32,
            SaluOp::CvtU32F32 => a as u32,
            SaluOp::CvtF16F32 => float::to_f16(a),
            SaluOp::CvtPkRtzF16F32 => {
                float::to_f16_toward_zero(a) | float::to_f16_toward_zero(b) << 16
            }
            _ => return false,
        };
        self.put(bits);
        true
    }

    /// Returns true if the operation was a comparison of floats.
    fn compare_real(&mut self, op: SaluOp) -> bool {
        let Some((is_half, condition)) = condition(op) else { return false };
        let value = |bits: u32| {
            if is_half { float::f16_value(bits & 0xffff) } else { f32::from_bits(bits) }
        };
        let bit = match value(self.a()).partial_cmp(&value(self.b())) {
            Some(Ordering::Less) => 1,
            Some(Ordering::Equal) => 2,
            Some(Ordering::Greater) => 4,
            None => 8,
        };
        self.wave.scc = condition & bit != 0;
        true
    }

    fn real16(&mut self, op: SaluOp) -> bool {
        let value = |bits: u32| float::f16_value(bits & 0xffff);
        let (a, b) = (value(self.a()), value(self.b()));
        let old = value(self.wave.scalar(self.instruction.dst));
        let result = match op {
            SaluOp::AddF16 => a + b,
            SaluOp::SubF16 => a - b,
            SaluOp::MulF16 => a * b,
            SaluOp::MinF16 => float::min(a, b),
            SaluOp::MaxF16 => float::max(a, b),
            SaluOp::CeilF16 => a.ceil(),
            SaluOp::FloorF16 => a.floor(),
            SaluOp::TruncF16 => a.trunc(),
            SaluOp::RndneF16 => a.round_ties_even(),
            SaluOp::FmacF16 => {
                self.put(float::fma_f16(a, b, old));
                return true;
            }
            _ => return false,
        };
        self.put(float::to_f16(result));
        true
    }
}

/// The condition of a comparison of floats: true for f16, and the outcomes for which it holds. Bit
/// 0 stands for less, bit 1 for equal, bit 2 for greater, bit 3 for unordered.
fn condition(op: SaluOp) -> Option<(bool, u8)> {
    Some(match op {
        SaluOp::CmpLtF32 => (false, 1),
        SaluOp::CmpEqF32 => (false, 2),
        SaluOp::CmpLeF32 => (false, 3),
        SaluOp::CmpGtF32 => (false, 4),
        SaluOp::CmpLgF32 => (false, 5),
        SaluOp::CmpGeF32 => (false, 6),
        SaluOp::CmpOF32 => (false, 7),
        SaluOp::CmpUF32 => (false, 8),
        SaluOp::CmpNgeF32 => (false, 9),
        SaluOp::CmpNlgF32 => (false, 10),
        SaluOp::CmpNgtF32 => (false, 11),
        SaluOp::CmpNleF32 => (false, 12),
        SaluOp::CmpNeqF32 => (false, 13),
        SaluOp::CmpNltF32 => (false, 14),
        SaluOp::CmpLtF16 => (true, 1),
        SaluOp::CmpEqF16 => (true, 2),
        SaluOp::CmpLeF16 => (true, 3),
        SaluOp::CmpGtF16 => (true, 4),
        SaluOp::CmpLgF16 => (true, 5),
        SaluOp::CmpGeF16 => (true, 6),
        SaluOp::CmpOF16 => (true, 7),
        SaluOp::CmpUF16 => (true, 8),
        SaluOp::CmpNgeF16 => (true, 9),
        SaluOp::CmpNlgF16 => (true, 10),
        SaluOp::CmpNgtF16 => (true, 11),
        SaluOp::CmpNleF16 => (true, 12),
        SaluOp::CmpNeqF16 => (true, 13),
        SaluOp::CmpNltF16 => (true, 14),
        _ => return None,
    })
}
