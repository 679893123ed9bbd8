//! Instructions that need all lanes, or lanes that are active.

use super::vector::{self, SourceLane};
use super::wave::{Wave, is_set};
use super::workgroup::Workgroup;
use crate::fault::{FaultKind, Problem};
use crate::isa::instruction::Operand;
use crate::isa::op::{Op, ValuOp};
use crate::isa::{Instruction, ProcessorFamily};

impl Workgroup<'_> {
    /// Checks the lanes of a vector instruction.
    pub(super) fn check_lanes(
        &self,
        wave: &Wave,
        instruction: &Instruction,
    ) -> Result<(), Problem> {
        let exec = wave.exec();
        if exec != u32::MAX
            && let Some(sources) = vector::source_lanes(wave, instruction)
        {
            for (lane, source) in sources.into_iter().enumerate() {
                if let (true, SourceLane::Inactive(source)) = (is_set(exec, lane), source) {
                    let kind = FaultKind::InactiveLane { source_lane: source.into() };
                    return Err(Problem::in_lane(kind, lane));
                }
            }
        }
        match instruction.op {
            Op::Valu(op) if op.is_matrix() => self.check_matrix(wave, instruction, op),
            _ => Ok(()),
        }
    }

    /// Matrix instructions need all lanes, and RDNA 3's operands are held twice.
    fn check_matrix(
        &self,
        wave: &Wave,
        instruction: &Instruction,
        op: ValuOp,
    ) -> Result<(), Problem> {
        if op == ValuOp::ReadlaneB32 {
            return Ok(());
        }
        if wave.exec() != u32::MAX {
            return Err(FaultKind::MatrixExec { exec: wave.exec() }.into());
        }
        if self.program.arch.family() != ProcessorFamily::Rdna3 {
            return Ok(());
        }
        for source in &instruction.src[..2] {
            let Operand::Vgpr(first) = source.operand else { continue };
            for at in 0..source.kind.registers() {
                let lanes = &wave.vgpr[usize::from(first) + usize::from(at)];
                // Halves are compared at once: they hardly ever differ.
                if lanes[..16] != lanes[16..]
                    && let Some(lane) = (0..16).find(|&lane| lanes[lane] != lanes[lane + 16])
                {
                    let register = format!("v{}", u32::from(first) + u32::from(at));
                    return Err(FaultKind::MatrixHalves { register, lane: lane as u32 }.into());
                }
            }
        }
        Ok(())
    }
}
