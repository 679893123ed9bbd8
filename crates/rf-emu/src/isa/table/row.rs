//! One row of an opcode table.

use crate::isa::ProcessorFamily;
use crate::isa::op::Op;

/// An instruction with its number in each family.
#[derive(Debug)]
pub(crate) struct InstructionRow {
    pub(crate) op: Op,
    /// The name, or the names in RDNA 2, 3 and 4 with `/` between them.
    names: &'static str,
    /// The opcodes in RDNA 2, 3 and 4; [`NONE`] where the instruction is missing.
    opcodes: [u16; 3],
    /// Destinations, `:`, sources, one letter each; see [`super::OperandType`]. A trailing `!`
    /// marks instructions whose name has no suffix for the encoding.
    pub(crate) pattern: &'static str,
}

/// The opcode of an instruction that a family lacks.
pub(crate) const NONE: u16 = u16::MAX;

impl InstructionRow {
    pub(crate) const fn new(
        op: Op,
        names: &'static str,
        opcodes: [u16; 3],
        pattern: &'static str,
    ) -> Self {
        Self { op, names, opcodes, pattern }
    }

    pub(crate) fn is(&self, family: ProcessorFamily, opcode: u16) -> bool {
        self.opcodes[family as usize] == opcode
    }

    pub(crate) fn has(&self, family: ProcessorFamily) -> bool {
        self.opcodes[family as usize] != NONE
    }

    pub(crate) fn name(&self, family: ProcessorFamily) -> &'static str {
        let mut names = self.names.split('/');
        let first = names.next().unwrap_or_default();
        match family {
            ProcessorFamily::Rdna2 => first,
            ProcessorFamily::Rdna3 => names.next().unwrap_or(first),
            ProcessorFamily::Rdna4 => names.nth(1).unwrap_or(first),
        }
    }
}

macro_rules! opcode {
    (_) => {
        crate::isa::table::row::NONE
    };
    ($number:literal) => {
        $number
    };
}

macro_rules! rows {
    ($table:ident: SaluOp; $($op:ident $names:literal [$a:tt $b:tt $c:tt] $pattern:literal;)*) => {
        rows! { $table; $((Op::Salu(SaluOp::$op)) $names [$a $b $c] $pattern;)* }
    };
    ($table:ident: ValuOp; $($op:ident $names:literal [$a:tt $b:tt $c:tt] $pattern:literal;)*) => {
        rows! { $table; $((Op::Valu(ValuOp::$op)) $names [$a $b $c] $pattern;)* }
    };
    ($table:ident; $(($op:expr) $names:literal [$a:tt $b:tt $c:tt] $pattern:literal;)*) => {
        pub(crate) const $table: &[InstructionRow] = &[$(
            InstructionRow::new(
                $op,
                $names,
                [
                    crate::isa::table::row::opcode!($a),
                    crate::isa::table::row::opcode!($b),
                    crate::isa::table::row::opcode!($c),
                ],
                $pattern,
            ),
        )*];
    };
}

pub(crate) use opcode;
pub(crate) use rows;
