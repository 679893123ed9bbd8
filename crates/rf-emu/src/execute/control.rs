//! Branches, waits, barriers and the registers of the hardware.

use super::slot::{InstructionSlot, NO_SLOT};
use super::wave::Wave;
use crate::isa::Instruction;
use crate::isa::instruction::Operand;
use crate::isa::op::SaluOp;

/// How a wave continues after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// With this slot.
    To(u32),
    /// At an offset in the code object that a register holds.
    ToAddress(u64),
    /// Arrives at a barrier.
    Signal,
    /// Waits until all waves have arrived.
    Wait,
    /// Both.
    Barrier,
    /// Ends.
    End,
}

/// Executes a control instruction; `None` if it is not one. `base` is the address of the code
/// object.
pub(super) fn execute(
    wave: &mut Wave,
    slot: &InstructionSlot,
    instruction: &Instruction,
    op: SaluOp,
    base: u64,
) -> Result<Option<Flow>, &'static str> {
    let next = Flow::To(slot.next);
    let branch = |taken: bool| Some(if taken { Flow::To(slot.target) } else { next });
    Ok(match op {
        SaluOp::Endpgm => Some(Flow::End),
        SaluOp::Branch => branch(true),
        SaluOp::CbranchScc0 => branch(!wave.scc),
        SaluOp::CbranchScc1 => branch(wave.scc),
        SaluOp::CbranchVccz => branch(wave.vcc() == 0),
        SaluOp::CbranchVccnz => branch(wave.vcc() != 0),
        SaluOp::CbranchExecz => branch(wave.exec() == 0),
        SaluOp::CbranchExecnz => branch(wave.exec() != 0),
        SaluOp::Barrier => Some(Flow::Barrier),
        // The source -1 names the barrier of the workgroup.
        SaluOp::BarrierSignal => match wave.scalar(instruction.src[0].operand) as i32 {
            -1 => Some(Flow::Signal),
            _ => return Err("named barrier"),
        },
        SaluOp::BarrierWait => match instruction.immediate as i16 {
            -1 => Some(Flow::Wait),
            _ => return Err("named barrier"),
        },
        SaluOp::GetpcB64 => {
            wave.set_scalar_wide(instruction.dst, base + slot.offset + 4);
            Some(next)
        }
        SaluOp::SetpcB64 | SaluOp::SwappcB64 => {
            let target = wave.scalar_wide(instruction.src[0].operand);
            if op == SaluOp::SwappcB64 {
                wave.set_scalar_wide(instruction.dst, base + slot.offset + 4);
            }
            Some(Flow::ToAddress(target.wrapping_sub(base)))
        }
        SaluOp::GetregB32 | SaluOp::SetregB32 | SaluOp::SetregImm32B32 => {
            hardware_register(wave, instruction, op)?;
            Some(next)
        }
        SaluOp::RoundMode => {
            wave.mode.bits = wave.mode.bits & 0xf0 | instruction.immediate as u8 & 15;
            Some(next)
        }
        SaluOp::DenormMode => {
            wave.mode.bits = wave.mode.bits & 15 | (instruction.immediate as u8 & 15) << 4;
            Some(next)
        }
        // Hints and waits. The only message of compute kernels frees registers before the end.
        SaluOp::Nop
        | SaluOp::Sendmsg
        | SaluOp::Sleep
        | SaluOp::Setprio
        | SaluOp::SetInstPrefetchDistance
        | SaluOp::Clause
        | SaluOp::DelayAlu
        | SaluOp::CodeEnd
        | SaluOp::Waitcnt
        | SaluOp::WaitcntVscnt
        | SaluOp::WaitAlu
        | SaluOp::WaitIdle => Some(next),
        _ if op.waits_for_counter() => Some(next),
        _ => None,
    })
}

/// Reads or writes a part of a hardware register. MODE is the only one that matters to results.
fn hardware_register(
    wave: &mut Wave,
    instruction: &Instruction,
    op: SaluOp,
) -> Result<(), &'static str> {
    let code = instruction.immediate as u16;
    let (number, first, count) = (code & 63, code >> 6 & 31, u32::from(code >> 11) + 1);
    let mask = (u64::from(u32::MAX) >> (32 - count)) as u32;
    if op == SaluOp::GetregB32 {
        let value = match number {
            1 => u32::from(wave.mode.bits),
            // The position in the device and the clock.
            23 | 24 | 29 => 0,
            _ => return Err("hardware register"),
        };
        wave.set_scalar(instruction.dst, value >> first & mask);
        return Ok(());
    }
    match number {
        1 => {}
        // The base of scratch memory on RDNA 2: its addresses are recognised by their upper half.
        20 | 21 => return Ok(()),
        _ => return Err("hardware register"),
    }
    let value = match instruction.src[0].operand {
        Operand::None => 0,
        operand => wave.scalar(operand),
    };
    let old = u32::from(wave.mode.bits);
    let new = old & !(mask << first) | (value & mask) << first;
    wave.mode.bits = new as u8;
    Ok(())
}

impl Flow {
    /// Returns true if the flow leaves the decoded code.
    pub(crate) fn is_lost(self) -> bool {
        self == Self::To(NO_SLOT)
    }
}
