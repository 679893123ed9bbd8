//! The unit that executes an instruction, and for how many cycles it is busy.
//!
//! The rates are those that AMD's white papers of RDNA, RDNA 2 and RDNA 3, its guides to WMMA and
//! the scheduling models of LLVM state, for a wave of 32 lanes.

use serde::{Deserialize, Serialize};

use crate::isa::op::{Access, DsOp, Op, SaluOp, ValuOp};
use crate::isa::{Instruction, OperandType, ProcessorFamily};

/// A unit that executes instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    /// Vector arithmetic, one per SIMD.
    Vector,
    /// Exponentials, reciprocals, roots, sines: a quarter of the lanes per cycle, beside the vector
    /// unit.
    Transcendental,
    /// Matrix instructions; they occupy the vector unit.
    Matrix,
    /// Scalar arithmetic, one per SIMD.
    Scalar,
    /// Scalar loads, shared by two SIMDs of a compute unit.
    ScalarMemory,
    /// The vector cache of a compute unit: 64 bytes, and one line, per cycle.
    VectorMemory,
    /// The LDS of a compute unit: 32 banks of 4 bytes per cycle.
    Lds,
    /// Branches, one per SIMD.
    Branch,
    /// Waits, barriers, ends: nothing is executed.
    Other,
}

impl Unit {
    /// All units.
    pub const ALL: [Self; 9] = [
        Self::Vector,
        Self::Transcendental,
        Self::Matrix,
        Self::Scalar,
        Self::ScalarMemory,
        Self::VectorMemory,
        Self::Lds,
        Self::Branch,
        Self::Other,
    ];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Vector => "vector",
            Self::Transcendental => "transcendental",
            Self::Matrix => "matrix",
            Self::Scalar => "scalar",
            Self::ScalarMemory => "scalar memory",
            Self::VectorMemory => "vector memory",
            Self::Lds => "LDS",
            Self::Branch => "branch",
            Self::Other => "other",
        }
    }
}

/// Cycles of waves per unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are those of the units")]
pub struct UnitCycles {
    pub vector: u64,
    pub transcendental: u64,
    pub matrix: u64,
    pub scalar: u64,
    pub scalar_memory: u64,
    pub vector_memory: u64,
    pub lds: u64,
    pub branch: u64,
    pub other: u64,
}

impl UnitCycles {
    /// The cycles of a unit.
    pub fn get(&self, unit: Unit) -> u64 {
        let mut copy = *self;
        *copy.of(unit)
    }

    pub(super) fn of(&mut self, unit: Unit) -> &mut u64 {
        match unit {
            Unit::Vector => &mut self.vector,
            Unit::Transcendental => &mut self.transcendental,
            Unit::Matrix => &mut self.matrix,
            Unit::Scalar => &mut self.scalar,
            Unit::ScalarMemory => &mut self.scalar_memory,
            Unit::VectorMemory => &mut self.vector_memory,
            Unit::Lds => &mut self.lds,
            Unit::Branch => &mut self.branch,
            Unit::Other => &mut self.other,
        }
    }
}

/// The cycles of a transcendental instruction. The vector unit is free after the first.
pub(super) const TRANSCENDENTAL_CYCLES: u64 = 4;
/// A multiplication of 32-bit integers, a shift of 64 bits: a quarter of the lanes per cycle.
const QUARTER_RATE_CYCLES: u64 = 4;
/// Arithmetic of f64: a sixteenth of the lanes per cycle.
const DOUBLE_CYCLES: u64 = 16;

/// The unit of an instruction, and its cycles but for those that depend on addresses.
pub(super) fn issue(family: ProcessorFamily, instruction: &Instruction) -> (Unit, u64) {
    match instruction.op {
        Op::Valu(op) => vector(family, instruction, op),
        Op::Compare(_) => (Unit::Vector, if is_double(instruction) { DOUBLE_CYCLES } else { 1 }),
        Op::Salu(op) => (scalar(op), 1),
        Op::ScalarLoad(_) | Op::ScalarLoadSmall(_) | Op::ScalarCacheInvalidate | Op::Time => {
            (Unit::ScalarMemory, 1)
        }
        Op::Prefetch => (Unit::Other, 1),
        // The cycles depend on addresses.
        Op::Vmem(_) => (Unit::VectorMemory, 0),
        Op::Ds(op) => (Unit::Lds, share(op)),
    }
}

/// The cycles of an LDS instruction without conflicts: 32 dwords per cycle.
fn share(op: DsOp) -> u64 {
    let cycles = |bytes: u32| match bytes {
        0..=4 => 1,
        5..=8 => 2,
        _ => 4,
    };
    match op {
        DsOp::Load(access) | DsOp::Store(access) => cycles(Access::bytes(access)),
        DsOp::Load2 { wide, .. } | DsOp::Store2 { wide, .. } => {
            2 * cycles(if wide { 8 } else { 4 })
        }
        DsOp::Atomic { wide, .. } => cycles(if wide { 8 } else { 4 }),
        DsOp::Permute | DsOp::Bpermute | DsOp::Swizzle | DsOp::Nop => 1,
    }
}

fn scalar(op: SaluOp) -> Unit {
    match op {
        SaluOp::Branch
        | SaluOp::CbranchScc0
        | SaluOp::CbranchScc1
        | SaluOp::CbranchVccz
        | SaluOp::CbranchVccnz
        | SaluOp::CbranchExecz
        | SaluOp::CbranchExecnz
        | SaluOp::SetpcB64
        | SaluOp::SwappcB64 => Unit::Branch,
        SaluOp::WaitcntVscnt
        | SaluOp::WaitAlu
        | SaluOp::Nop
        | SaluOp::Endpgm
        | SaluOp::Barrier
        | SaluOp::Waitcnt
        | SaluOp::Sleep
        | SaluOp::Setprio
        | SaluOp::Sendmsg
        | SaluOp::CodeEnd
        | SaluOp::SetInstPrefetchDistance
        | SaluOp::Clause
        | SaluOp::WaitIdle
        | SaluOp::DelayAlu
        | SaluOp::BarrierWait
        | SaluOp::BarrierSignal
        | SaluOp::BarrierSignalIsfirst
        | SaluOp::WaitBvhcnt => Unit::Other,
        op if op.waits_for_counter() => Unit::Other,
        _ => Unit::Scalar,
    }
}

fn vector(family: ProcessorFamily, instruction: &Instruction, op: ValuOp) -> (Unit, u64) {
    let is_rdna4 = family == ProcessorFamily::Rdna4;
    match op {
        // 512 operations per cycle and compute unit on RDNA 3, 1024 on RDNA 4.
        ValuOp::WmmaF32X16F16
        | ValuOp::WmmaF32X16Bf16
        | ValuOp::WmmaF16X16F16
        | ValuOp::WmmaBf16X16Bf16 => (Unit::Matrix, if is_rdna4 { 16 } else { 32 }),
        ValuOp::WmmaI32X16Iu8 => (Unit::Matrix, if is_rdna4 { 8 } else { 32 }),
        ValuOp::WmmaI32X16Iu4 => (Unit::Matrix, if is_rdna4 { 4 } else { 16 }),
        ValuOp::WmmaI32X32Iu4 => (Unit::Matrix, 8),
        ValuOp::ExpF32
        | ValuOp::LogF32
        | ValuOp::RcpF32
        | ValuOp::RcpIflagF32
        | ValuOp::RsqF32
        | ValuOp::SqrtF32
        | ValuOp::SinF32
        | ValuOp::CosF32
        | ValuOp::RcpF16
        | ValuOp::SqrtF16
        | ValuOp::RsqF16
        | ValuOp::LogF16
        | ValuOp::ExpF16
        | ValuOp::SinF16
        | ValuOp::CosF16
        | ValuOp::SExpF32
        | ValuOp::SLogF32
        | ValuOp::SRcpF32
        | ValuOp::SRsqF32
        | ValuOp::SSqrtF32 => (Unit::Transcendental, TRANSCENDENTAL_CYCLES),
        ValuOp::RcpF64 | ValuOp::RsqF64 | ValuOp::SqrtF64 => (Unit::Transcendental, DOUBLE_CYCLES),
        ValuOp::MulLoU32
        | ValuOp::MulHiU32
        | ValuOp::MulHiI32
        | ValuOp::MadU64U32
        | ValuOp::MadI64I32
        | ValuOp::LshlrevB64
        | ValuOp::LshrrevB64
        | ValuOp::AshrrevI64 => (Unit::Vector, QUARTER_RATE_CYCLES),
        _ if is_double(instruction) => (Unit::Vector, DOUBLE_CYCLES),
        _ => (Unit::Vector, 1),
    }
}

fn is_double(instruction: &Instruction) -> bool {
    instruction.dst_kind == OperandType::F64
        || instruction.sources().iter().any(|source| source.kind == OperandType::F64)
}
