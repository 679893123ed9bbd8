//! The lanes that count as written after values moved between lanes.

use super::operands::Operands;
use super::unwritten::Written;
use crate::execute::data_share::named_lanes;
use crate::execute::vector::{SourceLane, source_lanes};
use crate::execute::wave::{Wave, is_set};
use crate::isa::Instruction;
use crate::isa::op::{DsOp, ValuOp};

impl Written {
    /// All bits if the lane that becomes a scalar was written.
    pub(super) fn of_lane(&self, wave: &Wave, op: ValuOp, instruction: &Instruction) -> u32 {
        let [value, selector, ..] = instruction.src.map(|source| source.operand);
        let (lane, selected) = match op {
            ValuOp::ReadlaneB32 => (wave.scalar(selector) & 31, self.whole(selector)),
            _ => (wave.first_active() as u32, u32::MAX),
        };
        if self.whole(value) >> lane & 1 != 0 { selected } else { 0 }
    }

    /// The lanes that were written after the first operand was exchanged.
    pub(super) fn moved(&self, wave: &Wave, instruction: &Instruction, operands: &Operands) -> u32 {
        let Some(sources) = source_lanes(wave, instruction) else { return u32::MAX };
        let (from, old) =
            (self.whole(instruction.src[0].operand), self.of_operand(instruction.dst));
        // The other operands are those of the same lane.
        let others = operands.reads.iter().skip(1).filter(|registers| registers.vector);
        let others = others.flat_map(|registers| registers.iter());
        let others = others.fold(u32::MAX, |lanes, at| lanes & self.bits(true, at));
        (0..).zip(sources).fold(0, |lanes, (lane, source)| {
            let bit = match source {
                SourceLane::Lane(source) => from >> source & others >> lane,
                SourceLane::Inactive(_) | SourceLane::Missing => others >> lane,
                SourceLane::Kept => old >> lane,
            };
            lanes | (bit & 1) << lane
        })
    }

    /// The lanes that were written after values were exchanged through LDS hardware.
    pub(crate) fn exchanged(
        &self,
        wave: &Wave,
        instruction: &Instruction,
        op: DsOp,
    ) -> Option<u32> {
        let (value, selectors) = match op {
            DsOp::Permute | DsOp::Bpermute => {
                (instruction.src[1].operand, self.whole(instruction.src[0].operand))
            }
            DsOp::Swizzle => (instruction.src[0].operand, u32::MAX),
            _ => return None,
        };
        let (from, exec) = (self.whole(value), wave.exec());
        // What no lane sends is zero.
        let mut lanes = u32::MAX;
        for (lane, other) in named_lanes(wave, instruction, op).into_iter().enumerate() {
            if !is_set(exec, lane) {
                continue;
            }
            let (source, target) = if op == DsOp::Permute { (lane, other) } else { (other, lane) };
            let is_written =
                (is_set(from, source) || !is_set(exec, source)) && is_set(selectors, lane);
            lanes = lanes & !(1 << target) | u32::from(is_written) << target;
        }
        Some(lanes)
    }
}
