//! The vector clock of a workgroup: the stores of other workgroups that it has seen.

use std::collections::HashMap;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::access::{AccessRecord, LAST_EPOCH, LoadScope, WriteKind};
use crate::fault::RaceCause;

/// Up to which epoch the accesses of other workgroups are known.
pub(super) type Known = HashMap<u32, u32>;

/// The knowledge of each workgroup, with the epochs from which it had it.
#[derive(Debug, Default)]
pub(super) struct ClockHistory(Mutex<HashMap<u32, Vec<(u32, Known)>>>);

impl ClockHistory {
    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Vec<(u32, Known)>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The epoch of a workgroup, and those of others that it knows.
#[derive(Debug, Default)]
pub(crate) struct WorkgroupClock {
    pub(crate) workgroup: u32,
    epoch: u32,
    /// True during a store whose wave has completed the earlier ones: it has an epoch of its own.
    releasing: bool,
    known: Known,
    /// Seen by atomic updates and loads, effective when the caches are dropped.
    seen: Known,
    /// Seen before the caches of the device, but not yet those of the workgroup, were dropped.
    dropping: Known,
    /// Seen of workgroups that had not waited for their stores.
    unreleased: Known,
}

impl WorkgroupClock {
    pub(crate) fn new(workgroup: u32) -> Self {
        Self { workgroup, epoch: 1, ..Self::default() }
    }

    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// A store begins; `releases` if its wave has completed the earlier ones.
    pub(crate) fn begin_store(&mut self, releases: bool) {
        self.releasing = releases;
        if releases {
            self.begin_epoch();
        }
    }

    /// The store ends.
    pub(crate) fn end_store(&mut self) {
        if self.releasing {
            self.begin_epoch();
        }
        self.releasing = false;
    }

    fn begin_epoch(&mut self) {
        self.epoch = (self.epoch + 1).min(LAST_EPOCH);
    }

    /// Drops the caches between those of workgroups and the memory.
    pub(crate) fn drop_device_caches(&mut self) {
        let seen = mem::take(&mut self.seen);
        raise(&mut self.dropping, seen);
    }

    /// Drops the caches of the workgroup: what was seen before takes effect.
    pub(super) fn acquire(&mut self, history: &ClockHistory) {
        let mut is_new = false;
        for (workgroup, epoch) in self.dropping.drain() {
            let known = self.known.entry(workgroup).or_default();
            is_new |= epoch > *known;
            *known = epoch.max(*known);
        }
        if is_new {
            let mut history = history.lock();
            history.entry(self.workgroup).or_default().push((self.epoch, self.known.clone()));
        }
    }

    /// Publishes what the workgroup did and knows.
    pub(super) fn release(&mut self, published: &mut Known) {
        raise(published, self.known.iter().map(|(&workgroup, &epoch)| (workgroup, epoch)));
        published.insert(self.workgroup, self.epoch);
        self.begin_epoch();
    }

    pub(super) fn see(&mut self, known: &Known, unreleased: &Known) {
        let own = self.workgroup;
        let others = |known: &Known| {
            let known = known.iter().map(|(&workgroup, &epoch)| (workgroup, epoch));
            known.filter(|&(workgroup, _)| workgroup != own).collect::<Vec<_>>()
        };
        raise(&mut self.seen, others(known));
        raise(&mut self.unreleased, others(unreleased));
    }

    /// Sees the value of a store: what its workgroup had completed, and what it knew then.
    pub(super) fn see_store(&mut self, store: AccessRecord, history: &ClockHistory) {
        let AccessRecord { workgroup, epoch, kind, releases, .. } = store;
        if matches!(kind, WriteKind::Plain | WriteKind::Update) || workgroup == self.workgroup {
            return;
        }
        // Without a release of its own, a store comes after the last one that had one, and which
        // may itself not be complete. At the end of counting, nothing is reported.
        let is_known = releases || epoch == LAST_EPOCH;
        let released = if is_known { epoch } else { epoch.saturating_sub(2) };
        raise(&mut self.seen, [(workgroup, released)]);
        raise(&mut self.unreleased, [(workgroup, epoch)]);
        let history = history.lock();
        let entries = history.get(&workgroup).map_or(&[][..], Vec::as_slice);
        let later = entries.partition_point(|&(since, _)| since <= epoch);
        if let Some((_, known)) = later.checked_sub(1).map(|at| &entries[at]) {
            let known = known.iter().map(|(&workgroup, &epoch)| (workgroup, epoch));
            raise(&mut self.seen, known.filter(|&(workgroup, _)| workgroup != self.workgroup));
        }
    }

    /// Adds to what is published what this clock has seen.
    pub(super) fn move_seen(self, known: &mut Known, unreleased: &mut Known) {
        raise(known, self.seen);
        raise(unreleased, self.unreleased);
    }

    pub(super) fn orders(&self, access: AccessRecord) -> bool {
        access.workgroup == self.workgroup || covers(&self.known, access)
    }

    /// Returns true if the workgroup has seen the release of an access, even if the caches still
    /// hold older values.
    pub(super) fn has_seen(&self, access: AccessRecord) -> bool {
        self.orders(access) || covers(&self.seen, access) || covers(&self.dropping, access)
    }

    /// Returns true if a load races with a write that nothing orders.
    pub(super) fn load_races(&self, load: LoadScope, write: AccessRecord) -> bool {
        match load {
            LoadScope::Plain | LoadScope::Workgroup => true,
            // It needs no cache to be dropped.
            LoadScope::Device => write.kind == WriteKind::Plain && !self.has_seen(write),
        }
    }

    /// Returns true if a write races with an earlier one that nothing orders.
    pub(super) fn write_races(
        &self,
        kind: WriteKind,
        earlier: AccessRecord,
        have_scopes: bool,
    ) -> bool {
        match (kind, earlier.kind) {
            // Two stores without a scope are more often a mistake than flags, unless the first one
            // was seen.
            (WriteKind::Flag, WriteKind::Flag) => !have_scopes && !self.has_seen_value(earlier),
            (WriteKind::Flag | WriteKind::Update, WriteKind::Update)
            | (WriteKind::Update, WriteKind::Flag) => false,
            _ => true,
        }
    }

    /// Returns true if the workgroup has seen the value of a store, or of a later one.
    pub(super) fn has_seen_value(&self, store: AccessRecord) -> bool {
        self.has_seen(store) || covers(&self.unreleased, store)
    }

    /// Why an access is not ordered.
    pub(super) fn cause(&self, access: AccessRecord) -> RaceCause {
        if self.has_seen(access) {
            RaceCause::NotAcquired
        } else if covers(&self.unreleased, access) {
            RaceCause::NotReleased
        } else {
            RaceCause::Unordered
        }
    }

    pub(super) fn access(&self, bytes: u8, kind: WriteKind) -> AccessRecord {
        let Self { workgroup, epoch, releasing: releases, .. } = *self;
        AccessRecord { workgroup, epoch, bytes, kind, releases }
    }
}

fn covers(known: &Known, access: AccessRecord) -> bool {
    known.get(&access.workgroup).is_some_and(|&epoch| epoch >= access.epoch)
}

fn raise(known: &mut Known, by: impl IntoIterator<Item = (u32, u32)>) {
    for (workgroup, epoch) in by {
        let known = known.entry(workgroup).or_default();
        *known = epoch.max(*known);
    }
}
