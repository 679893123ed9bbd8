//! The opcode tables: one row per instruction, with its number in each family.
//!
//! The numbers and operands are what LLVM's disassembler answers for every opcode of every
//! encoding; the test `tests/disassembly.rs` compares whole kernels.

pub(crate) mod compare;
pub(crate) mod memory;
mod row;
pub(crate) mod scalar;
pub(crate) mod vector;

pub(crate) use row::InstructionRow;

use super::ProcessorFamily;

/// The row of an opcode.
pub(crate) fn find(
    table: &'static [InstructionRow],
    family: ProcessorFamily,
    opcode: u16,
) -> Option<&'static InstructionRow> {
    table.iter().find(|row| row.is(family, opcode))
}

/// The type of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperandType {
    /// 32 bits (`b`).
    B32,
    /// f32 (`f`).
    F32,
    /// f16 in the low half, or the high half if selected (`h`).
    F16,
    /// 16 bits (`w`).
    B16,
    /// Two f16 (`p`).
    PackedF16,
    /// Two 16-bit integers (`k`).
    PackedB16,
    /// f32 or a half with f16, as selected (`x`).
    Mix,
    /// f64 (`d`).
    F64,
    /// 64 bits (`q`).
    B64,
    /// A bit per lane in a scalar register (`m`).
    Mask,
    /// Four registers (`4`).
    X4,
    /// Eight registers (`8`).
    X8,
}

impl OperandType {
    pub(crate) fn from_letter(letter: u8) -> Self {
        match letter {
            b'f' => Self::F32,
            b'h' => Self::F16,
            b'w' => Self::B16,
            b'p' => Self::PackedF16,
            b'k' => Self::PackedB16,
            b'x' => Self::Mix,
            b'd' => Self::F64,
            b'q' => Self::B64,
            b'm' => Self::Mask,
            b'4' => Self::X4,
            b'8' => Self::X8,
            _ => Self::B32,
        }
    }

    /// The number of 32-bit registers.
    pub fn registers(self) -> u8 {
        match self {
            Self::F64 | Self::B64 => 2,
            Self::X4 => 4,
            Self::X8 => 8,
            _ => 1,
        }
    }

    /// Twice the registers: matrix operands of RDNA 3 hold every row twice.
    pub(crate) fn doubled(self) -> Self {
        match self {
            Self::B32 => Self::B64,
            Self::B64 => Self::X4,
            _ => Self::X8,
        }
    }
}
