//! Operations that move values between lanes, or between lanes and scalars.

use super::{Instruction, LANES, Operand, ValuOp, Vector, is_set, per_lane};

impl Vector<'_> {
    /// Returns true if the operation was one across lanes.
    pub(super) fn across_lanes(&mut self, op: ValuOp) -> Result<bool, &'static str> {
        match op {
            ValuOp::ReadfirstlaneB32 => {
                let lane = self.wave.first_active();
                self.read_lane(lane);
            }
            ValuOp::ReadlaneB32 => {
                let lane = self.wave.scalar(self.instruction.src[1].operand) as usize % LANES;
                self.read_lane(lane);
            }
            ValuOp::WritelaneB32 => {
                let value = self.wave.scalar(self.instruction.src[0].operand);
                let lane = self.wave.scalar(self.instruction.src[1].operand) as usize % LANES;
                if let Operand::Vgpr(register) = self.instruction.dst {
                    self.wave.vgpr[usize::from(register)][lane] = value;
                }
            }
            ValuOp::MbcntLoU32B32 => self.count_lower_lanes(true),
            // A wave of 32 lanes has no lanes in the high half.
            ValuOp::MbcntHiU32B32 => self.count_lower_lanes(false),
            ValuOp::Permlane16B32
            | ValuOp::Permlanex16B32
            | ValuOp::Permlane16VarB32
            | ValuOp::Permlanex16VarB32 => self.permute_rows(op),
            // The second exchanges the halves of a wave of 64 lanes.
            ValuOp::Nop | ValuOp::Permlane64B32 => {}
            ValuOp::SwapB32 => {
                let (dst, src) = (self.instruction.dst, self.instruction.src[0].operand);
                let mut buffer = None;
                let (old, new) = (self.accumulator(), *self.wave.lanes(src, &mut buffer));
                self.wave.write(dst, self.mask, &new);
                self.wave.write(src, self.mask, &old);
            }
            ValuOp::SwapB16 => self.swap_halves(),
            ValuOp::MovrelsB32 | ValuOp::MovreldB32 => self.move_relative(op)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn swap_halves(&mut self) {
        let Instruction { dst, dst_high, src: [source, ..], .. } = *self.instruction;
        let shift = |high: bool| if high { 16 } else { 0 };
        let (to, from) = (shift(dst_high), shift(source.high));
        let mut buffer = None;
        let (old, other) = (self.accumulator(), *self.wave.lanes(source.operand, &mut buffer));
        let put = |word: u32, half: u32, at: u32| word & !(0xffff << at) | (half & 0xffff) << at;
        let both = dst == source.operand;
        let new = per_lane(|lane| {
            let word = put(old[lane], other[lane] >> from, to);
            if both { put(word, old[lane] >> to, from) } else { word }
        });
        self.wave.write(dst, self.mask, &new);
        if !both {
            let new = per_lane(|lane| put(other[lane], old[lane] >> to, from));
            self.wave.write(source.operand, self.mask, &new);
        }
    }

    fn read_lane(&mut self, lane: usize) {
        let mut buffer = None;
        let value = self.wave.lanes(self.instruction.src[0].operand, &mut buffer)[lane];
        self.wave.set_scalar(self.instruction.dst, value);
    }

    /// Adds the number of lower lanes that a mask contains.
    fn count_lower_lanes(&mut self, is_low_half: bool) {
        let (mut first, mut second) = (None, None);
        let (masks, base) = (self.source(0, &mut first), self.source(1, &mut second));
        let lanes = per_lane(|lane| {
            let lower = if is_low_half { (1 << lane) - 1 } else { 0 };
            base[lane].wrapping_add((masks[lane] & lower).count_ones())
        });
        self.put(&lanes);
    }

    /// Each lane reads the lane of its row, or of the other row, that a selector names.
    fn permute_rows(&mut self, op: ValuOp) {
        let [value, low, high, _] = &self.instruction.src;
        let (fetch_inactive, zero) = (value.high, low.high);
        let (mut first, mut second) = (None, None);
        let values = self.wave.lanes(value.operand, &mut first);
        let selectors = match op {
            ValuOp::Permlane16B32 | ValuOp::Permlanex16B32 => {
                let (low, high) = (self.wave.scalar(low.operand), self.wave.scalar(high.operand));
                let selector = u64::from(high) << 32 | u64::from(low);
                per_lane(|lane| (selector >> (lane % 16 * 4)) as u32)
            }
            _ => *self.wave.lanes(low.operand, &mut second),
        };
        let is_crossed = matches!(op, ValuOp::Permlanex16B32 | ValuOp::Permlanex16VarB32);
        let exec = self.wave.exec();
        let old = self.accumulator();
        let lanes = per_lane(|lane| {
            let row = if is_crossed { !lane & 16 } else { lane & 16 };
            let source = row | (selectors[lane] & 15) as usize;
            if fetch_inactive || is_set(exec, source) {
                values[source]
            } else if zero {
                0
            } else {
                old[lane]
            }
        });
        self.put(&lanes);
    }

    /// Moves from or to the register that M0 displaces.
    fn move_relative(&mut self, op: ValuOp) -> Result<(), &'static str> {
        let displacement = self.wave.scalar(Operand::Sgpr(crate::isa::instruction::register::M0));
        let displaced = |operand| match operand {
            Operand::Vgpr(register) => u32::from(register)
                .checked_add(displacement)
                .and_then(|register| u8::try_from(register).ok())
                .map(Operand::Vgpr)
                .ok_or("register displaced by M0 beyond the last one"),
            other => Ok(other),
        };
        let (mut dst, mut src) = (self.instruction.dst, self.instruction.src[0].operand);
        if op == ValuOp::MovrelsB32 {
            src = displaced(src)?;
        } else {
            dst = displaced(dst)?;
        }
        let mut buffer = None;
        let lanes = *self.wave.lanes(src, &mut buffer);
        self.wave.write(dst, self.mask, &lanes);
        Ok(())
    }
}
