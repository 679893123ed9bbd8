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
    /// A bit per register: first the vector registers, then the scalar ones. One array, because
    /// sets are compared at nearly every instruction.
    words: [u64; 8],
}

impl RegisterSet {
    /// The number of vector registers, and of all.
    const VECTOR: u16 = 320;
    const ALL: u16 = 512;

    /// The word and the bit of a register; `None` if the number is too large.
    fn place(vector: bool, register: u16) -> Option<(usize, u64)> {
        let (first, count) =
            if vector { (0, Self::VECTOR) } else { (Self::VECTOR, Self::ALL - Self::VECTOR) };
        let place = first + register;
        (register < count).then(|| (usize::from(place / 64), 1 << (place % 64)))
    }

    /// Adds a register. Returns true if it was not in the set.
    pub(crate) fn insert(&mut self, vector: bool, register: u16) -> bool {
        let Some((word, bit)) = Self::place(vector, register) else { return false };
        let is_new = self.words[word] & bit == 0;
        self.words[word] |= bit;
        is_new
    }

    pub(crate) fn remove(&mut self, vector: bool, register: u16) {
        if let Some((word, bit)) = Self::place(vector, register) {
            self.words[word] &= !bit;
        }
    }

    pub(crate) fn contains(&self, vector: bool, register: u16) -> bool {
        Self::place(vector, register).is_some_and(|(word, bit)| self.words[word] & bit != 0)
    }

    /// Adds the registers of another set.
    pub(crate) fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.words.iter_mut().zip(other.words) {
            *mine |= theirs;
        }
    }

    /// The registers in both sets.
    #[inline]
    pub(crate) fn common(&self, other: &Self) -> Self {
        let mut common = *self;
        for (mine, theirs) in common.words.iter_mut().zip(other.words) {
            *mine &= theirs;
        }
        common
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.words.iter().fold(0, |all, word| all | word) == 0
    }

    /// Takes a register out, with whether it is a vector register.
    pub(crate) fn pop(&mut self) -> Option<(bool, u16)> {
        let (at, word) = self.words.iter_mut().enumerate().find(|(_, word)| **word != 0)?;
        let place = at as u16 * 64 + word.trailing_zeros() as u16;
        *word &= *word - 1;
        match place.checked_sub(Self::VECTOR) {
            Some(scalar) => Some((false, scalar)),
            None => Some((true, place)),
        }
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
