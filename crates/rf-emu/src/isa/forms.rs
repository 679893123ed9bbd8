//! The opcodes that the decoder knows, as a list.

use super::ProcessorFamily;
use super::decode::dual_operations;
use super::instruction::Encoding;
use super::op::Op;
use super::table::{InstructionRow, OperandType, compare, memory, scalar, vector};

/// An opcode of an encoding.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Form {
    /// The encoding. For vector instructions the shortest; most have a VOP3 encoding too.
    pub encoding: Encoding,
    /// The name without a suffix for the encoding.
    pub name: String,
    /// The operation.
    pub op: Op,
    /// The destinations of vector and scalar arithmetic.
    pub dst: Vec<OperandType>,
    /// The sources of vector and scalar arithmetic.
    pub src: Vec<OperandType>,
}

/// Every opcode that [`decode`](super::decode()) knows for a family.
pub fn forms(family: ProcessorFamily) -> Vec<Form> {
    let tables = [
        (Encoding::Sop2, scalar::SOP2),
        (Encoding::Sop1, scalar::SOP1),
        (Encoding::Sopc, scalar::SOPC),
        (Encoding::Sopk, scalar::SOPK),
        (Encoding::Sopp, scalar::SOPP),
        (Encoding::Smem, memory::SMEM),
        (Encoding::Vop1, vector::VOP1),
        (Encoding::Vop2, vector::VOP2),
        (Encoding::Vop3, vector::VOP3),
        (Encoding::Vop3p, vector::VOP3P),
        (Encoding::Ds, memory::DS),
        (Encoding::Flat, memory::FLAT),
        (Encoding::Global, memory::FLAT),
        (Encoding::Scratch, memory::FLAT),
        (Encoding::Mubuf, memory::MUBUF),
    ];
    let rows = tables.into_iter().flat_map(|(encoding, table)| {
        table
            .iter()
            .filter(move |row| row.has(family))
            .map(move |row| of_row(row, family, encoding))
    });
    let compares = (0..256).filter_map(|opcode| compare::find(family, opcode)).map(|(op, name)| {
        let (encoding, op) = (Encoding::Vopc, Op::Compare(op));
        Form { encoding, name, op, dst: vec![OperandType::Mask], src: Vec::new() }
    });
    let duals = dual_operations().filter(|_| family != ProcessorFamily::Rdna2).map(|row| {
        let form = of_row(row, family, Encoding::Vopd);
        Form { name: form.name.replacen("v_", "v_dual_", 1), ..form }
    });
    rows.chain(compares).chain(duals).collect()
}

fn of_row(row: &'static InstructionRow, family: ProcessorFamily, encoding: Encoding) -> Form {
    let pattern = row.pattern.trim_end_matches('!');
    let (dst, src) = pattern.split_once(':').unwrap_or(("", pattern));
    let kinds = |letters: &str| letters.bytes().map(OperandType::from_letter).collect();
    let prefix = match encoding {
        Encoding::Flat => "flat_",
        Encoding::Global => "global_",
        Encoding::Scratch => "scratch_",
        _ => "",
    };
    let name = format!("{prefix}{}", row.name(family));
    Form { encoding, name, op: row.op, dst: kinds(dst), src: kinds(src) }
}
