//! Decoded instructions.

use std::borrow::Cow;

use super::op::Op;
use super::table::OperandType;

/// The encoding of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the instruction set manuals")]
pub enum Encoding {
    Sop1,
    Sop2,
    Sopc,
    Sopk,
    Sopp,
    Smem,
    Vop1,
    Vop2,
    Vopc,
    Vop3,
    Vop3p,
    Vopd,
    Ds,
    Flat,
    Global,
    Scratch,
    Mubuf,
}

/// A scalar register beyond the general ones, by its number in encodings.
pub mod register {
    /// The low half of VCC.
    pub const VCC: u8 = 106;
    /// Reads as zero, ignores writes. RDNA 2's number is exchanged with [`M0`] when decoding.
    pub const NULL: u8 = 124;
    /// M0.
    pub const M0: u8 = 125;
    /// The low half of EXEC.
    pub const EXEC: u8 = 126;
}

/// An operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// No operand.
    None,
    /// A vector register.
    Vgpr(u8),
    /// A scalar register, numbered as in [`register`] and, up to 123, as in encodings.
    Sgpr(u8),
    /// An inline constant.
    Constant {
        /// The number in encodings.
        code: u8,
        /// The bits, of the operand's type.
        bits: u64,
    },
    /// A constant after the instruction.
    Literal {
        /// The dword.
        value: u32,
        /// The bits, of the operand's type.
        bits: u64,
    },
    /// SCC, VCCZ or EXECZ (253, 251, 252) or the base of an aperture (235 to 238).
    Special(u8),
}

/// An operand with its type and modifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "they are the bits of the encoding")]
pub struct SourceOperand {
    /// The place.
    pub operand: Operand,
    /// The type.
    pub kind: OperandType,
    /// True if the value is negated, after `abs`.
    pub neg: bool,
    /// True if the sign is cleared.
    pub abs: bool,
    /// For 16 bits: whether from the high half. For packed operands: the source of the low result.
    pub high: bool,
    /// For packed operands: whether the high result uses the high half.
    pub high_for_high: bool,
    /// For packed operands: whether the value of the high result is negated. For dot products and
    /// matrices, `neg` marks signed operands instead.
    pub neg_high: bool,
}

/// Part of a register that an SDWA instruction selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the assembler")]
pub enum Select {
    Byte(u8),
    Word(u8),
    Dword,
}

/// The exchange between lanes, or the selection of parts, that an instruction applies to sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// No exchange.
    None,
    /// DPP of rows of 16 lanes.
    Dpp16 {
        /// The pattern.
        control: u16,
        /// A bit per row of 16 lanes that is written.
        row_mask: u8,
        /// A bit per 4 lanes of each row that are written.
        bank_mask: u8,
        /// True if lanes without a source read zero; otherwise they keep their result.
        zero: bool,
        /// True if inactive lanes are read.
        fetch_inactive: bool,
    },
    /// DPP of groups of 8 lanes: 3 bits per lane name the source.
    Dpp8 {
        /// The sources.
        lanes: u32,
        /// True if inactive lanes are read.
        fetch_inactive: bool,
    },
    /// SDWA (RDNA 2).
    Sdwa {
        /// The part that is written.
        dst: Select,
        /// The treatment of the other bits: 0 zero, 1 sign, 2 preserve.
        unused: u8,
        /// The parts of the first two sources that are read.
        src: [Select; 2],
        /// True if they are sign-extended.
        signed: [bool; 2],
    },
}

/// A decoded instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction {
    /// The operation.
    pub op: Op,
    /// The encoding.
    pub encoding: Encoding,
    /// The name without a suffix for the encoding.
    pub name: Cow<'static, str>,
    /// True if the name takes a suffix for the encoding.
    pub suffixed: bool,
    /// The size in bytes: 4, 8 or 12.
    pub bytes: u8,
    /// The vector or scalar destination.
    pub dst: Operand,
    /// The type of the destination.
    pub dst_kind: OperandType,
    /// For 16 bits: whether the high half of the destination is written.
    pub dst_high: bool,
    /// The scalar destination of vector operations that have two.
    pub dst_mask: Operand,
    /// The sources; the first `sources` are in use.
    pub src: [SourceOperand; 4],
    /// The number of sources.
    pub sources: u8,
    /// True if the result is clamped: floats to 0..=1, integers to their range.
    pub clamp: bool,
    /// The output modifier: 0 none, 1 times 2, 2 times 4, 3 divided by 2.
    pub output_modifier: u8,
    /// The exchange between lanes.
    pub exchange: Exchange,
    /// Immediate operand: SOPP and SOPK, the offset of memory instructions, the second offset of
    /// DS in bits 8 to 15.
    pub immediate: i32,
    /// The cache control bits: RDNA 2 and 3 glc, slc, dlc from bit 0; RDNA 4 scope in bits 0 and 1,
    /// temporal hint above.
    pub cache: u8,
    /// The second operation of a dual instruction.
    pub second: Option<Box<Self>>,
}

impl SourceOperand {
    /// An operand without modifiers.
    pub(crate) const fn plain(operand: Operand, kind: OperandType) -> Self {
        Self {
            operand,
            kind,
            neg: false,
            abs: false,
            high: false,
            high_for_high: false,
            neg_high: false,
        }
    }
}

impl Instruction {
    /// The sources in use.
    pub fn sources(&self) -> &[SourceOperand] {
        &self.src[..usize::from(self.sources)]
    }

    /// The target of a relative branch at `pc`.
    pub fn branch_target(&self, pc: u64) -> u64 {
        pc.wrapping_add(4).wrapping_add_signed(i64::from(self.immediate as i16) * 4)
    }
}
