//! Registers, constants and their modifiers as text.

use std::fmt;

use crate::isa::instruction::{Encoding, Exchange, Instruction, Operand, register};
use crate::isa::op::Op;
use crate::isa::table::OperandType;

/// An operand as wide as its kind.
pub(super) fn operand(
    f: &mut fmt::Formatter<'_>,
    operand: Operand,
    kind: OperandType,
) -> fmt::Result {
    match operand {
        Operand::None => Ok(()),
        Operand::Vgpr(_) | Operand::Sgpr(_) => register_range(f, operand, kind.registers()),
        Operand::Constant { code, .. } => f.write_str(&constant(code, kind)),
        Operand::Literal { value, .. } => match inline_code(value, kind) {
            Some(code) => f.write_str(&constant(code, kind)),
            None => write!(f, "{value:#x}"),
        },
        Operand::Special(code) => f.write_str(match code {
            235 => "src_shared_base",
            236 => "src_shared_limit",
            237 => "src_private_base",
            238 => "src_private_limit",
            251 => "src_vccz",
            252 => "src_execz",
            _ => "src_scc",
        }),
    }
}

fn constant(code: u8, kind: OperandType) -> String {
    match code {
        128..=192 => (i32::from(code) - 128).to_string(),
        193..=208 => (192 - i32::from(code)).to_string(),
        248 if matches!(kind, OperandType::F64 | OperandType::B64) => {
            "0.15915494309189532".to_owned()
        }
        248 if matches!(kind, OperandType::F16 | OperandType::PackedF16) => "0.15915494".to_owned(),
        248 => "0.15915494".to_owned(),
        _ => ["0.5", "-0.5", "1.0", "-1.0", "2.0", "-2.0", "4.0", "-4.0"]
            [usize::from(code - 240) % 8]
            .to_owned(),
    }
}

/// The inline constant with the bits of a literal: LLVM prints both alike.
fn inline_code(value: u32, kind: OperandType) -> Option<u8> {
    const FLOATS: [f32; 8] = [0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0];
    if !matches!(kind, OperandType::B32 | OperandType::F32) {
        return None;
    }
    match value as i32 {
        integer @ 0..=64 => Some((integer + 128) as u8),
        integer @ -16..=-1 => Some((192 - integer) as u8),
        _ => (240..).zip(FLOATS).find(|(_, float)| float.to_bits() == value).map(|(code, _)| code),
    }
}

/// The first of several registers, as `v5`, `v[5:6]`, `vcc_lo`.
pub(super) fn register_range(
    f: &mut fmt::Formatter<'_>,
    operand: Operand,
    registers: u8,
) -> fmt::Result {
    let (letter, first) = match operand {
        Operand::Vgpr(first) => ('v', first),
        Operand::Sgpr(code) => match (code, registers) {
            (register::VCC, 2..) => return f.write_str("vcc"),
            (register::VCC, _) => return f.write_str("vcc_lo"),
            (107, _) => return f.write_str("vcc_hi"),
            (108..=123, 1) => return write!(f, "ttmp{}", code - 108),
            (108..=123, _) => {
                let first = u32::from(code) - 108;
                return write!(f, "ttmp[{first}:{}]", first + u32::from(registers) - 1);
            }
            (register::NULL, _) => return f.write_str("null"),
            (register::M0, _) => return f.write_str("m0"),
            (register::EXEC, 2..) => return f.write_str("exec"),
            (register::EXEC, _) => return f.write_str("exec_lo"),
            (127, _) => return f.write_str("exec_hi"),
            _ => ('s', code),
        },
        other => return self::operand(f, other, OperandType::B32),
    };
    if registers == 1 {
        write!(f, "{letter}{first}")
    } else {
        write!(f, "{letter}[{first}:{}]", u32::from(first) + u32::from(registers) - 1)
    }
}

/// The source at a position with its signs.
pub(super) fn source(
    f: &mut fmt::Formatter<'_>,
    instruction: &Instruction,
    at: usize,
    has_signs: bool,
) -> fmt::Result {
    let source = &instruction.src[at];
    // Packed operands state their signs after the operands, mixed ones here.
    let signs =
        has_signs && (instruction.encoding != Encoding::Vop3p || source.kind == OperandType::Mix);
    let (neg, abs) = match source.kind {
        OperandType::Mix => (source.neg, source.neg_high),
        _ => (source.neg, source.abs),
    };
    if let (Exchange::Sdwa { signed, .. }, 0 | 1) = (&instruction.exchange, at)
        && signed[at]
    {
        f.write_str("sext(")?;
        operand(f, source.operand, source.kind)?;
        return f.write_str(")");
    }
    if signs && neg {
        // A negative constant would read as a double sign.
        let constant = matches!(source.operand, Operand::Constant { .. } | Operand::Literal { .. });
        if constant && !abs {
            f.write_str("neg(")?;
            operand(f, source.operand, source.kind)?;
            return f.write_str(")");
        }
        f.write_str("-")?;
    }
    if signs && abs {
        f.write_str("|")?;
    }
    // The constant that belongs to the operation is never printed like an inline constant.
    if let Operand::Literal { value, .. } = source.operand
        && (instruction.name.contains("fmaak") || instruction.name.contains("fmamk"))
    {
        return write!(f, "{value:#x}");
    }
    let is_scalar_mask = source.kind == OperandType::Mask && matches!(instruction.op, Op::Valu(_));
    operand(f, source.operand, if is_scalar_mask { OperandType::B32 } else { source.kind })?;
    if signs && abs {
        f.write_str("|")?;
    }
    Ok(())
}
