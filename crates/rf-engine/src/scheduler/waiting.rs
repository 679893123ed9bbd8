//! Sequences that wait for a slot and pages, and whose turn it is.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use crate::scheduler::request::{GroupId, RequestId};
use crate::scheduler::sequence::{Rank, Sequence};

/// Waiting sequences. Only those that came with a session hold pages.
#[derive(Default)]
pub(super) struct Waiting {
    groups: HashMap<GroupId, Group>,
    /// Sequences whose request has not started.
    num_queued: usize,
    /// Sequences whose request has started.
    num_preempted: usize,
    /// The latest turn.
    latest_turn: u64,
}

/// The waiting sequences of a group, at least one.
struct Group {
    /// Groups with the same number of running sequences take turns in this order. A group that
    /// starts a sequence goes behind all others.
    turn: u64,
    sequences: BTreeMap<Rank, Sequence>,
}

/// The order of groups that have the same priority and number of running sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// By turn.
    Turn,
    /// The shortest rest of a prompt first.
    Length,
}

/// The place of a group in the order of service: the least is served first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) priority: Reverse<i32>,
    /// Sequences of the group that run.
    pub(super) running: usize,
    /// Uncomputed tokens of the first sequence; 0 in the order of turns.
    pub(super) tokens: usize,
    turn: u64,
    pub(super) group: GroupId,
}

impl Waiting {
    /// Number of sequences.
    pub(super) fn len(&self) -> usize {
        self.num_queued + self.num_preempted
    }

    /// Number of sequences whose request has started.
    pub(super) fn num_preempted(&self) -> usize {
        self.num_preempted
    }

    /// Takes back the pages of all sequences. Returns false if there are none.
    pub(super) fn release(&mut self) -> bool {
        let mut had_pages = false;
        let sequences = self.groups.values_mut().flat_map(|group| group.sequences.values_mut());
        for sequence in sequences.filter(|sequence| !sequence.session.is_empty()) {
            sequence.release();
            had_pages = true;
        }
        had_pages
    }

    /// Adds a sequence. One that waited before keeps its turn.
    pub(super) fn insert(&mut self, mut sequence: Sequence) {
        if sequence.turn == 0 {
            self.latest_turn += 1;
            sequence.turn = self.latest_turn;
        }
        *self.count(sequence.is_queued) += 1;
        let new = || Group { turn: sequence.turn, sequences: BTreeMap::new() };
        let group = self.groups.entry(sequence.group).or_insert_with(new);
        group.sequences.insert(sequence.rank, sequence);
    }

    /// The group that is served next, of those with fewer than `most` running sequences. `running`
    /// has the numbers that are not 0.
    pub(super) fn next(
        &self,
        order: Order,
        running: &HashMap<GroupId, usize>,
        most: usize,
    ) -> Option<Place> {
        let places = self.groups.iter().filter_map(|(&id, group)| {
            let (rank, first) = group.sequences.first_key_value()?;
            let tokens = match order {
                Order::Turn => 0,
                Order::Length => first.uncomputed_tokens(),
            };
            let running = running.get(&id).copied().unwrap_or(0);
            Some(Place { priority: rank.priority, running, tokens, turn: group.turn, group: id })
        });
        places.filter(|place| place.running < most).min()
    }

    /// Removes the first sequence of a group.
    pub(super) fn take(&mut self, id: GroupId) -> Option<Sequence> {
        let group = self.groups.get_mut(&id)?;
        let (_, mut sequence) = group.sequences.pop_first()?;
        sequence.turn = group.turn;
        if group.sequences.is_empty() {
            self.groups.remove(&id);
        }
        *self.count(sequence.is_queued) -= 1;
        Some(sequence)
    }

    /// Notes that a sequence of a group has started: it is the turn of the others.
    pub(super) fn pass_turn(&mut self, id: GroupId) {
        if let Some(group) = self.groups.get_mut(&id) {
            self.latest_turn += 1;
            group.turn = self.latest_turn;
        }
    }

    /// Removes all sequences of a request.
    pub(super) fn remove(&mut self, id: RequestId) -> Vec<Sequence> {
        let mut removed = Vec::new();
        self.groups.retain(|_, group| {
            let of_request = group.sequences.extract_if(.., |rank, _| rank.request == id);
            removed.extend(of_request.map(|(_, sequence)| sequence));
            !group.sequences.is_empty()
        });
        for sequence in &removed {
            *self.count(sequence.is_queued) -= 1;
        }
        removed
    }

    fn count(&mut self, is_queued: bool) -> &mut usize {
        if is_queued { &mut self.num_queued } else { &mut self.num_preempted }
    }
}
