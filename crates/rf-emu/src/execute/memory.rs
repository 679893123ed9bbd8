//! Scalar and vector memory instructions.

mod holes;
mod scope;

use super::atomic;
use super::wave::{
    LANE_BITS, LANES, Lanes, PRIVATE_BASE, SCRATCH_BUFFER, SHARED_BASE, Wave, is_set, per_lane,
};
use super::workgroup::Workgroup;
use crate::check::global::{ByteSpan, LoadScope, WriteKind};
use crate::check::race::Accessor;
use crate::check::unwritten::Holes;
use crate::fault::{FaultKind, Problem};
use crate::isa::instruction::{Encoding, Operand, register};
use crate::isa::op::{Access, AtomicOp, VmemOp};
use crate::isa::{Instruction, OperandType};
use crate::{Hint, View};

/// The access of one lane of a load or store.
#[derive(Clone, Copy)]
struct Target {
    place: LaneAddress,
    lane: usize,
    bytes: u32,
    /// The meaning of the access to other workgroups: of a load, or of a store.
    load: LoadScope,
    store: WriteKind,
}

/// A place that a vector memory instruction accesses.
#[derive(Clone, Copy)]
enum LaneAddress {
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

impl Workgroup<'_> {
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
        let races = self.races(&view, LoadScope::Plain)?;
        let tracks = self.checks.uninitialised;
        Ok(!races && (!tracks || view.is_initialised(0, bytes as usize)))
    }

    /// Returns true if a load races, which is a fault only if its value is used. After the load: a
    /// value that was loaded is that of a write in the shadow.
    fn races(&mut self, view: &View<'_>, load: LoadScope) -> Result<bool, FaultKind> {
        let Some(shadow) = self.shadow else { return Ok(false) };
        // Whether a value is used is only known after a write that came first.
        let records = !self.checks.uninitialised;
        match shadow.read(&self.clock, span(view, self.hint), load, records) {
            // A value that nothing uses may be read: kernels load whole rows or blocks.
            Err(race) if self.checks.uninitialised => {
                self.raced.get_or_insert(race);
                Ok(true)
            }
            other => other.map(|()| false),
        }
    }

    /// A vector load, store or atomic update. Returns the lanes whose loaded bytes were written.
    pub(super) fn vector_memory(
        &mut self,
        wave: &mut Wave,
        accessor: Accessor,
        instruction: &Instruction,
        op: VmemOp,
    ) -> Result<u32, Problem> {
        if let (Encoding::Mubuf, OperandType::X4) = (instruction.encoding, instruction.src[3].kind)
            && wave.scalar_wide(instruction.src[3].operand) & SCRATCH_BUFFER == 0
        {
            return Err(FaultKind::Unsupported("buffer that is not scratch memory").into());
        }
        let exec = wave.exec();
        let mut written = u32::MAX;
        self.holes.clear();
        match op {
            VmemOp::Invalidate | VmemOp::WriteBackInvalidate => {
                let drops = self.drops(instruction);
                if drops.device {
                    self.clock.drop_device_caches();
                }
                if let (Some(shadow), true) = (self.shadow, drops.workgroup) {
                    shadow.acquire(&mut self.clock);
                }
            }
            VmemOp::WriteBack => {}
            VmemOp::Load(access) => {
                let Operand::Vgpr(dst) = instruction.dst else { return Ok(written) };
                let load = self.load_kind(instruction);
                // What a load that passes by the caches sees is looked at by the lane.
                let is_observed = load == LoadScope::Device && self.shadow.is_some();
                let all = if is_observed { None } else { self.load_all(wave, instruction, access) };
                if let Some(written) = all {
                    return Ok(written);
                }
                let store = WriteKind::Plain;
                self.holes.clear();
                // The destination may overlap the address.
                let places = Self::places(wave, instruction);
                for lane in (0..LANES).filter(|&lane| is_set(exec, lane)) {
                    let bytes = access.bytes();
                    let target = Target { place: places[lane], lane, bytes, load, store };
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
                self.changed = true;
                self.clock.begin_store(accessor.releases);
                self.vector_store(wave, accessor, instruction, access)?;
                self.clock.end_store();
            }
            VmemOp::Atomic { op, wide } => {
                let Operand::Vgpr(data) = instruction.src[1].operand else { return Ok(written) };
                let places = Self::places(wave, instruction);
                let kind = self.update_kind(instruction);
                for lane in (0..LANES).filter(|&lane| is_set(exec, lane)) {
                    let at = (places[lane], lane);
                    let old = self.update(wave, (accessor, kind), data, at, (op, wide));
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

    fn vector_store(
        &mut self,
        wave: &mut Wave,
        accessor: Accessor,
        instruction: &Instruction,
        access: Access,
    ) -> Result<(), Problem> {
        let Operand::Vgpr(data) = instruction.src[1].operand else { return Ok(()) };
        let (exec, bytes) = (wave.exec(), access.bytes());
        let store = self.store_kind(instruction, exec, bytes);
        // The clocks of flags and their values change in one step, by the lane.
        let is_flag = store == WriteKind::Flag && self.shadow.is_some();
        if !is_flag && self.store_all(wave, instruction, access, store).is_some() {
            return Ok(());
        }
        let places = Self::places(wave, instruction);
        for lane in (0..LANES).filter(|&lane| is_set(exec, lane)) {
            let target = Target { place: places[lane], lane, bytes, load: LoadScope::Plain, store };
            let mut words = [0; 4];
            for at in 0..access.registers() {
                let value = wave.vgpr[usize::from(data) + usize::from(at)][lane];
                words[usize::from(at)] = from_register(access, value);
            }
            self.store(wave, accessor, target, words)
                .map_err(|kind| Problem::in_lane(kind, lane))?;
        }
        Ok(())
    }

    /// Loads with all lanes at once, if they access one allocation and nothing needs a closer look.
    /// Returns the lanes whose loaded bytes were written.
    fn load_all(
        &mut self,
        wave: &mut Wave,
        instruction: &Instruction,
        access: Access,
    ) -> Option<u32> {
        let Operand::Vgpr(dst) = instruction.dst else { return None };
        let exec = wave.exec();
        let (bytes, registers) = (access.bytes() as usize, usize::from(access.registers()));
        let spread = Spread::of(wave, instruction, bytes)?;
        let view = self.ranges.resolve(spread.low, spread.bytes as u64, &mut self.hint).ok()?;
        // Without the other check, loads are recorded.
        if self.shadow.is_some() && !self.checks.uninitialised {
            return None;
        }
        let mut written = u32::MAX;
        if self.checks.uninitialised && !(spread.is_dense() && view.is_initialised(0, spread.bytes))
        {
            for lane in (0..LANES).filter(|&lane| is_set(exec, lane)) {
                let at = spread.offsets[lane] as usize;
                let is_written = view.is_initialised(at, bytes);
                written &= !(u32::from(!is_written) << lane);
                if !is_written {
                    self.holes.extend(Holes::of(&view, at, bytes, lane));
                }
            }
        }
        let mut loaded = [[0; LANES]; 4];
        match bytes {
            1 => spread.load(&mut loaded[0], |at| view.load_u8(at).into()),
            2 => spread.load(&mut loaded[0], |at| view.load_u16(at).into()),
            _ => {
                for (register, loaded) in loaded.iter_mut().enumerate().take(registers) {
                    spread.load(loaded, |at| view.load_u32(at + register * 4));
                }
            }
        }
        if let Some(shadow) = self.shadow {
            let whole = span(&view, self.hint);
            if !spread.all(bytes, whole, |span| shadow.is_quiet(&self.clock, span)) {
                return None;
            }
        }
        for (register, loaded) in loaded.iter_mut().enumerate().take(registers) {
            let at = usize::from(dst) + register;
            if access != Access::Bytes(bytes as u8) {
                for (value, old) in loaded.iter_mut().zip(&wave.vgpr[at]) {
                    *value = into_register(access, *value, *old);
                }
            }
            wave.write_register(at, exec, loaded);
        }
        Some(written)
    }

    /// Stores with all lanes at once, if they access one allocation and nothing needs a closer
    /// look; otherwise `None`.
    fn store_all(
        &mut self,
        wave: &Wave,
        instruction: &Instruction,
        access: Access,
        kind: WriteKind,
    ) -> Option<()> {
        let Operand::Vgpr(data) = instruction.src[1].operand else { return None };
        let (bytes, registers) = (access.bytes() as usize, usize::from(access.registers()));
        let spread = Spread::of(wave, instruction, bytes)?;
        let view =
            self.ranges.resolve_writable(spread.low, spread.bytes as u64, &mut self.hint).ok()?;
        if let Some(shadow) = self.shadow {
            let whole = span(&view, self.hint);
            // A race is reported by the lane, and what was recorded before it does no harm.
            let write = |span: ByteSpan| shadow.write(&self.clock, span, kind, || {}).is_ok();
            if !spread.each(bytes, whole, write) {
                return None;
            }
        }
        let exec = wave.exec();
        for lane in (0..LANES).filter(|&lane| is_set(exec, lane)) {
            let at = spread.offsets[lane] as usize;
            let mut words = [0; 4];
            for (register, word) in words.iter_mut().enumerate().take(registers) {
                *word = from_register(access, wave.vgpr[usize::from(data) + register][lane]);
            }
            match bytes {
                1 => view.store_u8(at, words[0] as u8),
                2 => view.store_u16(at, words[0] as u16),
                _ => view.store_words(at, &words[..registers]),
            }
        }
        Some(())
    }

    /// The place of each lane.
    fn places(wave: &Wave, instruction: &Instruction) -> [LaneAddress; LANES] {
        let offset = i64::from(instruction.immediate);
        let address = &instruction.src[0];
        let scalar = instruction.src[2].operand;
        if matches!(instruction.encoding, Encoding::Scratch | Encoding::Mubuf) {
            // The scalar offset of a buffer counts the bytes of all lanes.
            let unit = if instruction.encoding == Encoding::Mubuf { LANES as u32 } else { 1 };
            let scalar = (wave.scalar(scalar) / unit).wrapping_add(offset as u32);
            let mut buffer = None;
            let lanes = wave.lanes(address.operand, &mut buffer);
            return std::array::from_fn(|lane| {
                LaneAddress::Scratch(lanes[lane].wrapping_add(scalar))
            });
        }
        let is_flat = instruction.encoding == Encoding::Flat;
        flat_addresses(wave, instruction).map(|address| match (address >> 32) as u32 {
            SHARED_BASE if is_flat => LaneAddress::Lds(address as u32),
            PRIVATE_BASE if is_flat => LaneAddress::Scratch(address as u32),
            _ => LaneAddress::Global(address),
        })
    }

    fn load(
        &mut self,
        wave: &Wave,
        accessor: Accessor,
        target: Target,
    ) -> Result<([u32; 4], bool), FaultKind> {
        let Target { place, lane, bytes, load, .. } = target;
        let mut words = [0; 4];
        match place {
            LaneAddress::Global(address) => {
                let view = self.ranges.resolve(address, bytes.into(), &mut self.hint)?;
                match bytes {
                    1 => words[0] = view.load_u8(0).into(),
                    2 => words[0] = view.load_u16(0).into(),
                    4 => words[0] = view.load_u32(0),
                    _ => view.load_words(0, &mut words[..bytes as usize / 4]),
                }
                let races = self.races(&view, load)?;
                if let (Some(shadow), LoadScope::Device) = (self.shadow, load) {
                    shadow.observe(&mut self.clock, span(&view, self.hint));
                }
                let tracks = self.checks.uninitialised;
                let is_written = !tracks || view.is_initialised(0, bytes as usize);
                if !is_written && !races {
                    self.holes.extend(Holes::of(&view, 0, bytes as usize, lane));
                }
                Ok((words, !races && is_written))
            }
            LaneAddress::Lds(address) => self.lds.load(accessor, address, bytes),
            LaneAddress::Scratch(address) => {
                let range = scratch_range(wave, lane, address, bytes)?;
                let mut raw = [[0; 4]; 4];
                raw.as_flattened_mut()[..range.len()].copy_from_slice(&wave.scratch[range.clone()]);
                let written = wave.scratch_written.get(range);
                let is_written = written.is_none_or(|written| written.iter().all(|&byte| byte));
                Ok((raw.map(u32::from_le_bytes), is_written))
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
        let Target { place, lane, bytes, store, .. } = target;
        match place {
            LaneAddress::Global(address) => {
                let view = self.ranges.resolve_writable(address, bytes.into(), &mut self.hint)?;
                let change = || match bytes {
                    1 => view.store_u8(0, words[0] as u8),
                    2 => view.store_u16(0, words[0] as u16),
                    4 => view.store_u32(0, words[0]),
                    _ => view.store_words(0, &words[..bytes as usize / 4]),
                };
                if let Some(shadow) = self.shadow {
                    shadow.write(&self.clock, span(&view, self.hint), store, change)
                } else {
                    change();
                    Ok(())
                }
            }
            LaneAddress::Lds(address) => self.lds.store(accessor, address, bytes, words),
            LaneAddress::Scratch(address) => {
                let range = scratch_range(wave, lane, address, bytes)?;
                let raw = words.map(u32::to_le_bytes);
                let length = range.len();
                if let Some(written) = wave.scratch_written.get_mut(range.clone()) {
                    written.fill(true);
                }
                wave.scratch[range].copy_from_slice(&raw.as_flattened()[..length]);
                Ok(())
            }
        }
    }

    fn update(
        &mut self,
        wave: &Wave,
        (accessor, kind): (Accessor, WriteKind),
        data: u8,
        (place, lane): (LaneAddress, usize),
        (op, wide): (AtomicOp, bool),
    ) -> Result<u64, Problem> {
        let value = |at: usize| {
            let first = usize::from(data) + at * (1 + usize::from(wide));
            let low = u64::from(wave.vgpr[first][lane]);
            if wide { low | u64::from(wave.vgpr[first + 1][lane]) << 32 } else { low }
        };
        let (new, compare) = (value(0), if op == AtomicOp::Cmpswap { value(1) } else { 0 });
        match place {
            LaneAddress::Global(address) => {
                let bytes = if wide { 8 } else { 4 };
                if !address.is_multiple_of(bytes) {
                    let alignment = bytes as u32;
                    return Err(FaultKind::Misaligned { address, alignment }.into());
                }
                let view = self.ranges.resolve_writable(address, bytes, &mut self.hint)?;
                let change = || {
                    if wide {
                        view.update_u64(0, |old| atomic::apply(op, true, old, new, compare))
                    } else {
                        let update =
                            |old: u32| atomic::apply(op, false, old.into(), new, compare) as u32;
                        view.update_u32(0, update).into()
                    }
                };
                let old = match self.shadow {
                    Some(shadow) => {
                        let span = span(&view, self.hint);
                        shadow.update(&mut self.clock, span, kind, accessor.releases, change)?
                    }
                    None => change(),
                };
                self.changed |= atomic::apply(op, wide, old, new, compare) != old;
                Ok(old)
            }
            LaneAddress::Lds(address) => {
                self.changed = true;
                self.lds.update(accessor, address, (op, wide), new, compare)
            }
            LaneAddress::Scratch(_) => {
                Err(FaultKind::Unsupported("atomic update of scratch memory").into())
            }
        }
    }
}

/// The addresses of the lanes of a global or flat access.
fn flat_addresses(wave: &Wave, instruction: &Instruction) -> [u64; LANES] {
    let offset = i64::from(instruction.immediate);
    let address = &instruction.src[0];
    if address.kind == OperandType::B64 {
        let addresses = wave.wide_source(address);
        return per_lane(|lane| addresses[lane].wrapping_add_signed(offset));
    }
    let base = wave.scalar_wide(instruction.src[2].operand).wrapping_add_signed(offset);
    let mut buffer = None;
    let offsets = wave.lanes(address.operand, &mut buffer);
    per_lane(|lane| base.wrapping_add(offsets[lane].into()))
}

/// The bytes of a view as those of the shadow of races.
fn span(view: &View<'_>, hint: Hint) -> ByteSpan {
    ByteSpan {
        allocation: hint.position(),
        base: view.allocation().base(),
        start: view.offset(),
        bytes: view.len(),
    }
}

/// The bytes that the lanes of an instruction access.
struct Spread {
    /// The first address.
    low: u64,
    /// The distance from it to the end of the last access.
    bytes: usize,
    /// The distances of the lanes from it; those of inactive lanes are in between.
    offsets: Lanes,
    exec: u32,
    /// True if the accesses of all lanes follow each other.
    is_contiguous: bool,
}

impl Spread {
    /// `None` if no lane is active, or the accesses are not all to global memory, or the upper
    /// halves of their addresses differ. The lower halves alone are faster to compare.
    fn of(wave: &Wave, instruction: &Instruction, bytes: usize) -> Option<Self> {
        let exec = wave.exec();
        if exec == 0 || instruction.encoding == Encoding::Scratch {
            return None;
        }
        let addresses = flat_addresses(wave, instruction);
        let leader = addresses[wave.first_active()];
        let first = leader as u32;
        let (mut different, mut gaps) = (0, 0);
        let mut offsets = per_lane(|lane| {
            let address = if exec & LANE_BITS[lane] == 0 { leader } else { addresses[lane] };
            different |= address ^ leader;
            gaps |= address as u32 ^ first.wrapping_add((lane * bytes) as u32);
            address as u32
        });
        let is_aperture = matches!((leader >> 32) as u32, SHARED_BASE | PRIVATE_BASE);
        if different >> 32 != 0 || instruction.encoding == Encoding::Flat && is_aperture {
            return None;
        }
        let is_contiguous = exec == u32::MAX && gaps == 0;
        let (low, high) = offsets
            .iter()
            .fold((first, first), |(low, high), &address| (low.min(address), high.max(address)));
        for address in &mut offsets {
            *address = address.wrapping_sub(low);
        }
        let bytes = (high - low) as usize + bytes;
        let low = leader >> 32 << 32 | u64::from(low);
        Some(Self { low, bytes, offsets, exec, is_contiguous })
    }

    /// Returns true if the bytes in between are few.
    fn is_dense(&self) -> bool {
        self.bytes <= 1024
    }

    /// Returns true if a test holds for the whole span or, if that is wide, for each lane.
    fn all(&self, bytes: usize, whole: ByteSpan, test: impl Fn(ByteSpan) -> bool) -> bool {
        self.is_dense() && test(whole) || self.each_lane(bytes, whole, test)
    }

    /// Applies a function to the whole span, if the lanes fill it, or to the bytes of each lane.
    /// Returns false when one of them does.
    fn each(&self, bytes: usize, whole: ByteSpan, function: impl Fn(ByteSpan) -> bool) -> bool {
        if self.is_contiguous { function(whole) } else { self.each_lane(bytes, whole, function) }
    }

    fn each_lane(
        &self,
        bytes: usize,
        whole: ByteSpan,
        function: impl Fn(ByteSpan) -> bool,
    ) -> bool {
        (0..LANES).filter(|&lane| is_set(self.exec, lane)).all(|lane| {
            let start = whole.start + self.offsets[lane] as usize;
            function(ByteSpan { start, bytes, ..whole })
        })
    }

    #[inline]
    fn load(&self, lanes: &mut Lanes, load: impl Fn(usize) -> u32) {
        for (value, &at) in lanes.iter_mut().zip(&self.offsets) {
            *value = load(at as usize);
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
