//! VOP1, VOP2, VOPC, VOP3, VOP3P and VOPD.

use std::borrow::Cow;

use super::{DecodeError, Decoded, Decoder, bit, bits};
use crate::isa::ProcessorFamily;
use crate::isa::instruction::{
    Encoding, Exchange, Instruction, Operand, Select, SourceOperand, register,
};
use crate::isa::op::{Compare, CompareType, Op, ValuOp};
use crate::isa::table::{InstructionRow, OperandType, compare, vector};

/// The codes of the first source that announce another dword.
const DPP8: u32 = 233;
const DPP8_FETCH_INACTIVE: u32 = 234;
const SDWA: u32 = 249;
const DPP16: u32 = 250;

/// Operations of VOPD by number; RDNA 3 and 4 use the same numbers.
const DUAL: [Option<ValuOp>; 19] = [
    Some(ValuOp::FmacF32),
    Some(ValuOp::FmaakF32),
    Some(ValuOp::FmamkF32),
    Some(ValuOp::MulF32),
    Some(ValuOp::AddF32),
    Some(ValuOp::SubF32),
    Some(ValuOp::SubrevF32),
    None,
    Some(ValuOp::MovB32),
    Some(ValuOp::CndmaskB32),
    Some(ValuOp::MaxF32),
    Some(ValuOp::MinF32),
    None,
    None,
    None,
    None,
    Some(ValuOp::AddNcU32),
    Some(ValuOp::LshlrevB32),
    Some(ValuOp::AndB32),
];

/// The row of an operation of VOPD.
fn dual_row(op: ValuOp) -> Option<&'static InstructionRow> {
    [vector::VOP2, vector::VOP1].into_iter().flatten().find(|row| row.op == Op::Valu(op))
}

/// The rows of the operations of VOPD.
pub(in crate::isa) fn dual_operations() -> impl Iterator<Item = &'static InstructionRow> {
    DUAL.into_iter().flatten().filter_map(dual_row)
}

fn vgpr(code: u32) -> Operand {
    Operand::Vgpr(code as u8)
}

const VCC: Operand = Operand::Sgpr(register::VCC);

/// The kinds of the operands of a pattern: destinations and sources.
struct Pattern<'a> {
    dst: &'a [u8],
    src: &'a [u8],
    suffixed: bool,
}

impl Pattern<'static> {
    fn of(row: &'static InstructionRow) -> Self {
        let pattern = row.pattern.strip_suffix('!');
        let suffixed = pattern.is_none();
        let (dst, src) = pattern.unwrap_or(row.pattern).split_once(':').unwrap_or_default();
        Self { dst: dst.as_bytes(), src: src.as_bytes(), suffixed }
    }
}

fn is_half(kind: OperandType) -> bool {
    matches!(kind, OperandType::F16 | OperandType::B16)
}

/// Returns true if the vector destination field names a scalar register.
fn has_scalar_dst(op: Op) -> bool {
    matches!(
        op,
        Op::Valu(
            ValuOp::ReadfirstlaneB32
                | ValuOp::ReadlaneB32
                | ValuOp::SExpF32
                | ValuOp::SLogF32
                | ValuOp::SRcpF32
                | ValuOp::SRsqF32
                | ValuOp::SSqrtF32
        )
    )
}

fn compare_kinds(compare: Compare) -> [OperandType; 2] {
    let kind = match compare.operands {
        CompareType::F16 => OperandType::F16,
        CompareType::F32 => OperandType::F32,
        CompareType::F64 => OperandType::F64,
        CompareType::I16 | CompareType::U16 => OperandType::B16,
        CompareType::I32 | CompareType::U32 => OperandType::B32,
        CompareType::I64 | CompareType::U64 => OperandType::B64,
    };
    // The second operand of a class test is a mask of classes.
    let second = match (compare.condition, kind) {
        (Some(_), _) => kind,
        (None, OperandType::F16) => OperandType::B16,
        (None, _) => OperandType::B32,
    };
    [kind, second]
}

impl Decoder<'_> {
    pub(super) fn vop12c(&mut self) -> Decoded {
        let word = self.word;
        let code = bits(word, 0, 9);
        let second = bits(word, 9, 8);
        let mut instruction = match word >> 25 {
            0x3f => {
                let row = self.row(vector::VOP1, "VOP1", bits(word, 9, 8) as u16)?;
                let mut instruction = self.of_row(row, Encoding::Vop1);
                self.vop_operands(&mut instruction, &Pattern::of(row), bits(word, 17, 8), &[code])?;
                instruction
            }
            0x3e => {
                let opcode = bits(word, 17, 8) as u16;
                let (op, name) = compare::find(self.family, opcode)
                    .ok_or_else(|| self.unknown("VOPC", Some(opcode)))?;
                let dst = if op.to_exec { register::EXEC } else { register::VCC };
                let name = Cow::Owned(name);
                let mut instruction = Self::instruction(Op::Compare(op), Encoding::Vopc, name);
                instruction.suffixed = true;
                instruction.dst = Operand::Sgpr(dst);
                instruction.dst_kind = OperandType::Mask;
                self.sources(&mut instruction, &compare_kinds(op), &[code, second + 256])?;
                instruction
            }
            _ => {
                let row = self.row(vector::VOP2, "VOP2", bits(word, 25, 6) as u16)?;
                let mut instruction = self.of_row(row, Encoding::Vop2);
                let codes = [code, second + 256];
                self.vop_operands(&mut instruction, &Pattern::of(row), bits(word, 17, 8), &codes)?;
                self.inline_multiply(&mut instruction)?;
                instruction
            }
        };
        self.high_halves(&mut instruction);
        self.extra_word(&mut instruction, code)?;
        Ok(instruction)
    }

    /// Since RDNA 3, bit 7 of a register number selects the high half of a 16-bit operand.
    fn high_halves(&self, instruction: &mut Instruction) {
        if self.family == ProcessorFamily::Rdna2 {
            return;
        }
        for source in &mut instruction.src {
            if let (true, Operand::Vgpr(register)) = (is_half(source.kind), source.operand) {
                source.operand = Operand::Vgpr(register & 127);
                source.high = register > 127;
            }
        }
        if let (true, Operand::Vgpr(register)) = (is_half(instruction.dst_kind), instruction.dst) {
            instruction.dst = Operand::Vgpr(register & 127);
            instruction.dst_high = register > 127;
        }
    }

    /// Adds the literal operand of FMAMK and FMAAK.
    fn inline_multiply(&mut self, instruction: &mut Instruction) -> Result<(), DecodeError> {
        let Op::Valu(op) = instruction.op else { return Ok(()) };
        let is_mk = matches!(op, ValuOp::FmamkF32 | ValuOp::FmamkF16);
        if !is_mk && !matches!(op, ValuOp::FmaakF32 | ValuOp::FmaakF16) {
            return Ok(());
        }
        let value = self.literal()?;
        let kind = instruction.src[0].kind;
        let literal =
            SourceOperand::plain(Operand::Literal { value, bits: u64::from(value) }, kind);
        if is_mk {
            instruction.src[2] = instruction.src[1];
            instruction.src[1] = literal;
        } else {
            instruction.src[2] = literal;
        }
        instruction.sources = 3;
        Ok(())
    }

    /// The destination and the sources of a pattern; masks that have no code are VCC.
    fn vop_operands(
        &mut self,
        instruction: &mut Instruction,
        pattern: &Pattern<'_>,
        dst: u32,
        codes: &[u32],
    ) -> Result<(), DecodeError> {
        instruction.suffixed = pattern.suffixed;
        if let Some(&letter) = pattern.dst.first() {
            instruction.dst_kind = OperandType::from_letter(letter);
            instruction.dst =
                if has_scalar_dst(instruction.op) { self.scalar_register(dst) } else { vgpr(dst) };
        }
        if pattern.dst.get(1) == Some(&b'm') {
            instruction.dst_mask = VCC;
        }
        let kinds: Vec<_> =
            pattern.src.iter().map(|&letter| OperandType::from_letter(letter)).collect();
        self.sources(instruction, &kinds, codes)
    }

    fn sources(
        &mut self,
        instruction: &mut Instruction,
        kinds: &[OperandType],
        codes: &[u32],
    ) -> Result<(), DecodeError> {
        for (at, &kind) in kinds.iter().enumerate() {
            let operand = match codes.get(at) {
                // The dword after the instruction names the source.
                Some(&(DPP8 | DPP8_FETCH_INACTIVE | SDWA | DPP16)) if at == 0 => Operand::None,
                Some(&code) => self.source(code, kind)?,
                None => VCC,
            };
            instruction.src[at] = SourceOperand::plain(operand, kind);
        }
        instruction.sources = kinds.len() as u8;
        Ok(())
    }

    /// Reads the DPP or SDWA dword that the code of the first source announces.
    fn extra_word(&mut self, instruction: &mut Instruction, code: u32) -> Result<(), DecodeError> {
        if !matches!(code, DPP8 | DPP8_FETCH_INACTIVE | SDWA | DPP16) {
            return Ok(());
        }
        if instruction.sources == 0 {
            return Err(self.unsupported("DPP without a source"));
        }
        let word = self.next()?;
        instruction.src[0].operand = vgpr(word);
        match code {
            SDWA if self.family == ProcessorFamily::Rdna2 => return self.sdwa(instruction, word),
            SDWA => return Err(self.unsupported("SDWA")),
            DPP16 => {
                let [first, second, ..] = &mut instruction.src;
                first.neg |= bit(word, 20);
                first.abs |= bit(word, 21);
                second.neg |= bit(word, 22);
                second.abs |= bit(word, 23);
                instruction.exchange = Exchange::Dpp16 {
                    control: bits(word, 8, 9) as u16,
                    row_mask: (word >> 28) as u8,
                    bank_mask: bits(word, 24, 4) as u8,
                    zero: bit(word, 19),
                    fetch_inactive: bit(word, 18),
                };
            }
            _ => {
                let fetch_inactive = code == DPP8_FETCH_INACTIVE;
                instruction.exchange = Exchange::Dpp8 { lanes: word >> 8, fetch_inactive };
            }
        }
        Ok(())
    }

    fn sdwa(&mut self, instruction: &mut Instruction, word: u32) -> Result<(), DecodeError> {
        let select = |code| match code {
            byte @ 0..4 => Ok(Select::Byte(byte as u8)),
            word @ (4 | 5) => Ok(Select::Word(word as u8 - 4)),
            6 => Ok(Select::Dword),
            _ => Err(DecodeError::Unsupported { word: self.word, what: "SDWA selection" }),
        };
        let is_compare = matches!(instruction.op, Op::Compare(_));
        let (dst, unused) = if is_compare {
            if bit(word, 15) {
                instruction.dst = self.scalar_register(bits(word, 8, 7));
            }
            (Select::Dword, 0)
        } else {
            instruction.clamp = bit(word, 13);
            instruction.output_modifier = bits(word, 14, 2) as u8;
            (select(bits(word, 8, 3))?, bits(word, 11, 2) as u8)
        };
        let has_second = instruction.sources > 1;
        let second = if has_second { select(bits(word, 24, 3))? } else { Select::Dword };
        instruction.exchange = Exchange::Sdwa {
            dst,
            unused,
            src: [select(bits(word, 16, 3))?, second],
            signed: [bit(word, 19), bit(word, 27)],
        };
        instruction.src[0].neg = bit(word, 20);
        instruction.src[0].abs = bit(word, 21);
        if bit(word, 23) {
            instruction.src[0].operand = self.source(word & 0xff, instruction.src[0].kind)?;
        }
        if has_second {
            instruction.src[1].neg = bit(word, 28);
            instruction.src[1].abs = bit(word, 29);
            if let (true, Operand::Vgpr(code)) = (bit(word, 31), instruction.src[1].operand) {
                let kind = instruction.src[1].kind;
                instruction.src[1].operand = self.source(u32::from(code), kind)?;
            }
        }
        Ok(())
    }

    pub(super) fn vop3(&mut self) -> Decoded {
        let word = self.word;
        let opcode = bits(word, 16, 10) as u16;
        let second = self.next()?;
        let codes = [bits(second, 0, 9), bits(second, 9, 9), bits(second, 18, 9)];
        if opcode < 256 {
            let (op, name) = compare::find(self.family, opcode)
                .ok_or_else(|| self.unknown("VOP3", Some(opcode)))?;
            let mut instruction =
                Self::instruction(Op::Compare(op), Encoding::Vop3, Cow::Owned(name));
            instruction.suffixed = true;
            instruction.dst_kind = OperandType::Mask;
            instruction.dst = if op.to_exec {
                Operand::Sgpr(register::EXEC)
            } else {
                self.scalar_register(word & 127)
            };
            self.sources(&mut instruction, &compare_kinds(op), &codes)?;
            self.vop3_modifiers(&mut instruction, second);
            self.extra_word(&mut instruction, codes[0])?;
            return Ok(instruction);
        }
        let promoted = match opcode {
            256..320 => super::super::table::find(vector::VOP2, self.family, opcode - 256),
            384..512 => super::super::table::find(vector::VOP1, self.family, opcode - 384),
            _ => None,
        };
        let promoted = promoted.filter(|row| Pattern::of(row).suffixed);
        let row = match promoted {
            Some(row) => row,
            None => self.row(vector::VOP3, "VOP3", opcode)?,
        };
        let mut pattern = Pattern::of(row);
        pattern.suffixed = promoted.is_some();
        let mut instruction = self.of_row(row, Encoding::Vop3);
        self.vop_operands(&mut instruction, &pattern, word & 0xff, &codes)?;
        if instruction.dst_mask == Operand::None {
            self.vop3_modifiers(&mut instruction, second);
        } else {
            instruction.dst_mask = self.scalar_register(bits(word, 8, 7));
            instruction.clamp = bit(word, 15);
            for (at, source) in instruction.src.iter_mut().enumerate().take(3) {
                source.neg = bit(second, 29 + at as u32);
            }
            instruction.output_modifier = bits(second, 27, 2) as u8;
        }
        self.extra_word(&mut instruction, codes[0])?;
        Ok(instruction)
    }

    fn vop3_modifiers(&self, instruction: &mut Instruction, second: u32) {
        let word = self.word;
        instruction.clamp = bit(word, 15);
        instruction.output_modifier = bits(second, 27, 2) as u8;
        for (at, source) in instruction.src.iter_mut().enumerate().take(3) {
            let at = at as u32;
            source.abs = bit(word, 8 + at);
            source.neg = bit(second, 29 + at);
            source.high = bit(word, 11 + at);
        }
        instruction.dst_high = bit(word, 14);
    }

    pub(super) fn vop3p(&mut self) -> Decoded {
        let word = self.word;
        let row = self.row(vector::VOP3P, "VOP3P", bits(word, 16, 7) as u16)?;
        let second = self.next()?;
        let codes = [bits(second, 0, 9), bits(second, 9, 9), bits(second, 18, 9)];
        let mut instruction = self.of_row(row, Encoding::Vop3p);
        self.vop_operands(&mut instruction, &Pattern::of(row), word & 0xff, &codes)?;
        instruction.suffixed = false;
        instruction.clamp = bit(word, 15);
        for (at, source) in instruction.src.iter_mut().enumerate().take(3) {
            let at = at as u32;
            source.high = bit(word, 11 + at);
            source.high_for_high = if at == 2 { bit(word, 14) } else { bit(second, 27 + at) };
            source.neg_high = bit(word, 8 + at);
            source.neg = bit(second, 29 + at);
        }
        if self.family == ProcessorFamily::Rdna3 && instruction.name.starts_with("v_wmma") {
            let has_wide_result = instruction.dst_kind == OperandType::X8;
            instruction.src[0].kind = instruction.src[0].kind.doubled();
            instruction.src[1].kind = instruction.src[1].kind.doubled();
            if !has_wide_result {
                instruction.src[2].kind = OperandType::X8;
                instruction.dst_kind = OperandType::X8;
            }
        }
        self.extra_word(&mut instruction, codes[0])?;
        Ok(instruction)
    }

    pub(super) fn vopd(&mut self) -> Decoded {
        let word = self.word;
        let second = self.next()?;
        let dst_x = second >> 24;
        // The destinations differ in parity, so the lowest bit of the second is implied.
        let dst_y = bits(second, 17, 7) << 1 | (!dst_x & 1);
        let mut first = self.half(bits(word, 22, 4), bits(word, 0, 9), bits(word, 9, 8), dst_x)?;
        let other = self.half(bits(word, 17, 5), bits(second, 0, 9), bits(second, 9, 8), dst_y)?;
        first.second = Some(Box::new(other));
        Ok(first)
    }

    /// One operation of a dual instruction.
    fn half(&mut self, number: u32, source: u32, other: u32, dst: u32) -> Decoded {
        let op = DUAL.get(number as usize).copied().flatten();
        let row = op.and_then(dual_row);
        let row = row.ok_or_else(|| self.unknown("VOPD", Some(number as u16)))?;
        if matches!(source, DPP8 | DPP8_FETCH_INACTIVE | SDWA | DPP16) {
            return Err(self.unsupported("DPP in a dual instruction"));
        }
        let mut half = self.of_row(row, Encoding::Vopd);
        half.name = half.name.replacen("v_", "v_dual_", 1).into();
        self.vop_operands(&mut half, &Pattern::of(row), dst, &[source, other + 256])?;
        half.suffixed = false;
        self.inline_multiply(&mut half)?;
        Ok(half)
    }
}
