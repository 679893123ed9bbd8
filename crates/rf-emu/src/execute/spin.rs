//! Recognises workgroups that wait in a loop for another one.

use super::residency::Wait;
use super::wave::Wave;
use super::workgroup::{Running, Workgroup};
use crate::fault::Fault;
use crate::isa::op::Op;

/// The instructions in which a loop that waits has come back to where it was.
const WATCHED: u32 = 2048;

impl Workgroup<'_> {
    /// Runs each wave for a while. Returns the place of a wave if each of them that can run came
    /// back to a state in which it was, and changed no memory.
    pub(super) fn watch(&mut self, waves: &mut [Running]) -> Result<Option<Wait>, Fault> {
        self.changed = false;
        let mut wait = None;
        let mut others_run = false;
        for (number, running) in waves.iter_mut().enumerate() {
            if !running.is_ready() {
                continue;
            }
            match self.repeats(running, number as u32)? {
                Some(slot) => {
                    wait.get_or_insert(Wait { wave: number as u32, slot });
                }
                None => others_run = true,
            }
        }
        self.release(waves)?;
        Ok(wait.filter(|_| !others_run && !self.changed))
    }

    /// Returns the last access to memory if the wave returns to a state in which it was.
    fn repeats(&mut self, running: &mut Running, number: u32) -> Result<Option<u32>, Fault> {
        let mut before: Option<(u32, Wave)> = None;
        let mut access = running.slot;
        let mut jumps = 0u32;
        for _ in 0..WATCHED {
            let slots = &self.program.slots;
            let slot = running.slot;
            let op = slots.get(slot as usize).and_then(|slot| slot.instruction.as_ref().ok());
            if op.is_some_and(|instruction| matches!(instruction.op, Op::Vmem(_) | Op::Ds(_))) {
                access = slot;
            }
            let offset = |slot: u32| slots.get(slot as usize).map_or(0, |slot| slot.offset);
            let from = offset(slot);
            self.turn(running, number, 1)?;
            if !running.is_ready() || self.changed {
                return Ok(None);
            }
            if offset(running.slot) > from {
                continue;
            }
            if let Some((slot, wave)) = &before
                && *slot == running.slot
                && *wave == running.wave
            {
                return Ok(Some(access));
            }
            // The first loop that comes back may be within the one that waits.
            jumps += 1;
            if jumps.is_power_of_two() {
                before = Some((running.slot, running.wave.clone()));
            }
        }
        Ok(None)
    }
}
