//! Scalar instructions as text: operands of waits, messages and delays have names.

use std::fmt;

use super::operands::{operand, source};
use crate::isa::ProcessorFamily;
use crate::isa::instruction::{Encoding, Instruction, Operand};
use crate::isa::op::SaluOp;
use crate::isa::table::OperandType;

pub(super) fn scalar(
    f: &mut fmt::Formatter<'_>,
    instruction: &Instruction,
    op: SaluOp,
    family: ProcessorFamily,
) -> fmt::Result {
    f.write_str(&instruction.name)?;
    match instruction.encoding {
        Encoding::Sopp => program_control(f, op, instruction.immediate as u16, family),
        Encoding::Sopk => with_immediate(f, instruction, op, family),
        _ => {
            let mut separator = " ";
            if instruction.dst != Operand::None {
                f.write_str(separator)?;
                operand(f, instruction.dst, instruction.dst_kind)?;
                separator = ", ";
            }
            for at in 0..usize::from(instruction.sources) {
                f.write_str(separator)?;
                separator = ", ";
                source(f, instruction, at, false)?;
            }
            Ok(())
        }
    }
}

fn with_immediate(
    f: &mut fmt::Formatter<'_>,
    instruction: &Instruction,
    op: SaluOp,
    family: ProcessorFamily,
) -> fmt::Result {
    let immediate = instruction.immediate as u16;
    match op {
        SaluOp::GetregB32 => {
            f.write_str(" ")?;
            operand(f, instruction.dst, OperandType::B32)?;
            f.write_str(", ")?;
            hardware_register(f, immediate, family)
        }
        SaluOp::SetregB32 | SaluOp::SetregImm32B32 => {
            f.write_str(" ")?;
            hardware_register(f, immediate, family)?;
            f.write_str(", ")?;
            source(f, instruction, 0, false)
        }
        _ => {
            f.write_str(" ")?;
            let register =
                if instruction.sources > 0 { instruction.src[0].operand } else { instruction.dst };
            operand(f, register, OperandType::B32)?;
            write!(f, ", {immediate:#x}")
        }
    }
}

fn hardware_register(
    f: &mut fmt::Formatter<'_>,
    code: u16,
    family: ProcessorFamily,
) -> fmt::Result {
    let (number, first, count) = (code & 63, code >> 6 & 31, (code >> 11) + 1);
    let name = match (number, family) {
        (1, _) => Some("HW_REG_MODE"),
        (2, _) => Some("HW_REG_STATUS"),
        (3, ProcessorFamily::Rdna2 | ProcessorFamily::Rdna3) => Some("HW_REG_TRAPSTS"),
        (4, ProcessorFamily::Rdna4) => Some("HW_REG_STATE_PRIV"),
        (15, ProcessorFamily::Rdna2 | ProcessorFamily::Rdna3) => Some("HW_REG_SH_MEM_BASES"),
        (20, ProcessorFamily::Rdna2 | ProcessorFamily::Rdna3) => Some("HW_REG_FLAT_SCR_LO"),
        (21, ProcessorFamily::Rdna2 | ProcessorFamily::Rdna3) => Some("HW_REG_FLAT_SCR_HI"),
        (23, _) => Some("HW_REG_HW_ID1"),
        (24, _) => Some("HW_REG_HW_ID2"),
        (29, _) => Some("HW_REG_SHADER_CYCLES"),
        _ => None,
    };
    match name {
        Some(name) => write!(f, "hwreg({name}")?,
        None => write!(f, "hwreg({number}")?,
    }
    if (first, count) == (0, 32) { f.write_str(")") } else { write!(f, ", {first}, {count})") }
}

fn program_control(
    f: &mut fmt::Formatter<'_>,
    op: SaluOp,
    immediate: u16,
    family: ProcessorFamily,
) -> fmt::Result {
    match op {
        SaluOp::Endpgm if immediate == 0 => Ok(()),
        SaluOp::Barrier | SaluOp::CodeEnd | SaluOp::WaitIdle => Ok(()),
        SaluOp::Waitcnt => wait_counts(f, immediate, family),
        SaluOp::DelayAlu => delay(f, immediate),
        SaluOp::Sendmsg => message(f, immediate),
        SaluOp::BarrierWait if immediate as i16 == -1 => f.write_str(" 0xffff"),
        SaluOp::WaitAlu => depctr(f, immediate),
        SaluOp::Clause | SaluOp::SetInstPrefetchDistance | SaluOp::RoundMode => {
            write!(f, " {immediate:#x}")
        }
        _ if op.waits_for_counter() => write!(f, " {immediate:#x}"),
        SaluOp::Branch
        | SaluOp::CbranchScc0
        | SaluOp::CbranchScc1
        | SaluOp::CbranchVccz
        | SaluOp::CbranchVccnz
        | SaluOp::CbranchExecz
        | SaluOp::CbranchExecnz => write!(f, " {immediate}"),
        _ => {
            let signed = immediate as i16;
            if (-16..=64).contains(&signed) {
                write!(f, " {signed}")
            } else {
                write!(f, " {immediate:#x}")
            }
        }
    }
}

/// The counters of `s_waitcnt`: vector loads, exports, LDS and scalar loads.
pub(crate) fn wait_fields(
    immediate: u16,
    family: ProcessorFamily,
) -> [(&'static str, u16, u16); 3] {
    if family == ProcessorFamily::Rdna2 {
        let vector = immediate & 15 | (immediate >> 14 & 3) << 4;
        [
            ("vmcnt", vector, 63),
            ("expcnt", immediate >> 4 & 7, 7),
            ("lgkmcnt", immediate >> 8 & 63, 63),
        ]
    } else {
        [
            ("vmcnt", immediate >> 10, 63),
            ("expcnt", immediate & 7, 7),
            ("lgkmcnt", immediate >> 4 & 63, 63),
        ]
    }
}

fn wait_counts(f: &mut fmt::Formatter<'_>, immediate: u16, family: ProcessorFamily) -> fmt::Result {
    let fields = wait_fields(immediate, family);
    let nothing = fields.iter().all(|&(_, value, most)| value == most);
    for (name, value, most) in fields {
        if value != most || nothing {
            write!(f, " {name}({value})")?;
        }
    }
    Ok(())
}

/// The fields of `s_waitcnt_depctr`: name, first bit, number of bits. Other bits are clear.
const DEPCTR: [(&str, u16, u16); 7] = [
    ("hold_cnt", 7, 1),
    ("sa_sdst", 0, 1),
    ("va_vdst", 12, 4),
    ("va_sdst", 9, 3),
    ("va_ssrc", 8, 1),
    ("va_vcc", 1, 1),
    ("vm_vsrc", 2, 3),
];

fn depctr(f: &mut fmt::Formatter<'_>, immediate: u16) -> fmt::Result {
    let known =
        DEPCTR.iter().fold(0, |bits, &(_, first, count)| bits | ((1 << count) - 1) << first);
    if immediate & !known != 0 {
        return write!(f, " {immediate:#x}");
    }
    let value = |first: u16, count: u16| immediate >> first & ((1 << count) - 1);
    let is_default =
        |&(_, first, count): &(&str, u16, u16)| value(first, count) == (1 << count) - 1;
    let all = DEPCTR.iter().all(is_default);
    for field in DEPCTR.iter().filter(|field| all || !is_default(field)) {
        write!(f, " depctr_{}({})", field.0, value(field.1, field.2))?;
    }
    Ok(())
}

fn delay(f: &mut fmt::Formatter<'_>, immediate: u16) -> fmt::Result {
    const REASONS: [&str; 12] = [
        "NO_DEP",
        "VALU_DEP_1",
        "VALU_DEP_2",
        "VALU_DEP_3",
        "VALU_DEP_4",
        "TRANS32_DEP_1",
        "TRANS32_DEP_2",
        "TRANS32_DEP_3",
        "FMA_ACCUM_CYCLE_1",
        "SALU_CYCLE_1",
        "SALU_CYCLE_2",
        "SALU_CYCLE_3",
    ];
    const SKIPS: [&str; 6] = ["SAME", "NEXT", "SKIP_1", "SKIP_2", "SKIP_3", "SKIP_4"];
    let (first, skip, second) = (immediate & 15, immediate >> 4 & 7, immediate >> 7 & 15);
    if immediate == 0 {
        return f.write_str(" 0");
    }
    let name = |names: &[&'static str], at: u16| names.get(usize::from(at)).copied();
    let mut separator = " ";
    if first != 0 {
        write!(f, " instid0({})", name(&REASONS, first).unwrap_or("invalid"))?;
        separator = " | ";
    }
    if skip != 0 {
        write!(f, "{separator}instskip({})", name(&SKIPS, skip).unwrap_or("invalid"))?;
        separator = " | ";
    }
    if second != 0 {
        write!(f, "{separator}instid1({})", name(&REASONS, second).unwrap_or("invalid"))?;
    }
    Ok(())
}

fn message(f: &mut fmt::Formatter<'_>, immediate: u16) -> fmt::Result {
    match immediate {
        1 => f.write_str(" sendmsg(MSG_INTERRUPT)"),
        3 => f.write_str(" sendmsg(MSG_DEALLOC_VGPRS)"),
        _ => write!(
            f,
            " sendmsg({}, {}, {})",
            immediate & 15,
            immediate >> 4 & 7,
            immediate >> 8 & 3
        ),
    }
}
