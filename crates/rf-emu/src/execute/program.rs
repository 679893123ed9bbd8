//! The decoded code of a kernel.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use super::run::Runs;
use super::slot::{InstructionSlot, NO_SLOT, Simple};
use super::wave::{FloatMode, VGPRS, Wave};
use crate::check::Checks;
use crate::check::hazards::{self, Hazards};
use crate::check::operands::Operands;
use crate::fault::{Fault, FaultKind};
use crate::isa::op::{Op, SaluOp, ValuOp};
use crate::isa::{Arch, Instruction, decode};
use crate::{Kernel, LoadedCode, SourceLines};

/// A kernel, decoded and ready to run.
#[derive(Debug)]
pub struct Program {
    pub(crate) arch: Arch,
    pub(crate) kernel: Kernel,
    /// The address of the code object in memory.
    pub(crate) base: u64,
    pub(crate) slots: Vec<InstructionSlot>,
    pub(crate) runs: Runs,
    /// The number of vector registers of a wave.
    pub(crate) vector_registers: usize,
    /// The slot of each offset in the code object.
    places: BTreeMap<u64, u32>,
    pub(crate) entry: u32,
    pub(crate) lines: Arc<SourceLines>,
    /// The results of both searches for hazards, after the first launch that needs them.
    hazards: [OnceLock<Hazards>; 2],
}

impl Program {
    /// Decodes what is reachable from the start of a kernel, or all code if it calls functions.
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
            runs: Runs::default(),
            vector_registers: VGPRS,
            places: BTreeMap::new(),
            entry: 0,
            lines: Arc::clone(code.source_lines()),
            hazards: Default::default(),
        };
        if !kernel.wave32 {
            return Err(program.fault(FaultKind::Unsupported("waves of 64 lanes")));
        }
        program.decode(code);
        program.link();
        program.vector_registers = program.used_registers();
        program.entry = program.slot_of(kernel.entry);
        program.runs = Runs::find_all(&program.slots, program.entry);
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

    /// The lines of the source: [`SourceLines::lookup`] takes the offsets of
    /// [`listing`](Self::listing).
    pub fn source_lines(&self) -> &SourceLines {
        &self.lines
    }

    /// The offsets and texts of the decoded instructions.
    pub fn listing(&self) -> impl Iterator<Item = (u64, String)> {
        self.places.iter().map(|(&offset, &slot)| (offset, self.text(slot)))
    }

    /// The decoded instructions in the order of [`listing`](Self::listing), with their offsets.
    pub(crate) fn instructions(&self) -> impl Iterator<Item = (u64, Option<&Instruction>)> {
        self.places.iter().map(|(&offset, &slot)| {
            let slot = self.slots.get(slot as usize);
            (offset, slot.and_then(|slot| slot.instruction.as_ref().ok()))
        })
    }

    /// The hazards that are checked, without empty sets.
    pub(crate) fn hazards(&self, checks: Checks) -> Vec<&Hazards> {
        let searches = [
            (checks.hazards, hazards::find as fn(_, &[_]) -> _),
            (checks.sgpr_hazards, hazards::find_scalar_reads),
        ];
        let wanted = self.hazards.iter().zip(searches).filter(|(_, (is_wanted, _))| *is_wanted);
        wanted
            .map(|(hazards, (_, find))| {
                hazards.get_or_init(|| find(self.arch, &self.control_flow()))
            })
            .filter(|hazards| !hazards.is_empty())
            .collect()
    }

    fn control_flow(&self) -> Vec<Option<hazards::FlowNode<'_>>> {
        self.slots.iter().map(InstructionSlot::place).collect()
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
        let mut wave = Wave::new(FloatMode { bits: 0xff, clamp_nan: false, ieee: false }, 0, VGPRS);
        while let Some(start) = starts.pop() {
            let mut offset = start;
            while let Some(slot) = self.decode_at(code, &mut wave, offset) {
                let (next, target, ends) = follow(slot);
                starts.extend(target);
                if ends {
                    break;
                }
                offset = next;
            }
        }
        let jumps = |slot: &InstructionSlot| {
            let op = slot.instruction.as_ref().map(|instruction| instruction.op);
            matches!(op, Ok(Op::Salu(SaluOp::SetpcB64 | SaluOp::SwappcB64)))
        };
        if self.slots.iter().any(jumps) {
            self.decode_all(code, &mut wave);
        }
    }

    /// Decodes all code: functions that are called by address are not found otherwise.
    fn decode_all(&mut self, code: &LoadedCode, wave: &mut Wave) {
        for range in code.executable() {
            let mut offset = range.start;
            while offset < range.end {
                self.decode_at(code, wave, offset);
                let slot = self.slots.get(self.slot_of(offset) as usize);
                let instruction = slot.and_then(|slot| slot.instruction.as_ref().ok());
                offset += instruction.map_or(4, |instruction| instruction.bytes.into());
            }
        }
    }

    /// Decodes the instruction at an offset, unless that is done or the offset is outside the code.
    fn decode_at(
        &mut self,
        code: &LoadedCode,
        wave: &mut Wave,
        offset: u64,
    ) -> Option<&InstructionSlot> {
        let is_code = code.executable().iter().any(|range| range.contains(&offset));
        if !is_code || self.places.contains_key(&offset) {
            return None;
        }
        let bytes = code.image().get(usize::try_from(offset).ok()?..)?;
        let words = bytes.as_chunks::<4>().0.iter().take(4).map(|&word| u32::from_le_bytes(word));
        let instruction = decode(self.arch, &words.collect::<Vec<_>>());
        let operands = instruction.as_ref().map(Operands::of).unwrap_or_default();
        self.places.insert(offset, self.slots.len() as u32);
        let simple = instruction.as_ref().ok().and_then(|simple| Simple::of(simple, wave));
        let (next, target) = (NO_SLOT, NO_SLOT);
        self.slots.push(InstructionSlot { offset, instruction, next, target, operands, simple });
        self.slots.last()
    }

    /// The number of vector registers that the instructions can reach.
    fn used_registers(&self) -> usize {
        let is_relative = |slot: &InstructionSlot| {
            matches!(&slot.instruction, Ok(instruction)
                if matches!(instruction.op, Op::Valu(ValuOp::MovrelsB32 | ValuOp::MovreldB32)))
        };
        if self.slots.iter().any(is_relative) {
            return VGPRS;
        }
        let ends = self.slots.iter().flat_map(|slot| {
            let all = slot.operands.reads.iter().chain(&slot.operands.writes);
            all.filter(|registers| registers.vector).map(|registers| registers.iter().end)
        });
        // Operands of several registers may reach beyond the last one without a panic.
        VGPRS.min(usize::from(ends.max().unwrap_or(0)) + VGPRS - 256)
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

impl InstructionSlot {
    /// The place in the control flow.
    fn place(&self) -> Option<hazards::FlowNode<'_>> {
        let instruction = self.instruction.as_ref().ok()?;
        let (_, _, ends) = follow(self);
        let next = [(!ends).then_some(self.next), Some(self.target)];
        let next = next.map(|next| next.filter(|&next| next != NO_SLOT));
        Some(hazards::FlowNode { instruction, operands: &self.operands, next })
    }
}

/// The offset of the next instruction, the target of a branch, whether the code ends here.
fn follow(slot: &InstructionSlot) -> (u64, Option<u64>, bool) {
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
