//! Scalar and vector memory instructions.

use super::{
    atomic,
    wave::{LANES, PRIVATE_BASE, SHARED_BASE, Wave, is_set},
    workgroup::Group,
};
use crate::{
    check::race::Accessor,
    fault::{FaultKind, Problem},
    isa::{
        Family, Instruction, Kind,
        instruction::{Encoding, Operand, register},
        op::{Access, AtomicOp, VmemOp},
    },
};

/// The access of one lane of a load or store.
#[derive(Clone, Copy)]
struct Target {
    place: Place,
    lane: usize,
    bytes: u32,
    /// True if the access does not race with atomic updates.
    is_atomic: bool,
}

/// A place that a vector memory instruction accesses.
#[derive(Clone, Copy)]
enum Place {
    Global(u64),
    Lds(u32),
    Scratch(u32),
}

/// Changes loaded bits to what a register receives.
pub(super) fn into_register(access: Access, loaded: u32, old: u32) -> u32 {
    let extend = |bytes: u8, signed: bool| match (bytes, signed) {
        (1, true) => loaded as i8 as u32,
        (2, true) => loaded as i16 as u32,
        _ => loaded,
    };
    match access {
        Access::Bytes(_) => loaded,
        Access::Signed(bytes) => extend(bytes, true),
        Access::Low { bytes, signed } => old & 0xffff_0000 | extend(bytes, signed) & 0xffff,
        Access::High { bytes, signed } => old & 0xffff | extend(bytes, signed) << 16,
    }
}

/// The bits that a store takes from a register.
pub(super) fn from_register(access: Access, value: u32) -> u32 {
    match access {
        Access::High { .. } => value >> 16,
        _ => value,
    }
}

impl Group<'_> {
    /// A scalar load. Returns whether all bytes were written.
    pub(super) fn scalar_load(
        &mut self,
        wave: &mut Wave,
        instruction: &Instruction,
        access: Access,
        registers: u8,
    ) -> Result<bool, Problem> {
        let base = wave.scalar_wide(instruction.src[0].operand);
        let offset = match instruction.src[1].operand {
            Operand::Sgpr(register::NULL) => 0,
            operand => wave.scalar(operand),
        };
        let address = base
            .wrapping_add(u64::from(offset))
            .wrapping_add_signed(i64::from(instruction.immediate));
        let bytes = if registers > 1 { u32::from(registers) * 4 } else { access.bytes() };
        let alignment = bytes.min(4);
        if self.checks.alignment && address & u64::from(alignment - 1) != 0 {
            return Err(FaultKind::Misaligned { address, alignment }.into());
        }
        let view = self.ranges.resolve(address, bytes.into(), &mut self.hint)?;
        let Operand::Sgpr(first) = instruction.dst else { return Ok(true) };
        for at in 0..registers {
            let offset = usize::from(at) * 4;
            let value = match access.bytes() {
                1 => view.load_u8(offset).into(),
                2 => view.load_u16(offset).into(),
                _ => view.load_u32(offset),
            };
            let value = into_register(access, value, 0);
            wave.set_scalar(Operand::Sgpr(first.wrapping_add(at)), value);
        }
        let tracks = self.checks.uninitialised;
        Ok(!tracks || view.is_initialised(0, bytes as usize))
    }

    /// A vector load, store or atomic update. Returns the lanes whose loaded bytes were written.
    pub(super) fn vector_memory(
        &mut self,
        wave: &mut Wave,
        accessor: Accessor,
        instruction: &Instruction,
        op: VmemOp,
    ) -> Result<u32, Problem> {
        let exec = wave.exec();
        let mut written = u32::MAX;
        match op {
            VmemOp::Invalidate | VmemOp::WriteBackInvalidate => {
                if self.reaches_device(instruction) {
                    self.clock.acquire();
                }
            }
            VmemOp::WriteBack => {}
            VmemOp::Load(access) => {
                let Operand::Vgpr(dst) = instruction.dst else { return Ok(written) };
                // The destination may overlap the address.
                let places = Self::places(wave, instruction);
                // A load that passes by the caches of the workgroup is an atomic one.
                let is_atomic = instruction.cache != 0 && self.reaches_device(instruction);
                for lane in (0..LANES).filter(|&lane| is_set(exec, lane)) {
                    let bytes = access.bytes();
                    let target = Target { place: places[lane], lane, bytes, is_atomic };
                    let (words, complete) = self
                        .load(wave, accessor, target)
                        .map_err(|kind| Problem::in_lane(kind, lane))?;
                    for at in 0..access.registers() {
                        let target = &mut wave.vgpr[usize::from(dst) + usize::from(at)][lane];
                        *target = into_register(access, words[usize::from(at)], *target);
                    }
                    written &= !(u32::from(!complete) << lane);
                }
            }
            VmemOp::Store(access) => {
                let Operand::Vgpr(data) = instruction.src[1].operand else { return Ok(written) };
                let places = Self::places(wave, instruction);
                for lane in (0..LANES).filter(|&lane| is_set(exec, lane)) {
                    let bytes = access.bytes();
                    let target = Target { place: places[lane], lane, bytes, is_atomic: false };
                    let mut words = [0; 4];
                    for at in 0..access.registers() {
                        let value = wave.vgpr[usize::from(data) + usize::from(at)][lane];
                        words[usize::from(at)] = from_register(access, value);
                    }
                    self.store(wave, accessor, target, words)
                        .map_err(|kind| Problem::in_lane(kind, lane))?;
                }
            }
            VmemOp::Atomic { op, wide } => {
                let Operand::Vgpr(data) = instruction.src[1].operand else { return Ok(written) };
                let places = Self::places(wave, instruction);
                for lane in (0..LANES).filter(|&lane| is_set(exec, lane)) {
                    let old = self.update(wave, accessor, data, (places[lane], lane), (op, wide));
                    let mut old =
                        old.map_err(|problem| Problem { lane: Some(lane as u32), ..problem })?;
                    if let Operand::Vgpr(dst) = instruction.dst {
                        for at in 0..=usize::from(wide) {
                            wave.vgpr[usize::from(dst) + at][lane] = old as u32;
                            old >>= 32;
                        }
                    }
                }
            }
        }
        Ok(written)
    }

    /// Returns true if a cache control or the cache bits of a load concern more than the workgroup.
    fn reaches_device(&self, instruction: &Instruction) -> bool {
        match self.program.arch.family() {
            Family::Rdna4 => instruction.cache & 3 >= 2,
            // `buffer_gl0_inv` drops the cache of the workgroup, `buffer_gl1_inv` the next one.
            _ => !instruction.name.ends_with("gl0_inv"),
        }
    }

    /// The place of each lane.
    fn places(wave: &Wave, instruction: &Instruction) -> [Place; LANES] {
        let offset = i64::from(instruction.immediate);
        let address = &instruction.src[0];
        let scalar = instruction.src[2].operand;
        if instruction.encoding == Encoding::Scratch {
            let scalar = wave.scalar(scalar).wrapping_add(offset as u32);
            let mut buffer = [0; LANES];
            let lanes = wave.lanes(address.operand, &mut buffer);
            return std::array::from_fn(|lane| Place::Scratch(lanes[lane].wrapping_add(scalar)));
        }
        let addresses: [u64; LANES] = if address.kind == Kind::B64 {
            wave.wide_source(address)
        } else {
            let base = wave.scalar_wide(scalar);
            let mut buffer = [0; LANES];
            wave.lanes(address.operand, &mut buffer).map(|lane| base.wrapping_add(lane.into()))
        };
        let is_flat = instruction.encoding == Encoding::Flat;
        addresses.map(|address| {
            let address = address.wrapping_add_signed(offset);
            match (address >> 32) as u32 {
                SHARED_BASE if is_flat => Place::Lds(address as u32),
                PRIVATE_BASE if is_flat => Place::Scratch(address as u32),
                _ => Place::Global(address),
            }
        })
    }

    fn load(
        &mut self,
        wave: &Wave,
        accessor: Accessor,
        target: Target,
    ) -> Result<([u32; 4], bool), FaultKind> {
        let Target { place, lane, bytes, is_atomic } = target;
        let mut words = [0; 4];
        match place {
            Place::Global(address) => {
                let view = self.ranges.resolve(address, bytes.into(), &mut self.hint)?;
                let race = match (self.shadow, is_atomic) {
                    (Some(shadow), false) => {
                        // Whether a value is used is only known after a write that came first.
                        let records = !self.checks.uninitialised;
                        shadow.read(&self.clock, address, bytes, records).err()
                    }
                    _ => None,
                };
                let races = race.is_some();
                if let Some(race) = race {
                    // A value that nothing uses may be read: kernels load whole rows or blocks.
                    if !self.checks.uninitialised {
                        return Err(race);
                    }
                    self.raced.get_or_insert(race);
                }
                match bytes {
                    1 => words[0] = view.load_u8(0).into(),
                    2 => words[0] = view.load_u16(0).into(),
                    4 => words[0] = view.load_u32(0),
                    _ => view.load_words(0, &mut words[..bytes as usize / 4]),
                }
                let tracks = self.checks.uninitialised;
                Ok((words, !races && (!tracks || view.is_initialised(0, bytes as usize))))
            }
            Place::Lds(address) => self.lds.load(accessor, address, bytes),
            Place::Scratch(address) => {
                let range = scratch_range(wave, lane, address, bytes)?;
                let mut raw = [[0; 4]; 4];
                raw.as_flattened_mut()[..range.len()].copy_from_slice(&wave.scratch[range]);
                Ok((raw.map(u32::from_le_bytes), true))
            }
        }
    }

    fn store(
        &mut self,
        wave: &mut Wave,
        accessor: Accessor,
        target: Target,
        words: [u32; 4],
    ) -> Result<(), FaultKind> {
        let Target { place, lane, bytes, .. } = target;
        match place {
            Place::Global(address) => {
                let view = self.ranges.resolve_writable(address, bytes.into(), &mut self.hint)?;
                if let Some(shadow) = self.shadow {
                    shadow.write(&self.clock, address, bytes)?;
                }
                match bytes {
                    1 => view.store_u8(0, words[0] as u8),
                    2 => view.store_u16(0, words[0] as u16),
                    4 => view.store_u32(0, words[0]),
                    _ => view.store_words(0, &words[..bytes as usize / 4]),
                }
                Ok(())
            }
            Place::Lds(address) => self.lds.store(accessor, address, bytes, words),
            Place::Scratch(address) => {
                let range = scratch_range(wave, lane, address, bytes)?;
                let raw = words.map(u32::to_le_bytes);
                let length = range.len();
                wave.scratch[range].copy_from_slice(&raw.as_flattened()[..length]);
                Ok(())
            }
        }
    }

    fn update(
        &mut self,
        wave: &Wave,
        accessor: Accessor,
        data: u8,
        (place, lane): (Place, usize),
        (op, wide): (AtomicOp, bool),
    ) -> Result<u64, Problem> {
        let value = |at: usize| {
            let first = usize::from(data) + at * (1 + usize::from(wide));
            let low = u64::from(wave.vgpr[first][lane]);
            if wide { low | u64::from(wave.vgpr[first + 1][lane]) << 32 } else { low }
        };
        let (new, compare) = (value(0), if op == AtomicOp::Cmpswap { value(1) } else { 0 });
        match place {
            Place::Global(address) => {
                let bytes = if wide { 8 } else { 4 };
                if !address.is_multiple_of(bytes) {
                    let alignment = bytes as u32;
                    return Err(FaultKind::Misaligned { address, alignment }.into());
                }
                let view = self.ranges.resolve_writable(address, bytes, &mut self.hint)?;
                if let Some(shadow) = self.shadow {
                    shadow.update(&mut self.clock, address, bytes as u32, accessor.releases)?;
                }
                Ok(if wide {
                    view.update_u64(0, |old| atomic::apply(op, true, old, new, compare))
                } else {
                    let update =
                        |old: u32| atomic::apply(op, false, old.into(), new, compare) as u32;
                    view.update_u32(0, update).into()
                })
            }
            Place::Lds(address) => self.lds.update(accessor, address, (op, wide), new, compare),
            Place::Scratch(_) => {
                Err(FaultKind::Unsupported("atomic update of scratch memory").into())
            }
        }
    }
}

fn scratch_range(
    wave: &Wave,
    lane: usize,
    address: u32,
    bytes: u32,
) -> Result<std::ops::Range<usize>, FaultKind> {
    let (start, size) = (address as usize, wave.scratch_bytes);
    if start + bytes as usize > size {
        return Err(FaultKind::ScratchBounds { address, bytes, size: size as u32 });
    }
    let start = lane * size + start;
    Ok(start..start + bytes as usize)
}
