//! Recurrent states in host memory: those that the prefix cache has no page for on the device.

use rf_graph::Executor;
use rf_kv::{PageGroup, PagePool, StateMove};

use crate::error::Error;

/// The contents of the slots that a pool counts ([`PagePool::with_state_slots`]).
#[derive(Default)]
pub(super) struct HostStates {
    slots: Vec<Vec<u8>>,
}

impl HostStates {
    /// Bytes of the states.
    pub(super) fn bytes(&self) -> u64 {
        self.slots.iter().map(|slot| slot.capacity() as u64).sum()
    }

    /// Copies states between pages and host memory, as the pool says. States that the backend does
    /// not read are not kept.
    ///
    /// # Errors
    ///
    /// If the backend does not write states: those of a sequence are missing then.
    pub(super) fn follow(
        &mut self,
        pool: &mut PagePool,
        executor: &mut dyn Executor,
    ) -> Result<(), Error> {
        for each in pool.take_state_moves() {
            match each {
                StateMove::Store { from, slot } => {
                    if self.slots.len() <= slot.index() {
                        self.slots.resize(slot.index() + 1, Vec::new());
                    }
                    let bytes = &mut self.slots[slot.index()];
                    bytes.clear();
                    if let Err(error) = executor.read_page(PageGroup::State, from, bytes) {
                        tracing::debug!(%error, "states are not kept in host memory");
                        pool.forget_stored(slot);
                    }
                }
                StateMove::Load { slot, to } => {
                    executor.write_page(PageGroup::State, to, &self.slots[slot.index()])?;
                }
            }
        }
        Ok(())
    }
}
