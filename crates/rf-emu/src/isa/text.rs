//! Disassembly: the text that LLVM's disassembler prints.

mod control;
mod modifiers;
mod operands;

use std::fmt;

pub(crate) use self::control::wait_fields;
use self::operands::{operand, register_range, source};
use super::instruction::{Encoding, Exchange, Instruction, Operand, register};
use super::op::{DsOp, Op, ValuOp, VmemOp};
use super::table::OperandType;
use super::{Arch, ProcessorFamily};

/// An instruction as text.
#[derive(Debug)]
pub struct InstructionText<'a> {
    instruction: &'a Instruction,
    family: ProcessorFamily,
}

impl Instruction {
    /// The text of the instruction in LLVM's syntax.
    pub fn text(&self, arch: Arch) -> InstructionText<'_> {
        InstructionText { instruction: self, family: arch.family() }
    }
}

impl fmt::Display for InstructionText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let instruction = self.instruction;
        match instruction.op {
            Op::Salu(op) => control::scalar(f, instruction, op, self.family),
            Op::ScalarLoad(_)
            | Op::ScalarLoadSmall(_)
            | Op::ScalarCacheInvalidate
            | Op::Time
            | Op::Prefetch => scalar_memory(f, instruction, self.family),
            Op::Vmem(op) => vector_memory(f, instruction, op, self.family),
            Op::Ds(op) => data_share(f, instruction, op),
            Op::Valu(_) | Op::Compare(_) => vector(f, instruction),
        }
    }
}

fn vector(f: &mut fmt::Formatter<'_>, instruction: &Instruction) -> fmt::Result {
    f.write_str(&instruction.name)?;
    let is_vop3 = instruction.encoding == Encoding::Vop3;
    if instruction.suffixed || !matches!(instruction.exchange, Exchange::None) {
        f.write_str(match instruction.exchange {
            Exchange::None if is_vop3 => "_e64",
            Exchange::None => "_e32",
            Exchange::Sdwa { .. } => "_sdwa",
            Exchange::Dpp16 { .. } | Exchange::Dpp8 { .. } if is_vop3 => "_e64_dpp",
            Exchange::Dpp16 { .. } | Exchange::Dpp8 { .. } => "_dpp",
        })?;
    }
    let mut separator = " ";
    let to_exec = matches!(instruction.op, Op::Compare(compare) if compare.to_exec);
    if !to_exec && instruction.dst != Operand::None {
        f.write_str(separator)?;
        operand(f, instruction.dst, instruction.dst_kind)?;
        separator = ", ";
    }
    if instruction.dst_mask != Operand::None {
        f.write_str(separator)?;
        operand(f, instruction.dst_mask, OperandType::Mask)?;
    }
    let reads_lanes =
        matches!(instruction.op, Op::Valu(ValuOp::Permlane16B32 | ValuOp::Permlanex16B32));
    // The mask of a dual instruction is always VCC and not printed.
    let hidden = usize::from(
        instruction.encoding == Encoding::Vopd && instruction.op == Op::Valu(ValuOp::CndmaskB32),
    );
    for at in 0..usize::from(instruction.sources) - hidden {
        f.write_str(separator)?;
        separator = ", ";
        // The first modifiers of permutations are flags, not negations.
        source(f, instruction, at, !reads_lanes)?;
    }
    modifiers::vector(f, instruction)?;
    if let Some(second) = &instruction.second {
        f.write_str(" :: ")?;
        vector(f, second)?;
    }
    Ok(())
}

fn scalar_memory(
    f: &mut fmt::Formatter<'_>,
    instruction: &Instruction,
    family: ProcessorFamily,
) -> fmt::Result {
    f.write_str(&instruction.name)?;
    let registers = match instruction.op {
        Op::ScalarLoad(registers) => registers,
        Op::ScalarLoadSmall(_) => 1,
        Op::Time => 2,
        Op::Prefetch => {
            f.write_str(" ")?;
            operand(f, instruction.src[0].operand, OperandType::B64)?;
            write!(f, ", {:#x}, ", instruction.immediate)?;
            operand(f, instruction.src[1].operand, OperandType::B32)?;
            return match instruction.dst {
                Operand::Sgpr(length) => write!(f, ", {length}"),
                _ => Ok(()),
            };
        }
        _ => return Ok(()),
    };
    f.write_str(" ")?;
    register_range(f, instruction.dst, registers)?;
    if instruction.op == Op::Time {
        return Ok(());
    }
    f.write_str(", ")?;
    operand(f, instruction.src[0].operand, OperandType::B64)?;
    let offset = instruction.src[1].operand;
    let has_offset = offset != Operand::Sgpr(register::NULL);
    let immediate = instruction.immediate;
    f.write_str(", ")?;
    // LLVM prints a missing register as an operand only where no immediate takes its place.
    match (has_offset, immediate) {
        (true, 0) if family != ProcessorFamily::Rdna4 => operand(f, offset, OperandType::B32)?,
        (true, _) => {
            operand(f, offset, OperandType::B32)?;
            write!(f, " offset:{immediate:#x}")?;
        }
        (false, 0) if family != ProcessorFamily::Rdna4 => f.write_str("null")?,
        (false, _) if immediate < 0 => write!(f, "-{:#x}", -immediate)?,
        (false, _) => write!(f, "{immediate:#x}")?,
    }
    modifiers::scalar_cache(f, instruction.cache, family)
}

fn vector_memory(
    f: &mut fmt::Formatter<'_>,
    instruction: &Instruction,
    op: VmemOp,
    family: ProcessorFamily,
) -> fmt::Result {
    f.write_str(&instruction.name)?;
    if instruction.sources == 0 {
        return modifiers::cache(f, instruction, family);
    }
    let registers = |wide| if wide { 2 } else { 1 };
    let address = |f: &mut fmt::Formatter<'_>| match instruction.src[0].operand {
        Operand::None => f.write_str("off"),
        other => operand(f, other, instruction.src[0].kind),
    };
    let data = instruction.src[1].operand;
    f.write_str(" ")?;
    if instruction.encoding == Encoding::Mubuf {
        return buffer(f, instruction, op, family);
    }
    match op {
        VmemOp::Load(access) => {
            register_range(f, instruction.dst, access.registers())?;
            f.write_str(", ")?;
            address(f)?;
        }
        VmemOp::Store(access) => {
            address(f)?;
            f.write_str(", ")?;
            register_range(f, data, access.registers())?;
        }
        VmemOp::Atomic { wide, .. } => {
            if instruction.dst != Operand::None {
                register_range(f, instruction.dst, registers(wide))?;
                f.write_str(", ")?;
            }
            address(f)?;
            f.write_str(", ")?;
            register_range(f, data, instruction.src[1].kind.registers())?;
        }
        _ => {}
    }
    if instruction.encoding != Encoding::Flat {
        match instruction.src[2].operand {
            Operand::None => f.write_str(", off")?,
            other => {
                f.write_str(", ")?;
                let wide = instruction.encoding == Encoding::Global;
                operand(f, other, if wide { OperandType::B64 } else { OperandType::B32 })?;
            }
        }
    }
    if instruction.immediate != 0 {
        write!(f, " offset:{}", instruction.immediate)?;
    }
    modifiers::cache(f, instruction, family)
}

fn buffer(
    f: &mut fmt::Formatter<'_>,
    instruction: &Instruction,
    op: VmemOp,
    family: ProcessorFamily,
) -> fmt::Result {
    let [address, data, offset, resource] = &instruction.src;
    let (data, registers) = match op {
        VmemOp::Load(access) => (instruction.dst, access.registers()),
        VmemOp::Store(access) => (data.operand, access.registers()),
        _ => return Ok(()),
    };
    register_range(f, data, registers)?;
    let has_address = address.operand != Operand::None;
    f.write_str(", ")?;
    if has_address {
        operand(f, address.operand, OperandType::B32)?;
    } else {
        f.write_str("off")?;
    }
    f.write_str(", ")?;
    operand(f, resource.operand, OperandType::X4)?;
    f.write_str(", ")?;
    operand(f, offset.operand, OperandType::B32)?;
    f.write_str(if has_address { " offen" } else { "" })?;
    if instruction.immediate != 0 {
        write!(f, " offset:{}", instruction.immediate)?;
    }
    modifiers::cache(f, instruction, family)
}

fn data_share(f: &mut fmt::Formatter<'_>, instruction: &Instruction, op: DsOp) -> fmt::Result {
    f.write_str(&instruction.name)?;
    if op == DsOp::Nop {
        return Ok(());
    }
    f.write_str(" ")?;
    if instruction.dst != Operand::None {
        let registers = match op {
            DsOp::Load(access) => access.registers(),
            _ => instruction.dst_kind.registers(),
        };
        register_range(f, instruction.dst, registers)?;
        f.write_str(", ")?;
    }
    operand(f, instruction.src[0].operand, OperandType::B32)?;
    for source in &instruction.sources()[1..] {
        f.write_str(", ")?;
        let registers = match op {
            DsOp::Store(access) => access.registers(),
            _ => source.kind.registers(),
        };
        register_range(f, source.operand, registers)?;
    }
    let offset = instruction.immediate as u16;
    match op {
        DsOp::Load2 { .. } | DsOp::Store2 { .. } => {
            for (name, offset) in [("offset0", offset & 255), ("offset1", offset >> 8)] {
                if offset != 0 {
                    write!(f, " {name}:{offset}")?;
                }
            }
        }
        DsOp::Swizzle => modifiers::swizzle(f, offset)?,
        _ if offset != 0 => write!(f, " offset:{offset}")?,
        _ => {}
    }
    Ok(())
}
