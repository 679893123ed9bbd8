//! The text of the modifiers that follow the operands.

use std::fmt;

use crate::isa::ProcessorFamily;
use crate::isa::instruction::{Encoding, Exchange, Instruction, Select};
use crate::isa::op::{Op, ValuOp, VmemOp};
use crate::isa::table::OperandType;

pub(super) fn vector(f: &mut fmt::Formatter<'_>, instruction: &Instruction) -> fmt::Result {
    match instruction.encoding {
        Encoding::Vop3p => packed(f, instruction)?,
        Encoding::Vop3 => selections(f, instruction)?,
        _ => {}
    }
    if instruction.clamp {
        f.write_str(" clamp")?;
    }
    f.write_str(["", " mul:2", " mul:4", " div:2"][usize::from(instruction.output_modifier & 3)])?;
    match instruction.exchange {
        Exchange::None => Ok(()),
        Exchange::Dpp16 { control, row_mask, bank_mask, zero, fetch_inactive } => {
            dpp_control(f, control)?;
            write!(f, " row_mask:{row_mask:#x} bank_mask:{bank_mask:#x}")?;
            f.write_str(if zero { " bound_ctrl:1" } else { "" })?;
            f.write_str(if fetch_inactive { " fi:1" } else { "" })
        }
        Exchange::Dpp8 { lanes, fetch_inactive } => {
            f.write_str(" dpp8:[")?;
            for lane in 0..8 {
                let separator = if lane == 0 { "" } else { "," };
                write!(f, "{separator}{}", lanes >> (lane * 3) & 7)?;
            }
            f.write_str(if fetch_inactive { "] fi:1" } else { "]" })
        }
        Exchange::Sdwa { dst, unused, src, .. } => {
            if !matches!(instruction.op, Op::Compare(_)) {
                let unused = ["PAD", "SEXT", "PRESERVE"][usize::from(unused.min(2))];
                write!(f, " dst_sel:{} dst_unused:UNUSED_{unused}", selection(dst))?;
            }
            write!(f, " src0_sel:{}", selection(src[0]))?;
            if instruction.sources > 1 {
                write!(f, " src1_sel:{}", selection(src[1]))?;
            }
            Ok(())
        }
    }
}

fn selection(select: Select) -> String {
    match select {
        Select::Byte(at) => format!("BYTE_{at}"),
        Select::Word(at) => format!("WORD_{at}"),
        Select::Dword => "DWORD".to_owned(),
    }
}

fn dpp_control(f: &mut fmt::Formatter<'_>, control: u16) -> fmt::Result {
    let low = control & 15;
    match control {
        0..=0xff => {
            let lane = |at: u16| control >> (at * 2) & 3;
            write!(f, " quad_perm:[{},{},{},{}]", lane(0), lane(1), lane(2), lane(3))
        }
        0x101..=0x10f => write!(f, " row_shl:{low}"),
        0x111..=0x11f => write!(f, " row_shr:{low}"),
        0x121..=0x12f => write!(f, " row_ror:{low}"),
        0x140 => f.write_str(" row_mirror"),
        0x141 => f.write_str(" row_half_mirror"),
        0x150..=0x15f => write!(f, " row_share:{low}"),
        0x160..=0x16f => write!(f, " row_xmask:{low}"),
        _ => write!(f, " dpp_ctrl:{control:#x}"),
    }
}

/// Prints a list of bits, one per source.
fn list(f: &mut fmt::Formatter<'_>, name: &str, bits: &[bool]) -> fmt::Result {
    let bits: Vec<_> = bits.iter().map(|&bit| if bit { "1" } else { "0" }).collect();
    write!(f, " {name}:[{}]", bits.join(","))
}

fn packed(f: &mut fmt::Formatter<'_>, instruction: &Instruction) -> fmt::Result {
    let sources = instruction.sources();
    let is_matrix = instruction.name.starts_with("v_wmma");
    let is_mix = sources[0].kind == OperandType::Mix;
    let bits = |bit: fn(&crate::isa::instruction::SourceOperand) -> bool| {
        sources.iter().map(bit).collect::<Vec<_>>()
    };
    let high = bits(|source| source.high);
    if high.contains(&true) {
        list(f, "op_sel", &high)?;
    }
    let high_for_high = bits(|source| source.high_for_high);
    // The common values are not printed: all for packed operands, none for mixed ones.
    if high_for_high.contains(&is_mix) && !is_matrix {
        list(f, "op_sel_hi", &high_for_high)?;
    }
    if !is_mix {
        for (name, bits) in
            [("neg_lo", bits(|source| source.neg)), ("neg_hi", bits(|source| source.neg_high))]
        {
            if bits.contains(&true) {
                list(f, name, &bits)?;
            }
        }
    }
    Ok(())
}

/// The halves that 16-bit operations of VOP3 use.
fn selections(f: &mut fmt::Formatter<'_>, instruction: &Instruction) -> fmt::Result {
    let mut bits: Vec<_> = instruction.sources().iter().map(|source| source.high).collect();
    if !matches!(
        instruction.op,
        Op::Valu(ValuOp::Permlane16B32 | ValuOp::Permlanex16B32) | Op::Compare(_)
    ) {
        bits.push(instruction.dst_high);
    }
    if bits.contains(&true) { list(f, "op_sel", &bits) } else { Ok(()) }
}

pub(super) fn scalar_cache(
    f: &mut fmt::Formatter<'_>,
    cache: u8,
    family: ProcessorFamily,
) -> fmt::Result {
    if family == ProcessorFamily::Rdna4 {
        return scope(f, cache & 3);
    }
    f.write_str(if cache & 1 != 0 { " glc" } else { "" })?;
    f.write_str(if cache & 4 != 0 { " dlc" } else { "" })
}

fn scope(f: &mut fmt::Formatter<'_>, scope: u8) -> fmt::Result {
    f.write_str(["", " scope:SCOPE_SE", " scope:SCOPE_DEV", " scope:SCOPE_SYS"][usize::from(scope)])
}

pub(super) fn cache(
    f: &mut fmt::Formatter<'_>,
    instruction: &Instruction,
    family: ProcessorFamily,
) -> fmt::Result {
    let cache = instruction.cache;
    if family != ProcessorFamily::Rdna4 {
        for (at, name) in [" glc", " slc", " dlc"].into_iter().enumerate() {
            f.write_str(if cache >> at & 1 != 0 { name } else { "" })?;
        }
        return Ok(());
    }
    let hint = cache >> 2;
    if hint != 0 {
        match instruction.op {
            Op::Vmem(VmemOp::Atomic { .. }) => {
                let names = ["", "RETURN", "NT", "NT_RETURN", "CASCADE_RT", "", "CASCADE_NT", ""];
                match names[usize::from(hint & 7)] {
                    "" => write!(f, " th:{hint:#x}")?,
                    name => write!(f, " th:TH_ATOMIC_{name}")?,
                }
            }
            op => {
                let kind = if matches!(op, Op::Vmem(VmemOp::Store(_))) { "STORE" } else { "LOAD" };
                let last = if kind == "STORE" { "NT_WB" } else { "RESERVED" };
                let name = ["", "NT", "HT", "LU", "NT_RT", "RT_NT", "NT_HT", last];
                write!(f, " th:TH_{kind}_{}", name[usize::from(hint & 7)])?;
            }
        }
    }
    scope(f, cache & 3)
}

pub(super) fn swizzle(f: &mut fmt::Formatter<'_>, offset: u16) -> fmt::Result {
    if offset == 0 {
        return Ok(());
    }
    f.write_str(" offset:swizzle(")?;
    if offset & 0xff00 == 0x8000 {
        let lane = |at: u16| offset >> (at * 2) & 3;
        return write!(f, "QUAD_PERM,{},{},{},{})", lane(0), lane(1), lane(2), lane(3));
    }
    let (and, or, xor) = (offset & 31, offset >> 5 & 31, offset >> 10 & 31);
    if and == 31 && or == 0 && xor != 0 && xor.is_power_of_two() {
        return write!(f, "SWAP,{xor})");
    }
    if and == 31 && or == 0 && xor != 0 && (xor + 1).is_power_of_two() {
        return write!(f, "REVERSE,{})", xor + 1);
    }
    let group = 32 - and;
    if and != 31 && xor == 0 && group.is_power_of_two() && or < group {
        return write!(f, "BROADCAST,{group},{or})");
    }
    write!(f, "BITMASK_PERM,\"")?;
    for bit in (0..5).rev() {
        let (and, or, xor) = (and >> bit & 1, or >> bit & 1, xor >> bit & 1);
        f.write_str(match (and, or, xor) {
            (0, 0, 1) | (0, 1, 0) => "1",
            (1, 0, 0) => "p",
            (1, 0, 1) => "i",
            _ => "0",
        })?;
    }
    f.write_str("\")")
}
