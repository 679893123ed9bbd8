//! Decodes machine code.

mod memory;
mod scalar;
mod vector;

pub(super) use vector::dual_operations;

use std::borrow::Cow;

use super::instruction::{Encoding, Exchange, Instruction, Operand, SourceOperand, register};
use super::op::Op;
use super::table::{InstructionRow, OperandType};
use super::{Arch, ProcessorFamily};

/// Why machine code cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The encoding or its opcode is unknown.
    #[error("unknown instruction {word:#010x} ({encoding}{})", opcode_text(*.opcode))]
    Unknown {
        /// The first dword.
        word: u32,
        /// The name of the encoding.
        encoding: &'static str,
        /// The opcode within the encoding.
        opcode: Option<u16>,
    },
    /// An operand or a modifier that the instruction does not allow or the emulator does not know.
    #[error("unsupported {what} in instruction {word:#010x}")]
    Unsupported {
        /// The first dword.
        word: u32,
        /// The operand or modifier.
        what: &'static str,
    },
    /// The code ends within an instruction.
    #[error("the code ends within an instruction")]
    Truncated,
}

fn opcode_text(opcode: Option<u16>) -> String {
    opcode.map(|opcode| format!(" opcode {opcode}")).unwrap_or_default()
}

/// Decodes the instruction at the start of `words`.
///
/// # Errors
///
/// The instruction is unknown, or `words` end within it.
pub fn decode(arch: Arch, words: &[u32]) -> Result<Instruction, DecodeError> {
    let mut decoder = Decoder { family: arch.family(), words, used: 0, word: 0, literal: None };
    decoder.word = decoder.next()?;
    let mut instruction = decoder.dispatch()?;
    instruction.bytes = (decoder.used * 4) as u8;
    Ok(instruction)
}

struct Decoder<'a> {
    family: ProcessorFamily,
    words: &'a [u32],
    used: usize,
    /// The first dword.
    word: u32,
    literal: Option<u32>,
}

/// `count` bits of `word` from bit `first` on.
fn bits(word: u32, first: u32, count: u32) -> u32 {
    (word >> first) & ((1 << count) - 1)
}

fn bit(word: u32, at: u32) -> bool {
    word >> at & 1 != 0
}

type Decoded = Result<Instruction, DecodeError>;

impl Decoder<'_> {
    fn next(&mut self) -> Result<u32, DecodeError> {
        let word = *self.words.get(self.used).ok_or(DecodeError::Truncated)?;
        self.used += 1;
        Ok(word)
    }

    fn dispatch(&mut self) -> Decoded {
        let word = self.word;
        match (word >> 26, self.family) {
            (0..=0b01_1111, _) => self.vop12c(),
            (0b10_0000..=0b10_1111, _) => self.sop(),
            (0b11_0101, _) => self.vop3(),
            (0b11_0011, _) if bits(word, 23, 3) == 0 => self.vop3p(),
            (0b11_0010, ProcessorFamily::Rdna3 | ProcessorFamily::Rdna4) => self.vopd(),
            (0b11_0110, _) => self.ds(),
            (0b11_1101, _) => self.smem(),
            (0b11_0111, ProcessorFamily::Rdna2 | ProcessorFamily::Rdna3) => self.flat(),
            (0b11_1011, ProcessorFamily::Rdna4) => self.flat_rdna4(),
            (0b11_1000, ProcessorFamily::Rdna2 | ProcessorFamily::Rdna3) => self.mubuf(),
            _ => Err(self.unknown("unknown encoding", None)),
        }
    }

    fn unknown(&self, encoding: &'static str, opcode: Option<u16>) -> DecodeError {
        DecodeError::Unknown { word: self.word, encoding, opcode }
    }

    fn unsupported(&self, what: &'static str) -> DecodeError {
        DecodeError::Unsupported { word: self.word, what }
    }

    fn row(
        &self,
        table: &'static [InstructionRow],
        encoding: &'static str,
        opcode: u16,
    ) -> Result<&'static InstructionRow, DecodeError> {
        super::table::find(table, self.family, opcode)
            .ok_or_else(|| self.unknown(encoding, Some(opcode)))
    }

    fn instruction(op: Op, encoding: Encoding, name: Cow<'static, str>) -> Instruction {
        Instruction {
            op,
            encoding,
            name,
            suffixed: false,
            bytes: 0,
            dst: Operand::None,
            dst_kind: OperandType::B32,
            dst_high: false,
            dst_mask: Operand::None,
            src: [SourceOperand::plain(Operand::None, OperandType::B32); 4],
            sources: 0,
            clamp: false,
            output_modifier: 0,
            exchange: Exchange::None,
            immediate: 0,
            cache: 0,
            second: None,
        }
    }

    fn of_row(&self, row: &'static InstructionRow, encoding: Encoding) -> Instruction {
        Self::instruction(row.op, encoding, Cow::Borrowed(row.name(self.family)))
    }

    /// A scalar register by its number in a 7-bit field.
    fn scalar_register(&self, code: u32) -> Operand {
        let code = code as u8 & 127;
        Operand::Sgpr(match (self.family, code) {
            (ProcessorFamily::Rdna2, 124) => register::M0,
            (ProcessorFamily::Rdna2, 125) => register::NULL,
            _ => code,
        })
    }

    /// A source by its number in an 8- or 9-bit field.
    fn source(&mut self, code: u32, kind: OperandType) -> Result<Operand, DecodeError> {
        Ok(match code {
            0..128 => self.scalar_register(code),
            128..=208 | 240..=248 => {
                Operand::Constant { code: code as u8, bits: inline_constant(code, kind) }
            }
            235..=238 | 251..=253 => Operand::Special(code as u8),
            255 => {
                let value = self.literal()?;
                Operand::Literal { value, bits: literal_bits(value, kind) }
            }
            256..512 => Operand::Vgpr(code as u8),
            _ => return Err(self.unsupported("source operand")),
        })
    }

    /// The dword after the instruction, shared by its operands.
    fn literal(&mut self) -> Result<u32, DecodeError> {
        if let Some(literal) = self.literal {
            return Ok(literal);
        }
        let literal = self.next()?;
        self.literal = Some(literal);
        Ok(literal)
    }
}

/// The bits of an inline constant of a type.
fn inline_constant(code: u32, kind: OperandType) -> u64 {
    const FLOATS: [f64; 8] = [0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0];
    let integer = match code {
        128..=192 => i64::from(code) - 128,
        193..=208 => 192 - i64::from(code),
        _ => {
            let inverse_of_two_pi = code == 248;
            let value = FLOATS[(code as usize - 240) % 8];
            return match kind {
                OperandType::F16 | OperandType::PackedF16 if inverse_of_two_pi => 0x3118,
                OperandType::F16 | OperandType::PackedF16 => {
                    u64::from(half::f16::from_f64(value).to_bits())
                }
                OperandType::F64 | OperandType::B64 if inverse_of_two_pi => 0x3fc4_5f30_6dc9_c882,
                OperandType::F64 | OperandType::B64 => value.to_bits(),
                _ if inverse_of_two_pi => 0x3e22_f983,
                _ => u64::from((value as f32).to_bits()),
            };
        }
    };
    match kind {
        OperandType::F64 | OperandType::B64 => integer as u64,
        _ => u64::from(integer as u32),
    }
}

/// The bits of a literal of a type: the high half of an f64, the low half of other 64 bits.
fn literal_bits(value: u32, kind: OperandType) -> u64 {
    match kind {
        OperandType::F64 => u64::from(value) << 32,
        _ => u64::from(value),
    }
}
