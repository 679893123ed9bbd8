//! Results of memory instructions that are used before a wait covers them.

use super::operands::{Operands, RegisterSet, Registers};
use crate::fault::FaultKind;
use crate::isa::instruction::Encoding;
use crate::isa::op::{DsOp, Op, SaluOp, VmemOp};
use crate::isa::{Instruction, ProcessorFamily, wait_fields};

/// A counter of outstanding instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counter {
    /// Vector loads.
    Load,
    /// Vector stores.
    Store,
    /// LDS; before RDNA 4 also scalar loads.
    Lds,
    /// Scalar loads of RDNA 4.
    Scalar,
}

impl Counter {
    fn name(self, family: ProcessorFamily) -> &'static str {
        match (self, family) {
            (Self::Load, ProcessorFamily::Rdna4) => "loadcnt",
            (Self::Load, _) => "vmcnt",
            (Self::Store, ProcessorFamily::Rdna4) => "storecnt",
            (Self::Store, _) => "vscnt",
            (Self::Lds, ProcessorFamily::Rdna4) => "dscnt",
            (Self::Lds, _) => "lgkmcnt",
            (Self::Scalar, _) => "kmcnt",
        }
    }
}

/// A load into a register: which one of its counter.
#[derive(Clone, Copy, Debug)]
struct Pending {
    counter: Counter,
    number: u64,
}

const NOTHING: Pending = Pending { counter: Counter::Load, number: 0 };

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    issued: u64,
    /// All instructions up to this number are complete.
    complete: u64,
    /// The last instruction that may complete out of order: only a wait for zero covers it.
    last_unordered: u64,
    last_store: u64,
}

impl Count {
    fn wait(&mut self, left: u64) {
        let reached = self.issued.saturating_sub(left);
        // Instructions that complete out of order make a partial wait say nothing.
        if left == 0 || self.last_unordered <= self.complete {
            self.complete = self.complete.max(reached);
        }
    }
}

/// The memory instructions of a wave that are not complete.
#[derive(Debug)]
pub(crate) struct Waits {
    family: ProcessorFamily,
    vector: Vec<Pending>,
    scalar: Vec<Pending>,
    counts: [Count; 4],
    /// The registers that may be pending.
    any: RegisterSet,
}

impl Waits {
    pub(crate) fn new(family: ProcessorFamily) -> Self {
        Self {
            family,
            vector: vec![NOTHING; 288],
            scalar: vec![NOTHING; 160],
            counts: [Count::default(); 4],
            any: RegisterSet::default(),
        }
    }

    /// Forgets everything.
    pub(crate) fn reset(&mut self) {
        self.any = RegisterSet::default();
        self.counts = [Count::default(); 4];
    }

    /// Checks the registers of an instruction, and records what it starts or waits for.
    pub(crate) fn step(
        &mut self,
        instruction: &Instruction,
        operands: &Operands,
    ) -> Result<(), FaultKind> {
        if !self.any.common(&operands.touched).is_empty() {
            for registers in operands.reads.iter().chain(&operands.writes) {
                self.check(*registers, instruction)?;
            }
        }
        match instruction.op {
            Op::ScalarLoad(_) | Op::ScalarLoadSmall(_) | Op::Time => {
                let counter = if self.family == ProcessorFamily::Rdna4 {
                    Counter::Scalar
                } else {
                    Counter::Lds
                };
                self.start(counter, operands, true, false);
            }
            Op::Ds(DsOp::Nop) => {}
            Op::Ds(op) => {
                let stores = matches!(op, DsOp::Store(_) | DsOp::Store2 { .. });
                self.start(Counter::Lds, operands, false, stores);
            }
            Op::Vmem(op) => self.vector_memory(instruction, op, operands),
            Op::Salu(op) => return self.control(op, instruction.immediate as u16),
            _ => {}
        }
        Ok(())
    }

    /// Returns true if the wave has waited for its stores. The compiler leaves out the wait after a
    /// write-back that has nothing to write.
    pub(crate) fn stores_are_complete(&self) -> bool {
        let count = &self.counts[Counter::Store as usize];
        count.complete >= count.last_store
    }

    fn check(&mut self, registers: Registers, instruction: &Instruction) -> Result<(), FaultKind> {
        let family = self.family;
        for register in registers.iter() {
            let Some(slot) = self.outstanding(registers.vector, register) else { continue };
            // Loads of one kind return in order, so the later one may overwrite the earlier one.
            let is_load = matches!(instruction.op, Op::Vmem(VmemOp::Load(_)) | Op::Ds(_))
                && registers.vector
                && instruction.dst != crate::isa::instruction::Operand::None
                && is_destination(instruction, register);
            if !is_load {
                let register = Registers::name(registers.vector, register);
                return Err(FaultKind::Unawaited { register, counter: slot.counter.name(family) });
            }
        }
        Ok(())
    }

    /// Returns true if none of the registers waits for a load.
    pub(crate) fn allows(&mut self, registers: &RegisterSet) -> bool {
        let mut common = self.any.common(registers);
        if common.is_empty() {
            return true;
        }
        while let Some((vector, register)) = common.pop() {
            if self.outstanding(vector, register).is_some() {
                return false;
            }
        }
        true
    }

    /// The load into a register, if it is not complete.
    fn outstanding(&mut self, vector: bool, register: u16) -> Option<Pending> {
        if !self.any.contains(vector, register) {
            return None;
        }
        let pending = self.pending(vector)[usize::from(register)];
        if pending.number <= self.counts[pending.counter as usize].complete {
            self.any.remove(vector, register);
            return None;
        }
        Some(pending)
    }

    fn pending(&mut self, vector: bool) -> &mut Vec<Pending> {
        if vector { &mut self.vector } else { &mut self.scalar }
    }

    fn start(&mut self, counter: Counter, operands: &Operands, unordered: bool, stores: bool) {
        let count = &mut self.counts[counter as usize];
        count.issued += 1;
        let number = count.issued;
        if unordered {
            count.last_unordered = number;
        }
        if stores {
            count.last_store = number;
        }
        for registers in &operands.writes {
            for register in registers.iter() {
                if let Some(slot) = self.pending(registers.vector).get_mut(usize::from(register)) {
                    *slot = Pending { counter, number };
                    self.any.insert(registers.vector, register);
                }
            }
        }
    }

    fn vector_memory(&mut self, instruction: &Instruction, op: VmemOp, operands: &Operands) {
        let returns = !operands.writes.is_empty();
        let counter = match op {
            VmemOp::Load(_) => Counter::Load,
            VmemOp::Atomic { .. } if returns => Counter::Load,
            VmemOp::Store(_)
            | VmemOp::Atomic { .. }
            | VmemOp::WriteBack
            | VmemOp::WriteBackInvalidate => Counter::Store,
            // RDNA 4 waits for it like for a load; before, it completes in order.
            VmemOp::Invalidate if self.family == ProcessorFamily::Rdna4 => Counter::Load,
            VmemOp::Invalidate => return,
        };
        let stores = matches!(op, VmemOp::Store(_) | VmemOp::Atomic { .. });
        self.start(counter, operands, false, stores && counter == Counter::Store);
        if instruction.encoding == Encoding::Flat {
            // The address decides between memory and LDS, so both counters count. Both complete in
            // order since RDNA 1 (`hasFlatLgkmVMemCountInOrder` of LLVM's AMDGPU target).
            self.counts[Counter::Lds as usize].issued += 1;
        }
    }

    fn control(&mut self, op: SaluOp, immediate: u16) -> Result<(), FaultKind> {
        let wait = |counts: &mut [Count; 4], counter: Counter, left: u16| {
            counts[counter as usize].wait(left.into());
        };
        let counts = &mut self.counts;
        match op {
            SaluOp::Waitcnt => {
                for (name, left, most) in wait_fields(immediate, self.family) {
                    match name {
                        _ if left == most => {}
                        "vmcnt" => wait(counts, Counter::Load, left),
                        "lgkmcnt" => wait(counts, Counter::Lds, left),
                        _ => {}
                    }
                }
            }
            SaluOp::WaitcntVscnt | SaluOp::WaitStorecnt => wait(counts, Counter::Store, immediate),
            SaluOp::WaitLoadcnt => wait(counts, Counter::Load, immediate),
            SaluOp::WaitDscnt => wait(counts, Counter::Lds, immediate),
            SaluOp::WaitKmcnt => wait(counts, Counter::Scalar, immediate),
            SaluOp::WaitLoadcntDscnt => {
                wait(counts, Counter::Load, immediate >> 8 & 63);
                wait(counts, Counter::Lds, immediate & 63);
            }
            SaluOp::WaitStorecntDscnt => {
                wait(counts, Counter::Store, immediate >> 8 & 63);
                wait(counts, Counter::Lds, immediate & 63);
            }
            SaluOp::WaitIdle => {
                for count in counts {
                    count.wait(0);
                }
            }
            SaluOp::Barrier | SaluOp::BarrierSignal | SaluOp::BarrierSignalIsfirst => {
                let count = &counts[Counter::Lds as usize];
                if count.last_store > count.complete {
                    return Err(FaultKind::UnawaitedStore);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Returns true if an instruction writes a vector register without reading it.
fn is_destination(instruction: &Instruction, register: u16) -> bool {
    let reads = Operands::of(instruction).reads;
    !reads.iter().any(|read| read.vector && read.iter().contains(&register))
}
