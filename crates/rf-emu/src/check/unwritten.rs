//! Uses of registers that hold nothing.
//!
//! A bit per lane of a vector register, and per bit of a scalar register, says whether it was
//! written. Operations pass the bits on, as valgrind does: moving a value that was never written is
//! no fault. An address, a condition or a stored value that depends on one is.
//!
//! One kind of store only moves a value, too: that of a register as it was loaded from global
//! memory. A kernel that copies a page also copies the slots of it that are not in use yet. The
//! bytes stay unwritten at their new place.

use super::operands::{Operands, Registers};
use crate::execute::run::Touched;
use crate::execute::vector::moves_between_lanes;
use crate::execute::wave::Wave;
use crate::fault::{FaultKind, Problem};
use crate::isa::Instruction;
use crate::isa::instruction::{Encoding, Operand, register};
use crate::isa::op::{DsOp, Op, SaluOp, ValuOp, VmemOp};

/// The registers of a wave that were written.
#[derive(Debug)]
pub(crate) struct Written {
    vector: Vec<u32>,
    scalar: Vec<u32>,
    scc: bool,
    /// The vector registers as they were loaded, with bytes that were never written.
    loaded: Vec<Loaded>,
}

/// A register as it was loaded from global memory.
#[derive(Debug)]
struct Loaded {
    register: u16,
    /// The lanes with bytes that were never written, in this register or the next ones.
    lanes: u32,
    /// For each byte of the register, the lanes in which it was never written.
    unwritten: [u32; 4],
}

/// The bytes that a lane accesses and that were never written: a bit for each of up to 16.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Holes {
    pub(crate) lane: usize,
    pub(crate) bytes: u16,
}

impl Written {
    pub(crate) fn new() -> Self {
        let mut written =
            Self { vector: vec![0; 288], scalar: vec![0; 160], scc: false, loaded: Vec::new() };
        written.reset();
        written
    }

    /// Forgets all but the registers that hold something when a wave starts.
    pub(crate) fn reset(&mut self) {
        self.vector.fill(0);
        self.scalar.fill(0);
        self.scc = false;
        self.loaded.clear();
        for register in [register::NULL, register::M0, register::EXEC, register::EXEC + 1] {
            self.scalar[usize::from(register)] = u32::MAX;
        }
        // The trap registers.
        self.scalar[108..124].fill(u32::MAX);
    }

    pub(crate) fn set_scalar(&mut self, register: usize) {
        self.scalar[register] = u32::MAX;
    }

    pub(crate) fn set_vector(&mut self, register: usize) {
        self.vector[register] = u32::MAX;
    }

    /// Returns true if registers were written: vector ones in the lanes of `exec`.
    pub(crate) fn covers(&self, registers: &Touched, exec: u32) -> bool {
        let vector = registers
            .vector
            .iter()
            .fold(u32::MAX, |bits, &register| bits & self.vector[usize::from(register)]);
        let scalar = registers
            .scalar
            .iter()
            .fold(u32::MAX, |bits, &register| bits & self.scalar[usize::from(register)]);
        vector & exec == exec && scalar == u32::MAX && (self.scc || !registers.scc)
    }

    /// Records that registers were written: vector ones in the lanes of `exec`.
    pub(crate) fn mark(&mut self, registers: &Touched, exec: u32) {
        for &register in &registers.vector {
            self.vector[usize::from(register)] |= exec;
        }
        for &register in &registers.scalar {
            self.scalar[usize::from(register)] = u32::MAX;
        }
        self.scc |= registers.scc;
    }

    /// The lanes in which a vector register was written, or the bits of a scalar one.
    pub(super) fn bits(&self, vector: bool, register: u16) -> u32 {
        let registers = if vector { &self.vector } else { &self.scalar };
        registers.get(usize::from(register)).copied().unwrap_or(u32::MAX)
    }

    pub(super) fn of_operand(&self, operand: Operand) -> u32 {
        match operand {
            Operand::Vgpr(register) => self.vector[usize::from(register)],
            Operand::Sgpr(register) => self.scalar[usize::from(register)],
            Operand::Special(253) if !self.scc => 0,
            _ => u32::MAX,
        }
    }

    /// Checks addresses, conditions and stored values before an instruction.
    pub(crate) fn check(
        &self,
        wave: &Wave,
        instruction: &Instruction,
        operands: &Operands,
    ) -> Result<(), Problem> {
        match instruction.op {
            Op::Vmem(VmemOp::Load(_) | VmemOp::Store(_) | VmemOp::Atomic { .. }) => {
                self.memory_operands(wave, instruction, operands, 1)
            }
            Op::Ds(op) => match op {
                DsOp::Nop | DsOp::Permute | DsOp::Bpermute | DsOp::Swizzle => Ok(()),
                _ => self.memory_operands(wave, instruction, operands, usize::MAX),
            },
            Op::ScalarLoad(_) | Op::ScalarLoadSmall(_) => {
                let bad = operands.reads.iter().flat_map(|&registers| {
                    registers.iter().map(move |register| (registers.vector, register))
                });
                for (vector, register) in bad {
                    if self.bits(vector, register) != u32::MAX {
                        return Err(uninitialised("an address", vector, register).into());
                    }
                }
                Ok(())
            }
            Op::Salu(op) => self.branch(op),
            _ => Ok(()),
        }
    }

    /// The first group of registers is the address, the following ones are data.
    fn memory_operands(
        &self,
        wave: &Wave,
        instruction: &Instruction,
        operands: &Operands,
        data_place: usize,
    ) -> Result<(), Problem> {
        let has_vector_address = !matches!(instruction.src[0].operand, Operand::None);
        for (at, registers) in operands.reads.iter().enumerate() {
            let is_data = if data_place == usize::MAX {
                at >= 1
            } else {
                registers.vector && at == usize::from(has_vector_address)
            };
            // Functions save registers of their callers, whether they hold something or not.
            let to_scratch = matches!(instruction.encoding, Encoding::Scratch | Encoding::Mubuf);
            if is_data && to_scratch {
                continue;
            }
            // Data of 32-bit registers may contain bytes that are not stored.
            let used = if is_data { "a stored value" } else { "an address" };
            for register in registers.iter() {
                let bits = self.bits(registers.vector, register);
                let missing = if registers.vector {
                    let moved = if is_data && moves(instruction).is_some() {
                        self.moved_lanes(register)
                    } else {
                        0
                    };
                    !bits & wave.exec() & !moved
                } else {
                    u32::from(bits != u32::MAX)
                };
                if missing != 0 && wave.exec() != 0 {
                    let kind = uninitialised(used, registers.vector, register);
                    let lane = if registers.vector { missing.trailing_zeros() } else { 0 };
                    return Err(Problem::in_lane(kind, lane as usize));
                }
            }
        }
        Ok(())
    }

    /// The lanes in which a vector register is as it was loaded, with bytes that were never
    /// written.
    fn moved_lanes(&self, register: u16) -> u32 {
        let loaded = self.loaded.iter().find(|loaded| loaded.register == register);
        loaded.map_or(0, |loaded| loaded.lanes)
    }

    /// Records what a load from global memory brought to `count` registers from `first` on.
    pub(crate) fn load(&mut self, first: u8, count: u8, holes: &[Holes]) {
        if holes.is_empty() {
            return;
        }
        let lanes = holes.iter().fold(0, |lanes, holes| lanes | 1 << holes.lane);
        for at in 0..count {
            let mut unwritten = [0; 4];
            for (byte, of_byte) in unwritten.iter_mut().enumerate() {
                for holes in holes {
                    let bit = holes.bytes >> (usize::from(at) * 4 + byte) & 1;
                    *of_byte |= u32::from(bit) << holes.lane;
                }
            }
            self.loaded.push(Loaded {
                register: u16::from(first) + u16::from(at),
                lanes,
                unwritten,
            });
        }
    }

    /// The bytes that a store moves although they were never written.
    pub(crate) fn holes(&self, instruction: &Instruction, exec: u32) -> Vec<Holes> {
        let mut holes = Vec::new();
        let Some((first, count)) = moves(instruction) else { return holes };
        for loaded in &self.loaded {
            let Some(at) =
                loaded.register.checked_sub(first.into()).filter(|at| *at < count.into())
            else {
                continue;
            };
            let missing = !self.vector[usize::from(loaded.register)] & loaded.lanes & exec;
            for lane in (0..32).filter(|lane| missing >> lane & 1 != 0) {
                let bytes = (0..4).fold(0, |bytes, byte| {
                    let bit = loaded.unwritten[usize::from(byte)] >> lane & 1;
                    bytes | (bit as u16) << (at * 4 + byte)
                });
                holes.push(Holes { lane, bytes });
            }
        }
        holes
    }

    fn branch(&self, op: SaluOp) -> Result<(), Problem> {
        let complete = |register: u8| self.scalar[usize::from(register)] == u32::MAX;
        let missing = match op {
            SaluOp::CbranchScc0 | SaluOp::CbranchScc1 => (!self.scc).then_some("scc".to_owned()),
            SaluOp::CbranchVccz | SaluOp::CbranchVccnz => {
                (!complete(register::VCC)).then(|| Registers::name(false, 106))
            }
            SaluOp::CbranchExecz | SaluOp::CbranchExecnz => {
                (!complete(register::EXEC)).then(|| Registers::name(false, 126))
            }
            _ => None,
        };
        match missing {
            Some(register) => Err(FaultKind::Uninitialised { used: "a branch", register }.into()),
            None => Ok(()),
        }
    }

    /// Passes the bits on after an instruction. `exec` was in force before it. `loaded` are the
    /// lanes whose loaded value was written, for loads.
    pub(crate) fn pass(
        &mut self,
        wave: &Wave,
        exec: u32,
        instruction: &Instruction,
        operands: &Operands,
        loaded: u32,
    ) {
        if !self.loaded.is_empty() {
            self.overwrite(instruction, operands);
        }
        match instruction.op {
            Op::Vmem(_) | Op::Ds(_) | Op::ScalarLoad(_) | Op::ScalarLoadSmall(_) | Op::Time => {
                self.write(operands, exec, loaded);
            }
            Op::Salu(op) => self.scalar(wave, op, instruction, operands),
            Op::Compare(compare) => {
                let lanes = if moves_between_lanes(instruction) {
                    self.moved(wave, instruction, operands)
                } else {
                    self.sources(operands)
                };
                // Bits of inactive lanes are zero.
                let bits = lanes | !exec;
                if let Operand::Sgpr(register) = instruction.dst
                    && register != register::NULL
                {
                    self.scalar[usize::from(register)] = bits;
                }
                if compare.to_exec {
                    self.scalar[usize::from(register::EXEC)] = bits;
                }
            }
            Op::Valu(op) => self.vector(wave, exec, op, instruction, operands),
            Op::ScalarCacheInvalidate | Op::Prefetch => {}
        }
    }

    /// Forgets how registers were loaded that an instruction writes.
    fn overwrite(&mut self, instruction: &Instruction, operands: &Operands) {
        let halves = [Some(instruction), instruction.second.as_deref()];
        self.loaded.retain(|loaded| {
            let is_written = operands.writes.iter().any(|registers| {
                registers.vector && registers.iter().any(|register| register == loaded.register)
            });
            let is_half = halves.iter().flatten().any(|half| {
                matches!(half.dst, Operand::Vgpr(register) if u16::from(register) == loaded.register)
            });
            !is_written && !is_half
        });
    }

    /// The lanes in which all sources were written.
    fn sources(&self, operands: &Operands) -> u32 {
        operands.reads.iter().fold(u32::MAX, |lanes, registers| {
            registers.iter().fold(lanes, |lanes, register| {
                let bits = self.bits(registers.vector, register);
                // A scalar that is partly missing counts as missing, but for masks.
                lanes & if registers.vector || bits == u32::MAX { bits } else { 0 }
            })
        })
    }

    fn write(&mut self, operands: &Operands, exec: u32, lanes: u32) {
        for registers in &operands.writes {
            for register in registers.iter() {
                let at = usize::from(register);
                if registers.vector {
                    if let Some(bits) = self.vector.get_mut(at) {
                        *bits = *bits & !exec | lanes & exec;
                    }
                } else if let Some(bits) = self.scalar.get_mut(at) {
                    *bits = if lanes & exec == exec { u32::MAX } else { 0 };
                }
            }
        }
    }

    fn vector(
        &mut self,
        wave: &Wave,
        exec: u32,
        op: ValuOp,
        instruction: &Instruction,
        operands: &Operands,
    ) {
        if let Some(second) = &instruction.second {
            let halves = [instruction, second];
            let lanes = halves.map(|half| self.half(wave, half));
            for (half, lanes) in halves.into_iter().zip(lanes) {
                if let Operand::Vgpr(register) = half.dst {
                    let bits = &mut self.vector[usize::from(register)];
                    *bits = *bits & !exec | lanes & exec;
                }
            }
            return;
        }
        let reads_lane = matches!(op, ValuOp::ReadlaneB32 | ValuOp::ReadfirstlaneB32);
        // Which values a matrix or a displaced register holds is not followed.
        let is_lost = matches!(op, ValuOp::MovrelsB32 | ValuOp::MovreldB32)
            || instruction.name.starts_with("v_wmma");
        let lanes = match op {
            _ if is_lost => u32::MAX,
            _ if reads_lane => self.of_lane(wave, op, instruction),
            _ if moves_between_lanes(instruction) => self.moved(wave, instruction, operands),
            ValuOp::WritelaneB32 => {
                if let (Operand::Vgpr(register), lane) =
                    (instruction.dst, wave.scalar(instruction.src[1].operand) & 31)
                {
                    let written = self.of_operand(instruction.src[0].operand) == u32::MAX;
                    let bits = &mut self.vector[usize::from(register)];
                    *bits = *bits & !(1 << lane) | u32::from(written) << lane;
                }
                return;
            }
            ValuOp::CndmaskB32 => self.selected(wave, instruction),
            ValuOp::AddCoCiU32 | ValuOp::SubCoCiU32 | ValuOp::SubrevCoCiU32 => {
                let carry = self.of_operand(instruction.src[2].operand);
                let values = instruction.src[..2].iter().fold(u32::MAX, |lanes, source| {
                    let bits = self.of_operand(source.operand);
                    let is_vector = matches!(source.operand, Operand::Vgpr(_));
                    lanes & if is_vector || bits == u32::MAX { bits } else { 0 }
                });
                values & carry
            }
            _ => self.sources(operands),
        };
        // The lower half of these depends on the lower half of the last source alone, and compilers
        // leave anything in the upper one.
        let has_lower_half = matches!(op, ValuOp::MadU64U32 | ValuOp::MadI64I32);
        let lower = if has_lower_half {
            let sources = instruction.sources().iter();
            sources.fold(u32::MAX, |lanes, source| lanes & self.whole(source.operand))
        } else {
            lanes
        };
        for registers in &operands.writes {
            for (index, register) in registers.iter().enumerate() {
                let at = usize::from(register);
                if registers.vector {
                    let lanes = if index == 0 { lower } else { lanes };
                    self.vector[at] = self.vector[at] & !exec | lanes & exec;
                } else if reads_lane {
                    self.scalar[at] = lanes;
                } else {
                    // A mask of carries: zero in inactive lanes.
                    self.scalar[at] = lanes | !exec;
                }
            }
        }
    }

    /// The lanes in which the sources of one half of a dual instruction were written.
    fn half(&self, wave: &Wave, half: &Instruction) -> u32 {
        if half.op == Op::Valu(ValuOp::CndmaskB32) {
            return self.selected(wave, half);
        }
        let accumulates = half.op == Op::Valu(ValuOp::FmacF32);
        let old = if accumulates { self.of_operand(half.dst) } else { u32::MAX };
        half.sources().iter().fold(old, |lanes, source| lanes & self.whole(source.operand))
    }

    /// The lanes of a vector operand; a scalar one must be complete.
    pub(super) fn whole(&self, operand: Operand) -> u32 {
        match (operand, self.of_operand(operand)) {
            (Operand::Vgpr(_), bits) => bits,
            (_, u32::MAX) => u32::MAX,
            _ => 0,
        }
    }

    /// The lanes of a selection: only the chosen source matters.
    fn selected(&self, wave: &Wave, instruction: &Instruction) -> u32 {
        let [first, second, selector, _] = instruction.src.map(|source| source.operand);
        let mask = wave.scalar(selector);
        self.of_operand(selector) & (mask & self.whole(second) | !mask & self.whole(first))
    }

    fn scalar(&mut self, wave: &Wave, op: SaluOp, instruction: &Instruction, operands: &Operands) {
        let exec = usize::from(register::EXEC);
        let first = self.of_operand(instruction.src[0].operand);
        let bits = match op {
            SaluOp::AndB32
            | SaluOp::OrB32
            | SaluOp::XorB32
            | SaluOp::AndNot1B32
            | SaluOp::OrNot1B32
            | SaluOp::NotB32
            | SaluOp::MovB32 => {
                let second = self.of_operand(instruction.src[1].operand);
                Self::masked(wave, op, instruction, first, second)
            }
            SaluOp::AndSaveexecB32
            | SaluOp::OrSaveexecB32
            | SaluOp::XorSaveexecB32
            | SaluOp::AndNot1SaveexecB32
            | SaluOp::AndNot0SaveexecB32
            | SaluOp::OrNot1SaveexecB32 => {
                let old = self.scalar[exec];
                self.scc = first & old == u32::MAX || first == u32::MAX;
                self.scalar[exec] = first & old;
                old
            }
            SaluOp::CselectB32 | SaluOp::CselectB64 if self.scc => {
                let chosen = &instruction.src[usize::from(!wave.scc)];
                self.of_operand(chosen.operand)
            }
            _ => {
                let complete = operands.reads.iter().all(|registers| {
                    registers.iter().all(|at| self.bits(registers.vector, at) == u32::MAX)
                });
                let reads_scc = matches!(op, SaluOp::AddcU32 | SaluOp::SubbU32);
                if complete && (self.scc || !reads_scc) { u32::MAX } else { 0 }
            }
        };
        for registers in &operands.writes {
            for register in registers.iter() {
                self.scalar[usize::from(register)] = bits;
            }
        }
        if op.sets_scc() {
            self.scc = bits == u32::MAX;
        }
    }

    /// The bits of a bitwise operation: a zero decides an AND, whatever the other operand is.
    fn masked(wave: &Wave, op: SaluOp, instruction: &Instruction, first: u32, second: u32) -> u32 {
        let a = wave.scalar(instruction.src[0].operand);
        let b = wave.scalar(instruction.src[1].operand);
        match op {
            SaluOp::AndB32 => first & second | first & !a | second & !b,
            SaluOp::AndNot1B32 => first & second | first & !a | second & b,
            SaluOp::OrB32 => first & second | first & a | second & b,
            SaluOp::NotB32 | SaluOp::MovB32 => first,
            _ => first & second,
        }
    }
}

/// The first register and the number of registers of a store that may move what was loaded: one of
/// whole registers to global memory.
fn moves(instruction: &Instruction) -> Option<(u8, u8)> {
    match (instruction.op, instruction.encoding, instruction.src[1].operand) {
        (Op::Vmem(VmemOp::Store(access)), Encoding::Global, Operand::Vgpr(first))
            if access.bytes() >= 4 =>
        {
            Some((first, access.registers()))
        }
        _ => None,
    }
}

fn uninitialised(used: &'static str, vector: bool, register: u16) -> FaultKind {
    FaultKind::Uninitialised { used, register: Registers::name(vector, register) }
}
