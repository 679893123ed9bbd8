//! The registers that an instruction reads and writes.

use crate::isa::instruction::{Encoding, Operand, register};
use crate::isa::op::{Access, AtomicOp, DsOp, Op, SaluOp, ValuOp, VmemOp};
use crate::isa::{Instruction, OperandType};

/// Consecutive registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registers {
    /// True for vector registers, false for scalar ones.
    pub(crate) vector: bool,
    pub(crate) first: u16,
    pub(crate) count: u16,
}

impl Registers {
    /// The name of one of the registers.
    pub(crate) fn name(vector: bool, register: u16) -> String {
        match (vector, register) {
            (true, _) => format!("v{register}"),
            (false, 106) => "vcc_lo".to_owned(),
            (false, 107) => "vcc_hi".to_owned(),
            (false, 125) => "m0".to_owned(),
            (false, 126) => "exec_lo".to_owned(),
            (false, _) => format!("s{register}"),
        }
    }

    pub(crate) fn iter(self) -> std::ops::Range<u16> {
        self.first..self.first + self.count
    }
}

/// A set of registers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RegisterSet {
    vector: [u64; 5],
    scalar: [u64; 3],
}

impl RegisterSet {
    fn words(&mut self, vector: bool) -> &mut [u64] {
        if vector { &mut self.vector } else { &mut self.scalar }
    }

    /// Adds a register. Returns true if it was not in the set.
    pub(crate) fn insert(&mut self, vector: bool, register: u16) -> bool {
        let Some(word) = self.words(vector).get_mut(usize::from(register / 64)) else {
            return false;
        };
        let bit = 1 << (register % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    pub(crate) fn remove(&mut self, vector: bool, register: u16) {
        if let Some(word) = self.words(vector).get_mut(usize::from(register / 64)) {
            *word &= !(1 << (register % 64));
        }
    }

    pub(crate) fn contains(&self, vector: bool, register: u16) -> bool {
        let words: &[u64] = if vector { &self.vector } else { &self.scalar };
        words.get(usize::from(register / 64)).is_some_and(|word| word >> (register % 64) & 1 != 0)
    }

    /// Adds the registers of another set.
    pub(crate) fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.vector.iter_mut().zip(other.vector) {
            *mine |= theirs;
        }
        for (mine, theirs) in self.scalar.iter_mut().zip(other.scalar) {
            *mine |= theirs;
        }
    }

    /// The registers in both sets.
    pub(crate) fn common(&self, other: &Self) -> Self {
        let mut common = *self;
        for (mine, theirs) in common.vector.iter_mut().zip(other.vector) {
            *mine &= theirs;
        }
        for (mine, theirs) in common.scalar.iter_mut().zip(other.scalar) {
            *mine &= theirs;
        }
        common
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.vector.iter().chain(&self.scalar).fold(0, |all, word| all | word) == 0
    }

    /// Takes a register out, with whether it is a vector register.
    pub(crate) fn pop(&mut self) -> Option<(bool, u16)> {
        let vector = self.vector.iter_mut().enumerate().map(|(at, word)| (true, at, word));
        let scalar = self.scalar.iter_mut().enumerate().map(|(at, word)| (false, at, word));
        let (vector, at, word) = vector.chain(scalar).find(|(_, _, word)| **word != 0)?;
        let bit = word.trailing_zeros();
        *word &= *word - 1;
        Some((vector, at as u16 * 64 + bit as u16))
    }
}

/// The registers that an instruction reads and writes.
#[derive(Debug, Default)]
pub(crate) struct Operands {
    pub(crate) reads: Vec<Registers>,
    pub(crate) writes: Vec<Registers>,
    /// The registers that the instruction reads or writes.
    pub(crate) touched: RegisterSet,
}

impl Operands {
    pub(crate) fn of(instruction: &Instruction) -> Self {
        let mut operands = Self::default();
        operands.add(instruction);
        for registers in operands.reads.iter().chain(&operands.writes) {
            for register in registers.iter() {
                operands.touched.insert(registers.vector, register);
            }
        }
        operands
    }

    fn read(&mut self, operand: Operand, count: u8) {
        self.reads.extend(registers(operand, count));
    }

    fn add(&mut self, instruction: &Instruction) {
        for (at, source) in instruction.sources().iter().enumerate() {
            self.read(source.operand, source_registers(instruction, at, source.kind));
        }
        self.writes.extend(registers(instruction.dst, dst_registers(instruction)));
        self.writes.extend(registers(instruction.dst_mask, 1));
        let accumulates = matches!(
            instruction.op,
            Op::Valu(
                ValuOp::FmacF32
                    | ValuOp::FmacF16
                    | ValuOp::PkFmacF16
                    | ValuOp::Dot4cI32I8
                    | ValuOp::Dot2cF32F16
            ) | Op::Salu(
                SaluOp::AddkI32
                    | SaluOp::MulkI32
                    | SaluOp::FmacF32
                    | SaluOp::Bitset0B32
                    | SaluOp::Bitset1B32
            )
        );
        if accumulates {
            self.read(instruction.dst, instruction.dst_kind.registers());
        }
        if matches!(instruction.op, Op::Valu(ValuOp::DivFmasF32 | ValuOp::DivFmasF64)) {
            self.read(Operand::Sgpr(register::VCC), 1);
        }
        if matches!(instruction.op, Op::Valu(ValuOp::SwapB32 | ValuOp::SwapB16)) {
            self.read(instruction.dst, 1);
            self.writes.extend(registers(instruction.src[0].operand, 1));
        }
        if let Some(second) = &instruction.second {
            self.add(second);
        }
    }
}

fn registers(operand: Operand, count: u8) -> Option<Registers> {
    let (vector, first) = match operand {
        Operand::Vgpr(first) => (true, first),
        Operand::Sgpr(register::NULL) => return None,
        Operand::Sgpr(first) => (false, first),
        _ => return None,
    };
    (count > 0).then_some(Registers { vector, first: first.into(), count: count.into() })
}

fn source_registers(instruction: &Instruction, at: usize, kind: OperandType) -> u8 {
    let data = |access: Access| access.registers();
    match (instruction.op, at) {
        (Op::Vmem(VmemOp::Store(access)) | Op::Ds(DsOp::Store(access)), 1) => data(access),
        // A scratch access has a scalar address of one register.
        (Op::Vmem(_), 2) if instruction.encoding == Encoding::Scratch => 1,
        (Op::Ds(DsOp::Atomic { op: AtomicOp::Cmpswap, wide, .. }), 1 | 2) => 1 + u8::from(wide),
        _ => kind.registers(),
    }
}

fn dst_registers(instruction: &Instruction) -> u8 {
    match instruction.op {
        Op::Vmem(VmemOp::Load(access)) | Op::Ds(DsOp::Load(access)) => access.registers(),
        Op::ScalarLoad(count) => count,
        Op::ScalarLoadSmall(_) => 1,
        Op::Time => 2,
        Op::Prefetch => 0,
        _ => instruction.dst_kind.registers(),
    }
}
