//! Vector comparisons: the opcode is a base per type plus a condition.

use crate::isa::ProcessorFamily;
use crate::isa::op::{Compare, CompareType};

const FLOAT: [(&str, u8); 16] = [
    ("f", 0b0000),
    ("lt", 0b0001),
    ("eq", 0b0010),
    ("le", 0b0011),
    ("gt", 0b0100),
    ("lg", 0b0101),
    ("ge", 0b0110),
    ("o", 0b0111),
    ("u", 0b1000),
    ("nge", 0b1001),
    ("nlg", 0b1010),
    ("ngt", 0b1011),
    ("nle", 0b1100),
    ("neq", 0b1101),
    ("nlt", 0b1110),
    ("t", 0b1111),
];

const INTEGER: [(&str, u8); 8] = [
    ("f", 0b000),
    ("lt", 0b001),
    ("eq", 0b010),
    ("le", 0b011),
    ("gt", 0b100),
    ("ne", 0b101),
    ("ge", 0b110),
    ("t", 0b111),
];

/// The type, the first opcode of `v_cmp`, the opcode of `v_cmp_class`. RDNA 2 places the second
/// half of the f16 conditions elsewhere.
const RDNA2: [(CompareType, u16, u16); 9] = [
    (CompareType::F32, 0x00, 0x88),
    (CompareType::F64, 0x20, 0xa8),
    (CompareType::I32, 0x80, 0),
    (CompareType::I16, 0x88, 0),
    (CompareType::I64, 0xa0, 0),
    (CompareType::U16, 0xa8, 0),
    (CompareType::U32, 0xc0, 0),
    (CompareType::F16, 0xc8, 0x8f),
    (CompareType::U64, 0xe0, 0),
];

const RDNA3: [(CompareType, u16, u16); 9] = [
    (CompareType::F16, 0x00, 0x7d),
    (CompareType::F32, 0x10, 0x7e),
    (CompareType::F64, 0x20, 0x7f),
    (CompareType::I16, 0x30, 0),
    (CompareType::U16, 0x38, 0),
    (CompareType::I32, 0x40, 0),
    (CompareType::U32, 0x48, 0),
    (CompareType::I64, 0x50, 0),
    (CompareType::U64, 0x58, 0),
];

/// The comparison of an opcode of VOPC, with its name.
pub(crate) fn find(family: ProcessorFamily, opcode: u16) -> Option<(Compare, String)> {
    let (table, exec_bit) = match family {
        ProcessorFamily::Rdna2 => (&RDNA2, 0x10),
        _ => (&RDNA3, 0x80),
    };
    let to_exec = opcode & exec_bit != 0;
    let opcode = opcode & !exec_bit;
    let prefix = if to_exec { "v_cmpx" } else { "v_cmp" };
    for &(operands, base, class) in table {
        let suffix = format!("{operands:?}").to_lowercase();
        if class != 0 && opcode == class {
            let compare = Compare { operands, condition: None, to_exec };
            return Some((compare, format!("{prefix}_class_{suffix}")));
        }
        let condition = condition(family, operands, base, opcode);
        if let Some((name, bits)) = condition {
            let name = if name == "t" && family == ProcessorFamily::Rdna2 && suffix.starts_with('f')
            {
                "tru"
            } else {
                name
            };
            let compare = Compare { operands, condition: Some(bits), to_exec };
            return Some((compare, format!("{prefix}_{name}_{suffix}")));
        }
    }
    None
}

fn condition(
    family: ProcessorFamily,
    operands: CompareType,
    base: u16,
    opcode: u16,
) -> Option<(&'static str, u8)> {
    use CompareType::{F16, F32, F64, I16, U16};

    if family == ProcessorFamily::Rdna2 && operands == F16 {
        return match opcode {
            0xc8..0xd0 => Some(FLOAT[usize::from(opcode - 0xc8)]),
            0xe8..0xf0 => Some(FLOAT[usize::from(opcode - 0xe8) + 8]),
            _ => None,
        };
    }
    let at = usize::from(opcode.checked_sub(base)?);
    let found =
        if matches!(operands, F16 | F32 | F64) { *FLOAT.get(at)? } else { *INTEGER.get(at)? };
    // "never" and "always" exist for floats and, before RDNA 4, for wide integers.
    let constant = matches!(found.0, "f" | "t");
    let missing = match operands {
        I16 | U16 => constant,
        _ => constant && family == ProcessorFamily::Rdna4,
    };
    (!missing).then_some(found)
}
