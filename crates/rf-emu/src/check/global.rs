//! Races in global memory: accesses of two workgroups that no release and acquire order.
//!
//! Each workgroup has an epoch, and knows up to which epoch it has seen others. An atomic update
//! whose wave has waited for its stores publishes what its workgroup knows at the address.
//! A workgroup that updates the address later, and then drops its caches, learns it.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::fault::FaultKind;

const SHARDS: usize = 64;
/// Several workgroups read the word.
const MANY: u32 = u32::MAX;

/// Up to which epoch the accesses of other workgroups are known.
type Known = HashMap<u32, u32>;

/// The last accesses of a word of memory.
#[derive(Clone, Copy, Debug, Default)]
struct Word {
    write: Option<Access>,
    /// True if the last write was an atomic update.
    atomic: bool,
    read: Option<Access>,
}

#[derive(Clone, Copy, Debug)]
struct Access {
    workgroup: u32,
    epoch: u32,
    /// A bit per byte.
    bytes: u8,
}

/// The accesses of a launch to global memory.
#[derive(Debug)]
pub(crate) struct GlobalShadow {
    shards: Vec<Mutex<HashMap<u64, Word>>>,
    /// The clocks that atomic updates published, by address.
    published: Mutex<HashMap<u64, Known>>,
}

/// The clocks that a workgroup has acquired.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    pub(crate) workgroup: u32,
    epoch: u32,
    known: Known,
    /// Seen by an atomic update, effective when the caches are dropped.
    seen: Known,
}

impl Clock {
    pub(crate) fn new(workgroup: u32) -> Self {
        Self { workgroup, epoch: 1, ..Self::default() }
    }

    /// Drops the caches: what atomic updates saw takes effect.
    pub(crate) fn acquire(&mut self) {
        for (workgroup, epoch) in self.seen.drain() {
            let known = self.known.entry(workgroup).or_default();
            *known = epoch.max(*known);
        }
    }

    fn orders(&self, access: Access) -> bool {
        access.workgroup == self.workgroup
            || self.known.get(&access.workgroup).is_some_and(|&epoch| epoch >= access.epoch)
    }

    fn access(&self, bytes: u8) -> Access {
        Access { workgroup: self.workgroup, epoch: self.epoch, bytes }
    }
}

impl GlobalShadow {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            published: Mutex::default(),
        }
    }

    /// A load; `records` if a later write by another workgroup is a race, too.
    pub(crate) fn read(
        &self,
        clock: &Clock,
        address: u64,
        bytes: u32,
        records: bool,
    ) -> Result<(), FaultKind> {
        for (word, mask) in words(address, bytes) {
            let mut shard = self.shard(word);
            let entry = shard.entry(word).or_default();
            check(clock, entry.write, mask, "writes", word)?;
            if !records {
                continue;
            }
            entry.read = Some(match entry.read {
                Some(read) if read.workgroup != clock.workgroup && !clock.orders(read) => {
                    Access { workgroup: MANY, epoch: MANY, bytes: read.bytes | mask }
                }
                Some(read) => clock.access(read.bytes | mask),
                None => clock.access(mask),
            });
        }
        Ok(())
    }

    pub(crate) fn write(&self, clock: &Clock, address: u64, bytes: u32) -> Result<(), FaultKind> {
        for (word, mask) in words(address, bytes) {
            let mut shard = self.shard(word);
            let entry = shard.entry(word).or_default();
            check(clock, entry.write, mask, "writes", word)?;
            check(clock, entry.read, mask, "reads", word)?;
            let old = entry.write.filter(|write| write.workgroup == clock.workgroup);
            entry.write = Some(clock.access(mask | old.map_or(0, |write| write.bytes)));
            entry.atomic = false;
        }
        Ok(())
    }

    /// An atomic update; `releases` if the wave has completed its stores.
    pub(crate) fn update(
        &self,
        clock: &mut Clock,
        address: u64,
        bytes: u32,
        releases: bool,
    ) -> Result<(), FaultKind> {
        for (word, mask) in words(address, bytes) {
            let mut shard = self.shard(word);
            let entry = shard.entry(word).or_default();
            if !entry.atomic {
                check(clock, entry.write, mask, "writes", word)?;
            }
            check(clock, entry.read, mask, "reads", word)?;
            entry.write = Some(clock.access(mask));
            entry.atomic = true;
        }
        let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        let known = published.entry(address).or_default();
        for (&workgroup, &epoch) in &*known {
            let seen = clock.seen.entry(workgroup).or_default();
            *seen = epoch.max(*seen);
        }
        if releases {
            for (&workgroup, &epoch) in &clock.known {
                let entry = known.entry(workgroup).or_default();
                *entry = epoch.max(*entry);
            }
            known.insert(clock.workgroup, clock.epoch);
            clock.epoch += 1;
        }
        Ok(())
    }

    fn shard(&self, word: u64) -> MutexGuard<'_, HashMap<u64, Word>> {
        let shard = &self.shards[(word >> 6) as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn check(
    clock: &Clock,
    other: Option<Access>,
    mask: u8,
    access: &'static str,
    word: u64,
) -> Result<(), FaultKind> {
    match other {
        Some(other) if other.bytes & mask != 0 && !clock.orders(other) => {
            let byte = (other.bytes & mask).trailing_zeros();
            let address = word * 4 + u64::from(byte);
            Err(FaultKind::GlobalRace { other: other.workgroup, access, address })
        }
        _ => Ok(()),
    }
}

/// The words of a range of bytes with a bit per byte.
fn words(address: u64, bytes: u32) -> impl Iterator<Item = (u64, u8)> {
    let end = address + u64::from(bytes);
    (address / 4..end.div_ceil(4)).map(move |word| {
        let first = address.max(word * 4) - word * 4;
        let last = end.min(word * 4 + 4) - word * 4;
        (word, ((1u16 << last) - (1u16 << first)) as u8)
    })
}
