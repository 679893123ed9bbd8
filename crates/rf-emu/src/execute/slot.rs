//! Decoded instructions with their places.

use super::scalar::{self, ScalarGroup};
use super::vector::{self, VectorGroup};
use super::wave::Wave;
use crate::check::operands::Operands;
use crate::isa::op::{Op, SaluOp};
use crate::isa::{DecodeError, Instruction};

/// An instruction with its place.
#[derive(Debug)]
pub(crate) struct InstructionSlot {
    /// The offset in the code object.
    pub(crate) offset: u64,
    pub(crate) instruction: Result<Instruction, DecodeError>,
    /// The slot of the following instruction, and of the branch's target.
    pub(crate) next: u32,
    pub(crate) target: u32,
    pub(crate) operands: Operands,
    /// How to execute the instruction as a part of a run.
    pub(crate) simple: Option<Simple>,
}

/// A slot that does not exist.
pub(crate) const NO_SLOT: u32 = u32::MAX;

/// How to execute an instruction that touches nothing but registers, and leaves EXEC alone.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Simple {
    /// A hint without effect.
    Hint,
    Scalar(SaluOp, ScalarGroup),
    Vector(VectorGroup),
}

impl Simple {
    /// The way to execute an instruction; `None` if it is not simple. `wave` is any wave: the
    /// instruction is tried with it.
    pub(crate) fn of(instruction: &Instruction, wave: &mut Wave) -> Option<Self> {
        match instruction.op {
            Op::Valu(_) | Op::Compare(_) => vector::group(instruction, wave).map(Self::Vector),
            Op::Salu(
                SaluOp::Nop
                | SaluOp::Clause
                | SaluOp::DelayAlu
                | SaluOp::Setprio
                | SaluOp::SetInstPrefetchDistance,
            ) => Some(Self::Hint),
            Op::Salu(op) => {
                scalar::group(instruction, op, wave).map(|group| Self::Scalar(op, group))
            }
            _ => None,
        }
    }
}
