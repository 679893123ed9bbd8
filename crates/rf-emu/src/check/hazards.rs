//! Sequences of instructions that the hardware executes wrongly, so that compilers must separate
//! them. They are found once per kernel, on every path from one instruction to the other.
//!
//! The rules are those of LLVM's hazard recogniser for waves of 32 lanes; the names are its names.

use std::collections::{HashMap, HashSet, VecDeque};

use super::operands::{Operands, Registers};
use crate::isa::instruction::{Encoding, register};
use crate::isa::op::{AtomicOp, Op, SaluOp, ValuOp, VmemOp};
use crate::isa::{Arch, Instruction, ProcessorFamily};

/// The instruction of a kernel that must not follow another one, by its place.
pub(crate) type Hazards = HashMap<u32, Hazard>;

/// A hazard of an instruction with an earlier one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hazard {
    pub(crate) name: &'static str,
    pub(crate) rule: &'static str,
    /// The place of the earlier instruction.
    pub(crate) other: u32,
}

/// An instruction of a kernel.
#[derive(Debug)]
pub(crate) struct FlowNode<'a> {
    pub(crate) instruction: &'a Instruction,
    pub(crate) operands: &'a Operands,
    /// The places that follow.
    pub(crate) next: [Option<u32>; 2],
}

/// The search for the second instruction of a hazard.
enum Step<S> {
    Hazard,
    /// The hardware has caught up.
    Safe,
    On(S),
}

/// The places of a kernel; `None` where nothing could be decoded.
struct Code<'a> {
    arch: Arch,
    places: &'a [Option<FlowNode<'a>>],
    found: Hazards,
}

/// Finds the hazards that each compiler for the family separates.
pub(crate) fn find(arch: Arch, places: &[Option<FlowNode<'_>>]) -> Hazards {
    let mut code = Code { arch, places, found: Hazards::new() };
    for (at, place) in (0..).zip(places) {
        let Some(place) = place else { continue };
        match place.instruction.op {
            Op::Valu(op) if code.has_early_transcendentals() && is_transcendental(op) => {
                code.transcendental(at, place.operands);
            }
            Op::Valu(ValuOp::MadU64U32 | ValuOp::MadI64I32) if code.has_early_transcendentals() => {
                code.wide_multiplication(at, place.operands);
            }
            Op::Valu(_) if is_matrix(place.instruction) => code.matrix(at, place.operands),
            Op::Compare(compare) if compare.to_exec && arch.family() != ProcessorFamily::Rdna2 => {
                code.compare_to_exec(at);
            }
            Op::Vmem(VmemOp::Atomic { op, .. }) if arch.family() == ProcessorFamily::Rdna2 => {
                if matches!(op, AtomicOp::AddF | AtomicOp::MinF | AtomicOp::MaxF) {
                    code.float_atomic(at);
                }
            }
            _ => {}
        }
    }
    code.found
}

/// Finds reads of scalar registers that RDNA 4 may answer with an old value.
pub(crate) fn find_scalar_reads(arch: Arch, places: &[Option<FlowNode<'_>>]) -> Hazards {
    let mut code = Code { arch, places, found: Hazards::new() };
    if arch.family() == ProcessorFamily::Rdna4 {
        let read_before = code.pairs_read_before();
        for (at, place) in (0..).zip(places) {
            let Some(place) = place else { continue };
            let writes = place.operands.writes.iter().filter(|registers| !registers.vector);
            for registers in writes.filter(|_| is_scalar(place.instruction)) {
                if read_before[at as usize] & pairs(*registers) != 0 {
                    code.scalar_write(at, *registers);
                }
            }
        }
    }
    code.found
}

impl Code<'_> {
    /// gfx1100 to gfx1103, but not gfx1150 and later.
    fn has_early_transcendentals(&self) -> bool {
        self.arch.family() == ProcessorFamily::Rdna3
            && !matches!(self.arch, Arch::Gfx1150 | Arch::Gfx1151)
    }

    /// Follows all paths from an instruction, and notes the hazards that `step` finds.
    fn follow<S: Copy + Eq + std::hash::Hash>(
        &mut self,
        from: u32,
        start: S,
        (name, rule): (&'static str, &'static str),
        mut step: impl FnMut(S, &FlowNode<'_>) -> Step<S>,
    ) {
        let mut seen = HashSet::new();
        let mut open = vec![(from, start)];
        let mut is_first = true;
        while let Some((at, state)) = open.pop() {
            let Some(place) = self.places.get(at as usize).and_then(Option::as_ref) else {
                continue;
            };
            let state = match if is_first { Step::On(state) } else { step(state, place) } {
                Step::On(state) => state,
                Step::Safe => continue,
                Step::Hazard => {
                    self.found.entry(at).or_insert(Hazard { name, rule, other: from });
                    continue;
                }
            };
            is_first = false;
            open.extend(
                place
                    .next
                    .iter()
                    .flatten()
                    .map(|&next| (next, state))
                    .filter(|&next| seen.insert(next)),
            );
        }
    }

    fn transcendental(&mut self, at: u32, operands: &Operands) {
        let rule = (
            "VALUTransUse",
            "a result of the transcendental unit is used by one of the next vector instructions; \
             s_waitcnt_depctr va_vdst(0) must stand between",
        );
        self.follow(at, (0, 0), rule, |(vector, transcendental), place| {
            let op = place.instruction.op;
            if waits_for_vector_results(place.instruction) {
                return Step::Safe;
            }
            if !is_vector(op) {
                return Step::On((vector, transcendental));
            }
            if overlap(&operands.writes, &place.operands.reads) {
                return Step::Hazard;
            }
            let counts_twice = matches!(op, Op::Valu(op) if is_transcendental(op));
            let (vector, transcendental) = (vector + 1, transcendental + u32::from(counts_twice));
            if vector > 5 || transcendental > 1 || overlap(&operands.writes, &place.operands.writes)
            {
                return Step::Safe;
            }
            Step::On((vector, transcendental))
        });
    }

    fn wide_multiplication(&mut self, at: u32, operands: &Operands) {
        // Compilers leave anything in the upper half of the addend, the last operand.
        let lower = |registers: &Registers| Registers { count: 1, ..*registers };
        let reads: Vec<_> = operands.reads.iter().map(lower).collect();
        let mut results = operands.writes.clone();
        // The scalar register of the carry may be an operand.
        results.retain(|registers| registers.vector);
        if overlap(&results, &reads) {
            let (name, rule) = ("MADIntraFwdBug", "the result overlaps an operand");
            self.found.insert(at, Hazard { name, rule, other: at });
        }
    }

    fn matrix(&mut self, at: u32, operands: &Operands) {
        let rule = (
            "WMMA",
            "the first or second operand is the result of the matrix instruction before; v_nop or \
             another vector instruction must stand between",
        );
        self.follow(at, (), rule, |(), place| {
            if !is_vector(place.instruction.op) {
                return Step::On(());
            }
            let factors = &place.operands.reads[..place.operands.reads.len().min(2)];
            let uses = is_matrix(place.instruction) && overlap(&operands.writes, factors);
            if uses { Step::Hazard } else { Step::Safe }
        });
    }

    fn compare_to_exec(&mut self, at: u32) {
        let rule = (
            "VcmpxPermlane",
            "a permutation follows a comparison that writes EXEC; a vector instruction other than \
             v_nop must stand between",
        );
        self.follow(at, (), rule, |(), place| match place.instruction.op {
            Op::Valu(
                ValuOp::Permlane16B32
                | ValuOp::Permlanex16B32
                | ValuOp::Permlane16VarB32
                | ValuOp::Permlanex16VarB32
                | ValuOp::Permlane64B32,
            ) => Step::Hazard,
            Op::Valu(ValuOp::Nop) => Step::On(()),
            Op::Valu(_) | Op::Compare(_) => Step::Safe,
            _ => Step::On(()),
        });
    }

    fn float_atomic(&mut self, at: u32) {
        let rule = (
            "FPAtomicToDenormMode",
            "s_denorm_mode follows an atomic update of floats; three other instructions, a vector \
             instruction or a wait must stand between",
        );
        self.follow(at, 0, rule, |between, place| {
            let Op::Salu(op) = place.instruction.op else {
                let is_vector = is_vector(place.instruction.op);
                return if is_vector || between >= 2 { Step::Safe } else { Step::On(between + 1) };
            };
            match op {
                SaluOp::DenormMode => Step::Hazard,
                SaluOp::Waitcnt | SaluOp::WaitcntVscnt | SaluOp::WaitIdle => Step::Safe,
                _ => {
                    let is_nop = op == SaluOp::Nop;
                    let states = if is_nop { place.instruction.immediate & 15 } else { 0 };
                    let between = between + 1 + states;
                    if between >= 3 { Step::Safe } else { Step::On(between) }
                }
            }
        });
    }

    fn scalar_write(&mut self, at: u32, written: Registers) {
        let rule = (
            "VALUReadSGPR",
            "a scalar register that a vector instruction has read is written by the scalar unit and \
             read again; s_wait_alu sa_sdst(0) must stand between",
        );
        let written = [written];
        self.follow(at, 0, rule, |between, place| {
            let instruction = place.instruction;
            let is_wait = instruction.op == Op::Salu(SaluOp::WaitAlu);
            if is_wait && instruction.immediate & 1 == 0 {
                return Step::Safe;
            }
            let counts = is_scalar(instruction) && instruction.encoding != Encoding::Sopp;
            if !counts && !is_vector(instruction.op) {
                return Step::On(between);
            }
            if overlap(&written, &place.operands.reads) {
                return Step::Hazard;
            }
            let between = between + u32::from(counts);
            let is_over = between >= if counts { 10 } else { 11 };
            if is_over || overlap(&written, &place.operands.writes) {
                return Step::Safe;
            }
            Step::On(between)
        });
    }

    /// The pairs of scalar registers that a vector instruction may have read before each place.
    fn pairs_read_before(&self) -> Vec<u64> {
        let mut before = vec![0; self.places.len()];
        let mut open: VecDeque<_> = (0..self.places.len()).collect();
        while let Some(at) = open.pop_front() {
            let Some(place) = &self.places[at] else { continue };
            let mut after = before[at];
            if is_vector(place.instruction.op) {
                let reads = place.operands.reads.iter().filter(|registers| !registers.vector);
                after |= reads.fold(0, |all, registers| all | pairs(*registers));
            }
            for &next in place.next.iter().flatten() {
                let next = next as usize;
                if before.get(next).is_some_and(|&before| before | after != before) {
                    before[next] |= after;
                    open.push_back(next);
                }
            }
        }
        before
    }
}

/// A bit per pair of general scalar registers, VCC among them.
fn pairs(registers: Registers) -> u64 {
    let general = registers.iter().filter(|&at| at < register::NULL.into());
    general.fold(0, |pairs, at| pairs | 1 << (at / 2))
}

fn overlap(some: &[Registers], others: &[Registers]) -> bool {
    some.iter().any(|a| {
        others.iter().any(|b| {
            a.vector == b.vector && a.first < b.first + b.count && b.first < a.first + a.count
        })
    })
}

fn is_vector(op: Op) -> bool {
    matches!(op, Op::Valu(_) | Op::Compare(_))
}

fn is_scalar(instruction: &Instruction) -> bool {
    matches!(instruction.op, Op::Salu(_))
}

fn is_matrix(instruction: &Instruction) -> bool {
    instruction.name.starts_with("v_wmma")
}

fn is_transcendental(op: ValuOp) -> bool {
    matches!(
        op,
        ValuOp::ExpF32
            | ValuOp::LogF32
            | ValuOp::RcpF32
            | ValuOp::RcpIflagF32
            | ValuOp::RsqF32
            | ValuOp::SqrtF32
            | ValuOp::SinF32
            | ValuOp::CosF32
            | ValuOp::RcpF64
            | ValuOp::RsqF64
            | ValuOp::SqrtF64
            | ValuOp::RcpF16
            | ValuOp::SqrtF16
            | ValuOp::RsqF16
            | ValuOp::LogF16
            | ValuOp::ExpF16
            | ValuOp::SinF16
            | ValuOp::CosF16
    )
}

/// Memory instructions wait for vector results that they might use; so does the explicit wait.
fn waits_for_vector_results(instruction: &Instruction) -> bool {
    match instruction.op {
        Op::Vmem(_) | Op::Ds(_) => true,
        Op::Salu(SaluOp::WaitAlu) => matches!(instruction.immediate >> 12 & 15, 0),
        _ => false,
    }
}
