//! The decoded code of a kernel.

use std::{collections::BTreeMap, fmt::Write as _, iter};

use super::Counters;
use crate::{
    Kernel, LoadedCode,
    check::operands::Operands,
    fault::{Fault, FaultKind},
    isa::{
        Arch, DecodeError, Instruction, decode,
        op::{Op, SaluOp},
    },
};

/// A kernel, decoded and ready to run.
#[derive(Debug)]
pub struct Program {
    pub(crate) arch: Arch,
    pub(crate) kernel: Kernel,
    /// The address of the code object in memory.
    pub(crate) base: u64,
    pub(crate) slots: Vec<Slot>,
    /// The slot of each offset in the code object.
    places: BTreeMap<u64, u32>,
    pub(crate) entry: u32,
}

/// An instruction with its place.
#[derive(Debug)]
pub(crate) struct Slot {
    /// The offset in the code object.
    pub(crate) offset: u64,
    pub(crate) instruction: Result<Instruction, DecodeError>,
    /// The slot of the following instruction, and of the branch's target.
    pub(crate) next: u32,
    pub(crate) target: u32,
    pub(crate) operands: Operands,
}

/// A slot that does not exist.
pub(crate) const NO_SLOT: u32 = u32::MAX;

impl Program {
    /// Decodes what is reachable from the start of a kernel.
    ///
    /// # Errors
    ///
    /// The kernel needs waves of 64 lanes. Instructions that cannot be decoded are errors only when
    /// they are reached.
    pub fn new(code: &LoadedCode, kernel: &Kernel) -> Result<Self, Fault> {
        let mut program = Self {
            arch: code.arch(),
            kernel: kernel.clone(),
            base: code.base(),
            slots: Vec::new(),
            places: BTreeMap::new(),
            entry: 0,
        };
        if !kernel.wave32 {
            return Err(program.fault(FaultKind::Unsupported("waves of 64 lanes")));
        }
        program.decode(code);
        program.link();
        program.entry = program.slot_of(kernel.entry);
        Ok(program)
    }

    /// The processor whose code it is.
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// The kernel.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// The offsets and texts of the decoded instructions.
    pub fn listing(&self) -> impl Iterator<Item = (u64, String)> {
        self.places.iter().map(|(&offset, &slot)| (offset, self.text(slot)))
    }

    /// A listing with the number of executions of each instruction and its share in percent.
    pub fn annotate(&self, counters: &Counters) -> String {
        let all = counters.instructions().max(1) as f64;
        self.listing().zip(counters.each.iter().chain(iter::repeat(&0))).fold(
            String::new(),
            |mut lines, ((offset, text), &count)| {
                let share = count as f64 * 100.0 / all;
                // Writing to a string cannot fail.
                let _ = writeln!(lines, "{count:>12} {share:>5.1}% {offset:#8x}: {text}");
                lines
            },
        )
    }

    pub(crate) fn text(&self, slot: u32) -> String {
        match self.slots.get(slot as usize).map(|slot| &slot.instruction) {
            Some(Ok(instruction)) => instruction.text(self.arch).to_string(),
            Some(Err(error)) => error.to_string(),
            None => "no instruction".to_owned(),
        }
    }

    /// The slot at an offset, or [`NO_SLOT`].
    pub(crate) fn slot_of(&self, offset: u64) -> u32 {
        self.places.get(&offset).copied().unwrap_or(NO_SLOT)
    }

    pub(crate) fn fault(&self, kind: FaultKind) -> Fault {
        Fault { kind: Box::new(kind), kernel: self.kernel.name.clone(), place: None }
    }

    fn decode(&mut self, code: &LoadedCode) {
        let mut starts = vec![self.kernel.entry];
        while let Some(start) = starts.pop() {
            let mut offset = start;
            while !self.places.contains_key(&offset) {
                let is_code = code.executable().iter().any(|range| range.contains(&offset));
                let bytes = usize::try_from(offset).ok().and_then(|at| code.image().get(at..));
                let Some(bytes) = bytes.filter(|_| is_code) else { break };
                let words: Vec<_> = bytes
                    .as_chunks::<4>()
                    .0
                    .iter()
                    .take(4)
                    .map(|&word| u32::from_le_bytes(word))
                    .collect();
                let instruction = decode(self.arch, &words);
                let operands = instruction.as_ref().map(Operands::of).unwrap_or_default();
                self.places.insert(offset, self.slots.len() as u32);
                let slot = Slot { offset, instruction, next: NO_SLOT, target: NO_SLOT, operands };
                let (next, target, ends) = follow(&slot);
                self.slots.push(slot);
                starts.extend(target);
                if ends {
                    break;
                }
                offset = next;
            }
        }
    }

    /// Resolves the slots that follow each instruction.
    fn link(&mut self) {
        for at in 0..self.slots.len() {
            let (next, target, _) = follow(&self.slots[at]);
            self.slots[at].next = self.slot_of(next);
            self.slots[at].target = target.map_or(NO_SLOT, |target| self.slot_of(target));
        }
    }
}

/// The offset of the next instruction, the target of a branch, whether the code ends here.
fn follow(slot: &Slot) -> (u64, Option<u64>, bool) {
    let Ok(instruction) = &slot.instruction else { return (slot.offset, None, true) };
    let next = slot.offset + u64::from(instruction.bytes);
    let Op::Salu(op) = instruction.op else { return (next, None, false) };
    let target = Some(instruction.branch_target(slot.offset));
    match op {
        SaluOp::Branch => (next, target, true),
        SaluOp::CbranchScc0
        | SaluOp::CbranchScc1
        | SaluOp::CbranchVccz
        | SaluOp::CbranchVccnz
        | SaluOp::CbranchExecz
        | SaluOp::CbranchExecnz => (next, target, false),
        SaluOp::Endpgm | SaluOp::SetpcB64 | SaluOp::RfeB64 => (next, None, true),
        _ => (next, None, false),
    }
}
