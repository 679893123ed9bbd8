//! Sequences that wait for a slot and pages.

use std::collections::BTreeMap;

use crate::scheduler::request::RequestId;
use crate::scheduler::sequence::{Rank, Sequence};

/// Waiting sequences by rank. Only those that came with a session hold pages.
#[derive(Default)]
pub(super) struct Waiting {
    /// First sequences of requests that have not started.
    queued: BTreeMap<Rank, Sequence>,
    /// Sequences of requests that have started.
    preempted: BTreeMap<Rank, Sequence>,
}

impl Waiting {
    /// Number of sequences.
    pub(super) fn len(&self) -> usize {
        self.queued.len() + self.preempted.len()
    }

    /// Number of sequences whose request has started.
    pub(super) fn num_preempted(&self) -> usize {
        self.preempted.len()
    }

    /// Takes back the pages of all sequences. Returns false if there are none.
    pub(super) fn release(&mut self) -> bool {
        let mut had_pages = false;
        for sequence in self.queued.values_mut().filter(|sequence| !sequence.session.is_empty()) {
            sequence.release();
            had_pages = true;
        }
        had_pages
    }

    /// Adds the first sequence of a request that has not started.
    pub(super) fn insert_queued(&mut self, sequence: Sequence) {
        self.queued.insert(sequence.rank, sequence);
    }

    /// Adds a sequence of a request that has started.
    pub(super) fn insert_preempted(&mut self, sequence: Sequence) {
        self.preempted.insert(sequence.rank, sequence);
    }

    /// Removes the first sequence of all.
    pub(super) fn pop_first(&mut self) -> Option<Sequence> {
        let first = |map: &BTreeMap<Rank, Sequence>| map.first_key_value().map(|(rank, _)| *rank);
        let map = match (first(&self.queued), first(&self.preempted)) {
            (Some(queued), Some(preempted)) if queued < preempted => &mut self.queued,
            (_, Some(_)) => &mut self.preempted,
            (_, None) => &mut self.queued,
        };
        map.pop_first().map(|(_, sequence)| sequence)
    }

    /// Removes all sequences of a request.
    pub(super) fn remove(&mut self, id: RequestId) -> Vec<Sequence> {
        let [queued, preempted] = [&mut self.queued, &mut self.preempted]
            .map(|map| map.extract_if(.., |rank, _| rank.request == id));
        queued.chain(preempted).map(|(_, sequence)| sequence).collect()
    }
}
