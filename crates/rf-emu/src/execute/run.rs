//! Runs: consecutive instructions whose registers are checked together, before the first one.

use super::options::Counters;
use super::slot::{InstructionSlot, NO_SLOT, Simple};
use super::vector;
use super::wave::Wave;
use crate::check::operands::{RegisterSet, Registers};
use crate::isa::Instruction;
use crate::isa::instruction::{Operand, register};
use crate::isa::op::{Op, SaluOp, ValuOp};

/// A slot at which no run starts.
const NO_RUN: u32 = u32::MAX;

/// The runs of a program.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    all: Vec<InstructionRun>,
    /// The run that starts at each slot, or [`NO_RUN`].
    at: Vec<u32>,
}

/// Instructions that follow each other: no branch, wait, memory access or change of EXEC.
#[derive(Debug)]
pub(crate) struct InstructionRun {
    pub(crate) length: u32,
    /// Instructions that are more than hints, with their places in the run.
    steps: Vec<(Simple, u32)>,
    /// The slot after the last one.
    pub(crate) next: u32,
    /// The registers that the instructions read or write.
    pub(crate) touched: RegisterSet,
    /// The registers that are read before they are written.
    pub(crate) reads: Touched,
    /// The registers that are written.
    pub(crate) writes: Touched,
    /// True if lanes are read besides those that are active.
    pub(crate) exchanges: bool,
    /// The instructions by class.
    pub(crate) counters: Counters,
}

/// Registers by number.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    pub(crate) vector: Vec<u16>,
    pub(crate) scalar: Vec<u16>,
    pub(crate) scc: bool,
}

/// Returns true if a slot can be part of a run.
fn is_member(slot: &InstructionSlot) -> bool {
    let changes_exec = |registers: &Registers| {
        let exec = u16::from(register::EXEC);
        !registers.vector && registers.iter().any(|at| at == exec || at == exec + 1)
    };
    slot.simple.is_some() && slot.next != NO_SLOT && !slot.operands.writes.iter().any(changes_exec)
}

impl Runs {
    /// The run that starts at a slot.
    #[inline]
    pub(crate) fn at(&self, slot: u32) -> Option<&InstructionRun> {
        self.all.get(*self.at.get(slot as usize)? as usize)
    }

    /// A run starts where control can arrive: at the entry, at targets of branches and after
    /// instructions that are not part of one.
    pub(crate) fn find_all(slots: &[InstructionSlot], entry: u32) -> Self {
        let mut starts = vec![false; slots.len()];
        let mut mark = |slot: u32| {
            if let Some(start) = starts.get_mut(slot as usize) {
                *start = true;
            }
        };
        mark(entry);
        for (at, slot) in slots.iter().enumerate() {
            mark(slot.target);
            if !is_member(slot) || slot.next != at as u32 + 1 {
                mark(slot.next);
            }
        }
        let mut runs = Self { all: Vec::new(), at: vec![NO_RUN; slots.len()] };
        for (start, _) in starts.iter().enumerate().filter(|(_, is_start)| **is_start) {
            let mut end = start;
            while slots.get(end).is_some_and(is_member) {
                end += 1;
                if slots[end - 1].next != end as u32 {
                    break;
                }
            }
            if end > start {
                runs.at[start] = runs.all.len() as u32;
                runs.all.push(InstructionRun::of(&slots[start..end]));
            }
        }
        runs
    }
}

impl InstructionRun {
    fn of(slots: &[InstructionSlot]) -> Self {
        let mut run = Self {
            length: slots.len() as u32,
            steps: Vec::new(),
            next: slots.last().map_or(NO_SLOT, |slot| slot.next),
            touched: RegisterSet::default(),
            reads: Touched::default(),
            writes: Touched::default(),
            exchanges: false,
            counters: Counters::default(),
        };
        let mut written = RegisterSet::default();
        let mut read = RegisterSet::default();
        for (place, slot) in slots.iter().enumerate() {
            let Ok(instruction) = &slot.instruction else { continue };
            let step = slot.simple.filter(|simple| !matches!(simple, Simple::Hint));
            run.steps.extend(step.map(|step| (step, place as u32)));
            run.counters.count(NO_SLOT, instruction.op);
            run.exchanges |= vector::moves_between_lanes(instruction)
                || instruction.op == Op::Valu(ValuOp::ReadlaneB32);
            run.touched.add(&slot.operands.touched);
            for registers in &slot.operands.reads {
                for at in registers.iter() {
                    if !written.contains(registers.vector, at) && read.insert(registers.vector, at)
                    {
                        run.reads.push(registers.vector, at);
                    }
                }
            }
            run.reads.scc |= !run.writes.scc && reads_scc(instruction);
            for registers in &slot.operands.writes {
                for at in registers.iter() {
                    if written.insert(registers.vector, at) {
                        run.writes.push(registers.vector, at);
                    }
                }
            }
            run.writes.scc |= matches!(instruction.op, Op::Salu(op) if op.sets_scc());
        }
        run
    }
}

impl Touched {
    fn push(&mut self, vector: bool, register: u16) {
        if vector {
            self.vector.push(register);
        } else {
            self.scalar.push(register);
        }
    }
}

fn reads_scc(instruction: &Instruction) -> bool {
    let is_scc = |operand: Operand| operand == Operand::Special(253);
    instruction.sources().iter().any(|source| is_scc(source.operand))
        || matches!(
            instruction.op,
            Op::Salu(
                SaluOp::AddcU32
                    | SaluOp::SubbU32
                    | SaluOp::CselectB32
                    | SaluOp::CselectB64
                    | SaluOp::CmovB32
                    | SaluOp::CmovB64
                    | SaluOp::CmovkI32
            )
        )
}

/// Executes the instructions of a run, which are in these slots.
pub(super) fn execute(wave: &mut Wave, run: &InstructionRun, slots: &[InstructionSlot]) {
    for &(simple, place) in &run.steps {
        let Ok(instruction) = &slots[place as usize].instruction else { continue };
        match simple {
            Simple::Hint => {}
            Simple::Scalar(op, group) => {
                group(wave, instruction, op);
            }
            Simple::Vector(group) => vector::execute_group(wave, instruction, group),
        }
    }
}
