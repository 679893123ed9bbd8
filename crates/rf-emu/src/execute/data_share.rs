//! LDS instructions.

use super::memory::{from_register, into_register};
use super::share::LdsSpread;
use super::wave::{LANES, Lanes, Wave, is_set};
use super::workgroup::Workgroup;
use crate::check::race::Accessor;
use crate::fault::{FaultKind, Problem};
use crate::isa::instruction::Operand;
use crate::isa::op::{Access, AtomicOp, DsOp};
use crate::isa::{Instruction, ProcessorFamily};

impl Workgroup<'_> {
    /// Executes an LDS instruction. Returns the lanes whose loaded bytes were written.
    pub(super) fn data_share(
        &mut self,
        wave: &mut Wave,
        accessor: Accessor,
        instruction: &Instruction,
        op: DsOp,
    ) -> Result<u32, Problem> {
        let mut buffer = None;
        let addresses = *wave.lanes(instruction.src[0].operand, &mut buffer);
        let offset = u32::from(instruction.immediate as u16);
        let exec = wave.exec();
        let mut written = u32::MAX;
        match op {
            DsOp::Nop => return Ok(written),
            DsOp::Permute | DsOp::Bpermute | DsOp::Swizzle => {
                self.exchange(wave, instruction, op)?;
                return Ok(written);
            }
            DsOp::Load(_) | DsOp::Load2 { .. } => {}
            DsOp::Store(_) | DsOp::Store2 { .. } | DsOp::Atomic { .. } => self.changed = true,
        }
        if let Some(written) = self.all_lanes(wave, accessor, instruction, op, &addresses) {
            return Ok(written);
        }
        for lane in (0..LANES).filter(|&lane| is_set(exec, lane)) {
            let address = addresses[lane];
            let in_lane = |kind: FaultKind| Problem::in_lane(kind, lane);
            match op {
                DsOp::Load(access) => {
                    let at = address.wrapping_add(offset);
                    let loaded = self.lds.load(accessor, at, access.bytes()).map_err(in_lane)?;
                    fill(wave, instruction.dst, 0, lane, access, loaded.0);
                    written &= !(u32::from(!loaded.1) << lane);
                }
                DsOp::Store(access) => {
                    let at = address.wrapping_add(offset);
                    let words = take(wave, instruction.src[1].operand, lane, access);
                    self.lds.store(accessor, at, access.bytes(), words).map_err(in_lane)?;
                }
                DsOp::Load2 { wide, stride64 } => {
                    let access = Access::Bytes(if wide { 8 } else { 4 });
                    for (half, at) in pair(address, offset, wide, stride64).into_iter().enumerate()
                    {
                        let loaded =
                            self.lds.load(accessor, at, access.bytes()).map_err(in_lane)?;
                        let first = half * usize::from(access.registers());
                        fill(wave, instruction.dst, first, lane, access, loaded.0);
                        written &= !(u32::from(!loaded.1) << lane);
                    }
                }
                DsOp::Store2 { wide, stride64 } => {
                    let access = Access::Bytes(if wide { 8 } else { 4 });
                    for (half, at) in pair(address, offset, wide, stride64).into_iter().enumerate()
                    {
                        let words = take(wave, instruction.src[1 + half].operand, lane, access);
                        self.lds.store(accessor, at, access.bytes(), words).map_err(in_lane)?;
                    }
                }
                DsOp::Atomic { op, wide, .. } => {
                    let at = address.wrapping_add(offset);
                    let old =
                        self.update_share(wave, accessor, instruction, (at, lane), (op, wide));
                    let old =
                        old.map_err(|problem| Problem { lane: Some(lane as u32), ..problem })?;
                    if instruction.dst != Operand::None {
                        let words = [old as u32, (old >> 32) as u32, 0, 0];
                        let access = Access::Bytes(if wide { 8 } else { 4 });
                        fill(wave, instruction.dst, 0, lane, access, words);
                    }
                }
                DsOp::Nop | DsOp::Permute | DsOp::Bpermute | DsOp::Swizzle => {}
            }
        }
        Ok(written)
    }

    /// Loads or stores whole dwords with all lanes at once, if nothing needs a closer look. Returns
    /// the lanes whose loaded bytes were written.
    fn all_lanes(
        &mut self,
        wave: &mut Wave,
        accessor: Accessor,
        instruction: &Instruction,
        op: DsOp,
        addresses: &Lanes,
    ) -> Option<u32> {
        let offset = u32::from(instruction.immediate as u16);
        let exec = wave.exec();
        let pairs = |wide: bool, stride64: bool| {
            let [first, second] = pair(0, offset, wide, stride64);
            (if wide { 2 } else { 1 }, [first, second])
        };
        let (count, offsets) = match op {
            DsOp::Load(Access::Bytes(bytes @ 4..)) | DsOp::Store(Access::Bytes(bytes @ 4..)) => {
                (usize::from(bytes / 4), [offset; 2])
            }
            DsOp::Load2 { wide, stride64 } | DsOp::Store2 { wide, stride64 } => {
                pairs(wide, stride64)
            }
            _ => return None,
        };
        let halves = if matches!(op, DsOp::Load2 { .. } | DsOp::Store2 { .. }) { 2 } else { 1 };
        let mut written = u32::MAX;
        for (half, offset) in offsets.into_iter().enumerate().take(halves) {
            let spread = LdsSpread::of(addresses, offset, exec, self.lds.len(), count * 4)?;
            if matches!(op, DsOp::Load(_) | DsOp::Load2 { .. }) {
                let Operand::Vgpr(dst) = instruction.dst else { return None };
                let mut loaded = [[0; LANES]; 4];
                written &= self.lds.load_lanes(accessor, &spread, &mut loaded[..count])?;
                for (register, loaded) in loaded.iter().enumerate().take(count) {
                    wave.write_register(usize::from(dst) + half * count + register, exec, loaded);
                }
            } else {
                let Operand::Vgpr(data) = instruction.src[1 + half].operand else { return None };
                let first = usize::from(data);
                self.lds.store_lanes(accessor, &spread, &wave.vgpr[first..first + count])?;
            }
        }
        Some(written)
    }

    fn update_share(
        &mut self,
        wave: &Wave,
        accessor: Accessor,
        instruction: &Instruction,
        (address, lane): (u32, usize),
        (op, wide): (AtomicOp, bool),
    ) -> Result<u64, Problem> {
        let access = Access::Bytes(if wide { 8 } else { 4 });
        let value = |at: usize| {
            let words = take(wave, instruction.src[at].operand, lane, access);
            u64::from(words[0]) | u64::from(words[1]) << 32
        };
        let (mut data, mut compare) = (value(1), 0);
        if op == AtomicOp::Cmpswap {
            compare = value(2);
            // RDNA 2's operands are in the other order.
            if self.program.arch.family() == ProcessorFamily::Rdna2 {
                (data, compare) = (compare, data);
            }
        }
        self.lds.update(accessor, address, (op, wide), data, compare)
    }

    /// Exchanges values between lanes; LDS is not involved.
    fn exchange(
        &self,
        wave: &mut Wave,
        instruction: &Instruction,
        op: DsOp,
    ) -> Result<(), Problem> {
        let exec = wave.exec();
        let source = instruction.src[usize::from(op != DsOp::Swizzle)].operand;
        let mut buffer = None;
        let values = *wave.lanes(source, &mut buffer);
        let mut result = [0; LANES];
        for (lane, other) in named_lanes(wave, instruction, op).into_iter().enumerate() {
            if !is_set(exec, lane) {
                continue;
            }
            if op == DsOp::Permute {
                result[other] = values[lane];
            } else if is_set(exec, other) {
                result[lane] = values[other];
            } else if self.checks.lanes {
                let kind = FaultKind::InactiveLane { source_lane: other as u32 };
                return Err(Problem::in_lane(kind, lane));
            }
        }
        wave.write(instruction.dst, exec, &result);
        Ok(())
    }
}

/// The lane to which each lane sends its value, or from which it receives one.
pub(crate) fn named_lanes(wave: &Wave, instruction: &Instruction, op: DsOp) -> [usize; LANES] {
    let offset = u32::from(instruction.immediate as u16);
    if op == DsOp::Swizzle {
        return std::array::from_fn(|lane| swizzled(offset, lane));
    }
    let mut buffer = None;
    let addresses = wave.lanes(instruction.src[0].operand, &mut buffer);
    addresses.map(|address| (address.wrapping_add(offset) / 4) as usize % LANES)
}

/// The lane that a lane reads in a swizzle.
fn swizzled(offset: u32, lane: usize) -> usize {
    let lane = lane as u32;
    let from = if offset & 0x8000 != 0 {
        lane & !3 | offset >> (lane % 4 * 2) & 3
    } else {
        ((lane & offset & 31) | (offset >> 5 & 31)) ^ (offset >> 10 & 31)
    };
    from as usize % LANES
}

/// The addresses of an instruction with two.
fn pair(address: u32, offset: u32, wide: bool, stride64: bool) -> [u32; 2] {
    let unit = if wide { 8 } else { 4 } * if stride64 { 64 } else { 1 };
    [offset & 255, offset >> 8].map(|offset| address.wrapping_add(offset * unit))
}

fn fill(wave: &mut Wave, dst: Operand, first: usize, lane: usize, access: Access, words: [u32; 4]) {
    let Operand::Vgpr(dst) = dst else { return };
    for (at, &word) in words.iter().enumerate().take(access.registers().into()) {
        let target = &mut wave.vgpr[usize::from(dst) + first + at][lane];
        *target = into_register(access, word, *target);
    }
}

fn take(wave: &Wave, source: Operand, lane: usize, access: Access) -> [u32; 4] {
    let mut words = [0; 4];
    if let Operand::Vgpr(source) = source {
        for (at, word) in words.iter_mut().enumerate().take(access.registers().into()) {
            *word = from_register(access, wave.vgpr[usize::from(source) + at][lane]);
        }
    }
    words
}
