//! SOP2, SOP1, SOPC, SOPK, SOPP.

use super::{Decoded, Decoder, bits};
use crate::isa::instruction::{Encoding, Instruction, Operand, SourceOperand};
use crate::isa::op::{Op, SaluOp};
use crate::isa::table::{InstructionRow, OperandType, scalar};

impl Decoder<'_> {
    pub(super) fn sop(&mut self) -> Decoded {
        let word = self.word;
        match word >> 23 {
            0x17d => {
                let row = self.row(scalar::SOP1, "SOP1", bits(word, 8, 8) as u16)?;
                self.sop_row(row, Encoding::Sop1, Some(bits(word, 16, 7)), &[word & 0xff])
            }
            0x17e => {
                let row = self.row(scalar::SOPC, "SOPC", bits(word, 16, 7) as u16)?;
                self.sop_row(row, Encoding::Sopc, None, &[word & 0xff, bits(word, 8, 8)])
            }
            0x17f => {
                let row = self.row(scalar::SOPP, "SOPP", bits(word, 16, 7) as u16)?;
                let mut instruction = self.of_row(row, Encoding::Sopp);
                instruction.immediate = i32::from(word as u16);
                Ok(instruction)
            }
            _ if word >> 28 == 0b1011 => self.sopk(),
            _ => {
                let row = self.row(scalar::SOP2, "SOP2", bits(word, 23, 7) as u16)?;
                let codes = [word & 0xff, bits(word, 8, 8)];
                let mut instruction =
                    self.sop_row(row, Encoding::Sop2, Some(bits(word, 16, 7)), &codes)?;
                if let Op::Salu(op @ (SaluOp::FmaakF32 | SaluOp::FmamkF32)) = row.op {
                    let value = self.literal()?;
                    let literal = Operand::Literal { value, bits: u64::from(value) };
                    let literal = SourceOperand::plain(literal, OperandType::F32);
                    if op == SaluOp::FmamkF32 {
                        instruction.src[2] = instruction.src[1];
                        instruction.src[1] = literal;
                    } else {
                        instruction.src[2] = literal;
                    }
                    instruction.sources = 3;
                }
                Ok(instruction)
            }
        }
    }

    /// The operands of a pattern: a destination if it has one, then sources.
    fn sop_row(
        &mut self,
        row: &'static InstructionRow,
        encoding: Encoding,
        dst: Option<u32>,
        codes: &[u32],
    ) -> Decoded {
        let mut instruction = self.of_row(row, encoding);
        let (dst_kinds, src_kinds) = row.pattern.split_once(':').unwrap_or(("", row.pattern));
        if let (Some(&letter), Some(code)) = (dst_kinds.as_bytes().first(), dst) {
            instruction.dst = self.scalar_register(code);
            instruction.dst_kind = OperandType::from_letter(letter);
        }
        for (at, (&letter, &code)) in src_kinds.as_bytes().iter().zip(codes).enumerate() {
            let kind = OperandType::from_letter(letter);
            instruction.src[at] = SourceOperand::plain(self.source(code, kind)?, kind);
            instruction.sources = at as u8 + 1;
        }
        Ok(instruction)
    }

    fn sopk(&mut self) -> Decoded {
        let word = self.word;
        let row = self.row(scalar::SOPK, "SOPK", bits(word, 23, 5) as u16)?;
        let mut instruction: Instruction = self.of_row(row, Encoding::Sopk);
        instruction.immediate = i32::from(word as i16);
        let register = self.scalar_register(bits(word, 16, 7));
        let Op::Salu(op) = row.op else { return Ok(instruction) };
        match op {
            SaluOp::MovkI32
            | SaluOp::CmovkI32
            | SaluOp::AddkI32
            | SaluOp::MulkI32
            | SaluOp::GetregB32 => instruction.dst = register,
            SaluOp::SetregImm32B32 => {
                let value = self.literal()?;
                let literal = Operand::Literal { value, bits: u64::from(value) };
                instruction.src[0] = SourceOperand::plain(literal, OperandType::B32);
                instruction.sources = 1;
            }
            _ => {
                instruction.src[0] = SourceOperand::plain(register, OperandType::B32);
                instruction.sources = 1;
            }
        }
        Ok(instruction)
    }
}
