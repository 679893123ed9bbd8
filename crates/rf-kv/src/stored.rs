//! Recurrent states of the prefix cache that a store outside of the pool holds, because the pages
//! of the device do not suffice.

use std::collections::HashMap;

use crate::idle::IdlePages;
use crate::page::PageId;

/// A place for the states of one sequence in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StateSlot(u32);

impl StateSlot {
    /// The index in the store.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A command for the owner of the pages and of the store: see
/// [`PagePool::take_state_moves`](crate::PagePool::take_state_moves).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateMove {
    /// Copy a page of [`PageGroup::State`](crate::PageGroup::State) to the store.
    Store {
        /// The page, which is written next.
        from: PageId,
        /// The place, whose contents are replaced.
        slot: StateSlot,
    },
    /// Copy states from the store to a page.
    Load {
        /// The place, whose contents stay.
        slot: StateSlot,
        /// The page.
        to: PageId,
    },
}

/// The slots of a store, and the nodes of the prefix cache whose states they hold.
#[derive(Debug)]
pub(crate) struct StoredStates {
    /// The slot of each node, by its id.
    slots: HashMap<u64, StateSlot>,
    /// The id of the node of each slot.
    nodes: Vec<Option<u64>>,
    free: Vec<StateSlot>,
    /// The slots with states, in the order of their last use.
    used: IdlePages,
    moves: Vec<StateMove>,
    pub(crate) stores: u64,
    pub(crate) loads: u64,
}

impl StoredStates {
    /// A store of `num_slots` states, at most as many as 32-bit ids can name.
    pub(crate) fn new(num_slots: usize) -> Self {
        let count = u32::try_from(num_slots).unwrap_or(u32::MAX);
        Self {
            slots: HashMap::new(),
            nodes: vec![None; count as usize],
            free: (0..count).rev().map(StateSlot).collect(),
            used: IdlePages::new(count as usize),
            moves: Vec::new(),
            stores: 0,
            loads: 0,
        }
    }

    /// The number of nodes whose states are stored.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns true if the states of a node are stored.
    pub(crate) fn contains(&self, node: u64) -> bool {
        self.slots.contains_key(&node)
    }

    /// Stores the states of a node from a page, instead of those that were not used for longest.
    pub(crate) fn store(&mut self, node: u64, from: PageId) {
        if let Some(slot) = self.slots.get(&node) {
            return self.used.touch(PageId::new(slot.0));
        }
        let slot = self.free.pop().or_else(|| {
            let slot = StateSlot(self.used.pop_oldest()?.raw());
            let node = self.nodes[slot.index()].take();
            node.and_then(|node| self.slots.remove(&node));
            Some(slot)
        });
        let Some(slot) = slot else { return };
        self.slots.insert(node, slot);
        self.nodes[slot.index()] = Some(node);
        self.used.push(PageId::new(slot.0));
        self.moves.push(StateMove::Store { from, slot });
        self.stores += 1;
    }

    /// Takes the slot of a node out of the order of use, so that [`store`](Self::store) leaves it
    /// alone until [`load`](Self::load).
    pub(crate) fn pin(&mut self, node: u64) -> Option<StateSlot> {
        let slot = *self.slots.get(&node)?;
        self.used.remove(PageId::new(slot.0));
        Some(slot)
    }

    /// Ends [`pin`](Self::pin), and copies the states to a page, if one is given.
    pub(crate) fn load(&mut self, slot: StateSlot, to: Option<PageId>) {
        self.used.push(PageId::new(slot.0));
        if let Some(to) = to {
            self.moves.push(StateMove::Load { slot, to });
            self.loads += 1;
        }
    }

    /// Forgets the states of a node.
    pub(crate) fn remove(&mut self, node: u64) {
        if let Some(slot) = self.slots.remove(&node) {
            self.nodes[slot.index()] = None;
            self.used.remove(PageId::new(slot.0));
            self.free.push(slot);
        }
    }

    /// Forgets the states in a slot.
    pub(crate) fn clear(&mut self, slot: StateSlot) {
        if let Some(node) = self.nodes.get(slot.index()).copied().flatten() {
            self.remove(node);
        }
    }

    pub(crate) fn take_moves(&mut self) -> Vec<StateMove> {
        std::mem::take(&mut self.moves)
    }
}
