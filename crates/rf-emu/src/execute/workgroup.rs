//! One workgroup: its waves run alternately on one thread.

use super::control::{self, Flow};
use super::options::{Counters, Options, Random};
use super::program::Program;
use super::residency::Wait;
use super::share::Lds;
use super::slot::NO_SLOT;
use super::wave::{FloatMode, Wave};
use super::{run, scalar, vector};
use crate::check::Checks;
use crate::check::global::{GlobalShadow, WorkgroupClock};
use crate::check::hazards::Hazards;
use crate::check::race::Accessor;
use crate::check::unwritten::{Holes, Written};
use crate::check::waits::Waits;
use crate::fault::{Fault, FaultKind, FaultPlace, Problem};
use crate::isa::instruction::{Encoding, Operand};
use crate::isa::op::{Access, DsOp, Op, VmemOp};
use crate::{Hint, Ranges};

/// The longest turn of a wave in instructions.
const TURN: u64 = 4096;

/// The instructions of a workgroup before it is watched for the first time, and the most between
/// two times.
const FIRST_WATCH: u64 = 1 << 14;
const LAST_WATCH: u64 = 1 << 18;
/// A workgroup that changes no memory in so many watches in a row lets others run.
const PATIENCE: u32 = 16;

/// A wave and its place in the program.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) wave: Wave,
    pub(super) slot: u32,
    state: State,
    /// The numbers of barriers at which the wave has arrived and which it has passed.
    signals: u32,
    waits: u32,
    executed: u64,
    pub(super) written: Option<Written>,
    pending: Option<Waits>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    /// Waits for the others; the slot is that of the barrier.
    Waiting,
    Ended,
}

/// A workgroup in execution, with what its thread reuses.
#[derive(Debug)]
pub(crate) struct Workgroup<'a> {
    pub(super) program: &'a Program,
    pub(super) options: &'a Options,
    pub(super) checks: Checks,
    pub(super) ranges: &'a Ranges,
    pub(super) hint: Hint,
    pub(super) lds: Lds,
    pub(super) counters: Counters,
    pub(super) id: [u32; 3],
    /// The accesses of the launch to global memory, and what this workgroup knows of them.
    pub(super) shadow: Option<&'a GlobalShadow>,
    pub(super) clock: WorkgroupClock,
    /// The first load that raced, until its value is used.
    pub(super) raced: Option<FaultKind>,
    /// The bytes of the last vector load from global memory that were never written.
    pub(super) holes: Vec<Holes>,
    /// True if a store or an atomic update changed memory since it was set to false.
    pub(super) changed: bool,
    /// The instructions that must not be reached.
    pub(super) hazards: Vec<&'a Hazards>,
    pub(super) random: Random,
}

/// How far the waves of a workgroup ran.
#[derive(Debug)]
pub(super) enum WorkgroupOutcome {
    Ended,
    /// They wait for another workgroup, or run long without a store.
    Waits(Option<Wait>),
}

impl Running {
    pub(super) fn new(mut wave: Wave, program: &Program, checks: Checks) -> Self {
        if checks.uninitialised {
            wave.scratch_written = vec![false; wave.scratch.len()];
        }
        Self {
            wave,
            slot: program.entry,
            state: State::Ready,
            signals: 0,
            waits: 0,
            executed: 0,
            written: checks.uninitialised.then(Written::new),
            pending: checks.waits.then(|| Waits::new(program.arch.family())),
        }
    }

    /// Prepares for another workgroup.
    pub(super) fn reset(&mut self, entry: u32, mode: FloatMode) {
        self.wave.reset(mode);
        self.slot = entry;
        self.state = State::Ready;
        (self.signals, self.waits, self.executed) = (0, 0, 0);
        if let Some(written) = &mut self.written {
            written.reset();
        }
        if let Some(pending) = &mut self.pending {
            pending.reset();
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.state == State::Ready
    }
}

impl Workgroup<'_> {
    /// Runs the waves to their ends, or until they wait for another workgroup. `waited` if they did
    /// before. Also returns whether memory changed.
    pub(super) fn run(
        &mut self,
        waves: &mut [Running],
        waited: bool,
    ) -> Result<(WorkgroupOutcome, bool), Fault> {
        let mut until_watch = if waited { 0 } else { FIRST_WATCH };
        let mut executed = 0;
        let mut changed = false;
        let mut unchanged_watches = 0;
        self.changed = false;
        loop {
            if executed >= until_watch {
                let changed_before = self.changed;
                let wait = self.watch(waves)?;
                let changes = changed_before || self.changed;
                changed |= changes;
                unchanged_watches = if changes { 0 } else { unchanged_watches + 1 };
                if wait.is_some() || unchanged_watches == PATIENCE {
                    return Ok((WorkgroupOutcome::Waits(wait), changed));
                }
                self.changed = false;
                executed = 0;
                until_watch = (until_watch * 2).clamp(FIRST_WATCH, LAST_WATCH);
            }
            let ready = waves.iter().filter(|wave| wave.state == State::Ready).count();
            if ready == 0 {
                if waves.iter().all(|wave| wave.state == State::Ended) {
                    return Ok((WorkgroupOutcome::Ended, changed || self.changed));
                }
                self.release(waves)?;
                continue;
            }
            let chosen = self.random.below(ready);
            let chosen = waves
                .iter_mut()
                .enumerate()
                .filter(|(_, wave)| wave.state == State::Ready)
                .nth(chosen);
            let Some((number, wave)) = chosen else { continue };
            let turn =
                if self.options.seed == 0 { TURN } else { 1 + self.random.below(256) as u64 };
            let before = wave.executed;
            self.turn(wave, number as u32, turn)?;
            executed += wave.executed - before;
            self.release(waves)?;
        }
    }

    /// Lets the waves pass whose barrier is complete.
    pub(super) fn release(&mut self, waves: &mut [Running]) -> Result<(), Fault> {
        let live = || waves.iter().filter(|wave| wave.state != State::Ended);
        let Some(arrived) = live().map(|wave| wave.signals).min() else { return Ok(()) };
        let mut waiting = waves.iter().enumerate().filter(|(_, wave)| wave.state == State::Waiting);
        let Some((first, wave)) = waiting.next() else { return Ok(()) };
        let (slot, target) = (wave.slot, wave.waits + 1);
        if self.checks.barriers {
            // A wave that signalled and passed may end before another one begins to wait.
            let is_missing = |wave: &Running| wave.state == State::Ended && wave.signals < target;
            let ended = waves.iter().position(is_missing);
            let other = waiting.find(|(_, wave)| wave.slot != slot && wave.waits + 1 == target);
            let reason = match (ended, other) {
                (Some(ended), _) => Some(format!("wave {ended} ended while wave {first} waits")),
                (None, Some((other, wave))) if arrived >= target => {
                    let place = |slot: u32| self.program.slots[slot as usize].offset;
                    let (here, there) = (place(slot), place(wave.slot));
                    Some(format!("wave {first} waits at {here:#x}, wave {other} at {there:#x}"))
                }
                _ => None,
            };
            if let Some(reason) = reason {
                return Err(self.fault(&FaultKind::Barrier(reason).into(), slot, first as u32));
            }
        }
        let mut passed = false;
        for wave in waves.iter_mut() {
            if wave.state == State::Waiting && arrived > wave.waits {
                wave.waits += 1;
                wave.state = State::Ready;
                wave.slot = self.program.slots[wave.slot as usize].next;
                passed = true;
            }
        }
        let is_stuck = !passed && waves.iter().all(|wave| wave.state != State::Ready);
        if is_stuck {
            return Err(self.fault(&FaultKind::Deadlock.into(), slot, first as u32));
        }
        Ok(())
    }

    /// Runs a wave until it waits, ends or its turn is over.
    pub(super) fn turn(
        &mut self,
        running: &mut Running,
        number: u32,
        turn: u64,
    ) -> Result<(), Fault> {
        let limit = self.options.max_instructions;
        let mut left = turn;
        while left > 0 {
            let slot = running.slot;
            if let Some(length) = self.run_of_simple(running) {
                left = left.saturating_sub(length);
                if running.executed >= limit {
                    let kind = FaultKind::InstructionLimit { limit };
                    return Err(self.fault(&kind.into(), slot, number));
                }
                continue;
            }
            left -= 1;
            let flow =
                self.step(running, number).map_err(|problem| self.fault(&problem, slot, number))?;
            running.executed += 1;
            match flow {
                Flow::To(next) => running.slot = next,
                Flow::ToAddress(offset) => {
                    running.slot = self.program.slot_of(offset);
                    if running.slot == NO_SLOT {
                        let kind = FaultKind::Escaped { address: offset };
                        return Err(self.fault(&kind.into(), slot, number));
                    }
                }
                Flow::Signal => {
                    running.signals += 1;
                    running.slot = self.program.slots[slot as usize].next;
                }
                Flow::Barrier | Flow::Wait => {
                    running.signals += u32::from(flow == Flow::Barrier);
                    running.state = State::Waiting;
                    break;
                }
                Flow::End => {
                    running.state = State::Ended;
                    break;
                }
            }
            if flow.is_lost() {
                let address = self.program.slots[slot as usize].offset;
                return Err(self.fault(&FaultKind::Escaped { address }.into(), slot, number));
            }
            if running.executed >= limit {
                return Err(self.fault(
                    &FaultKind::InstructionLimit { limit }.into(),
                    slot,
                    number,
                ));
            }
        }
        Ok(())
    }

    /// Executes the run that starts at the wave's slot, if there is one and all that its
    /// instructions read is there. Returns their number.
    fn run_of_simple(&mut self, running: &mut Running) -> Option<u64> {
        let program = self.program;
        let first = running.slot as usize;
        // Hazards are looked for at each instruction.
        if !self.hazards.is_empty() {
            return None;
        }
        let run = program.runs.at(running.slot)?;
        let exec = running.wave.exec();
        let follows_lanes = self.checks.lanes || self.checks.uninitialised;
        if run.exchanges && follows_lanes && exec != u32::MAX {
            return None;
        }
        let is_ready = running.pending.as_mut().is_none_or(|pending| pending.allows(&run.touched))
            && running.written.as_ref().is_none_or(|written| written.covers(&run.reads, exec));
        if !is_ready {
            return None;
        }
        let slots = &program.slots[first..first + run.length as usize];
        run::execute(&mut running.wave, run, slots);
        if let Some(written) = &mut running.written {
            written.mark(&run.writes, exec);
        }
        self.counters.count_run(running.slot, run.length, &run.counters);
        running.executed += u64::from(run.length);
        running.slot = run.next;
        Some(run.length.into())
    }

    fn step(&mut self, running: &mut Running, number: u32) -> Result<Flow, Problem> {
        let program = self.program;
        let slot = &program.slots[running.slot as usize];
        let instruction =
            slot.instruction.as_ref().map_err(|error| FaultKind::from(error.clone()))?;
        self.counters.count(running.slot, instruction.op);
        if let Some(hazard) = self.hazards.iter().find_map(|set| set.get(&running.slot)) {
            let other = program.slots[hazard.other as usize].offset;
            return Err(FaultKind::Hazard { name: hazard.name, rule: hazard.rule, other }.into());
        }
        // Before the instruction: an update that returns nothing is itself a store.
        let releases = running.pending.as_ref().is_none_or(Waits::stores_are_complete);
        if let Some(pending) = &mut running.pending {
            pending.step(instruction, &slot.operands)?;
        }
        let exec = running.wave.exec();
        let is_load = matches!(
            instruction.op,
            Op::Vmem(_) | Op::Ds(_) | Op::ScalarLoad(_) | Op::ScalarLoadSmall(_)
        );
        if let (Some(traffic), true) = (&mut self.counters.traffic, is_load) {
            traffic.record(running.slot, &running.wave, instruction);
        }
        if let Some(written) = &mut running.written {
            written.check(&running.wave, instruction, &slot.operands).map_err(|problem| {
                // What raced is marked like what was never written.
                match self.raced.take() {
                    Some(kind) => Problem { kind: Box::new(kind), ..problem },
                    None => problem,
                }
            })?;
            if !is_load {
                written.pass(&running.wave, exec, instruction, &slot.operands, u32::MAX);
            }
        }
        let accessor = Accessor {
            wave: number as u8,
            signals: running.signals,
            waits: running.waits,
            releases,
        };
        let exchanged = match (instruction.op, &running.written) {
            (Op::Ds(op), Some(written)) => written.exchanged(&running.wave, instruction, op),
            _ => None,
        };
        let wave = &mut running.wave;
        let mut loaded = u32::MAX;
        let mut flow = Flow::To(slot.next);
        match instruction.op {
            Op::Valu(_) | Op::Compare(_) => {
                if self.checks.lanes {
                    self.check_lanes(wave, instruction)?;
                }
                vector::execute(wave, instruction).map_err(FaultKind::Unsupported)?;
            }
            Op::Salu(op) => {
                let is_control = instruction.encoding == Encoding::Sopp;
                if is_control || !scalar::execute(wave, instruction, op) {
                    flow = control::execute(wave, slot, instruction, op, program.base)
                        .map_err(FaultKind::Unsupported)?
                        .ok_or(FaultKind::Unsupported("operation"))?;
                }
            }
            Op::ScalarLoad(registers) => {
                let access = Access::Bytes(4);
                let complete = self.scalar_load(wave, instruction, access, registers)?;
                loaded = if complete { u32::MAX } else { 0 };
            }
            Op::ScalarLoadSmall(access) => {
                let complete = self.scalar_load(wave, instruction, access, 1)?;
                loaded = if complete { u32::MAX } else { 0 };
            }
            Op::Vmem(op) => {
                let moved = match &running.written {
                    Some(written) => written.holes(instruction, exec),
                    None => Vec::new(),
                };
                loaded = self.vector_memory(wave, accessor, instruction, op)?;
                self.unwrite(wave, instruction, &moved)?;
            }
            Op::Ds(op) => loaded = self.data_share(wave, accessor, instruction, op)?,
            Op::Time => wave.set_scalar_wide(instruction.dst, self.counters.instructions()),
            Op::ScalarCacheInvalidate | Op::Prefetch => {}
        }
        if let (Some(written), true) = (&mut running.written, is_load) {
            let exec = if matches!(instruction.op, Op::ScalarLoad(_) | Op::ScalarLoadSmall(_)) {
                u32::MAX
            } else if matches!(instruction.op, Op::Ds(DsOp::Permute)) {
                wave.exec()
            } else {
                exec
            };
            let loaded = exchanged.unwrap_or(loaded);
            written.pass(wave, exec, instruction, &slot.operands, loaded);
            if let (Op::Vmem(VmemOp::Load(access)), Operand::Vgpr(dst)) =
                (instruction.op, instruction.dst)
            {
                written.load(dst, access.registers(), &self.holes);
            }
        }
        Ok(flow)
    }

    pub(super) fn fault(&self, problem: &Problem, slot: u32, wave: u32) -> Fault {
        let mut fault = self.program.fault((*problem.kind).clone());
        let address = self.program.slots.get(slot as usize).map_or(0, |slot| slot.offset);
        let source = self.program.lines.lookup(address);
        fault.place = Some(Box::new(FaultPlace {
            address,
            source: source.map(|(file, line)| (file.to_owned(), line)),
            instruction: self.program.text(slot),
            workgroup: self.id,
            wave,
            lane: problem.lane,
        }));
        fault
    }
}
