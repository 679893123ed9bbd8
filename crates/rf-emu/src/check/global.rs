//! Races in global memory: accesses of two workgroups that no release and acquire order.
//!
//! Each workgroup has an epoch, and knows up to which epoch it has seen others
//! ([`WorkgroupClock`]).
//!
//! - An atomic update whose wave has waited for its stores publishes at the address what its
//!   workgroup knows.
//! - A store whose wave has waited for its stores has an epoch of its own: whoever sees its value
//!   sees it and the earlier epochs. On RDNA 4 the scope tells which stores can be seen by other
//!   workgroups; before, atomic and other stores are the same instructions.
//! - An atomic update of the address, or a load that passes by the caches, sees what was published
//!   there. It takes effect when the workgroup then drops its caches.

mod access;
mod clock;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

pub(crate) use access::{AccessRecord, LoadScope, WriteKind};
pub(crate) use clock::WorkgroupClock;
use clock::{ClockHistory, Known};

use crate::fault::{FaultKind, RaceCause};

/// The words of a chunk of the shadow.
const CHUNK: usize = 1024;
/// Bytes of an allocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByteSpan {
    /// The position of the allocation among those of the launch.
    pub(crate) allocation: usize,
    /// Address of the allocation.
    pub(crate) base: u64,
    /// The first byte in it.
    pub(crate) start: usize,
    pub(crate) bytes: usize,
}

/// The accesses of a launch to global memory.
#[derive(Debug)]
pub(crate) struct GlobalShadow {
    /// The chunks of each allocation, after the first write.
    allocations: Vec<Allocation>,
    /// The clocks that atomic updates published, by address.
    published: Mutex<HashMap<u64, Published>>,
    /// The earlier knowledge of workgroups.
    history: ClockHistory,
    /// True if the instructions tell atomic stores from others.
    stores_have_scopes: bool,
}

/// The clocks that atomic updates of an address published.
#[derive(Debug, Default)]
struct Published {
    known: Known,
    /// The epochs of workgroups that had not completed their stores.
    unreleased: Known,
}

impl Published {
    fn continue_store(&mut self, store: AccessRecord, history: &ClockHistory) {
        let mut reader = WorkgroupClock::new(u32::MAX);
        reader.see_store(store, history);
        reader.move_seen(&mut self.known, &mut self.unreleased);
    }
}

#[derive(Debug)]
struct Allocation {
    chunks: usize,
    shadow: OnceLock<Box<[OnceLock<Chunk>]>>,
}

#[derive(Debug)]
struct Chunk {
    /// The last write of each word. Whoever holds the lock of `reads` writes; anyone reads.
    writes: Box<[AtomicU64]>,
    /// The last read of each word; empty if no read was recorded.
    reads: Mutex<Vec<u64>>,
}

impl Chunk {
    fn new() -> Self {
        Self { writes: bytemuck::zeroed_slice_box(CHUNK), reads: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u64>> {
        self.reads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GlobalShadow {
    /// The shadow of allocations of these sizes in bytes; `stores_have_scopes` if the instructions
    /// tell atomic stores from others.
    pub(crate) fn new(sizes: impl Iterator<Item = u64>, stores_have_scopes: bool) -> Self {
        let allocation = |bytes: u64| Allocation {
            chunks: bytes.div_ceil(4 * CHUNK as u64) as usize,
            shadow: OnceLock::new(),
        };
        Self {
            allocations: sizes.map(allocation).collect(),
            published: Mutex::default(),
            history: ClockHistory::default(),
            stores_have_scopes,
        }
    }

    /// Returns true if no other workgroup has written any of the bytes. After a load, so that a
    /// value of another workgroup is not missed.
    pub(crate) fn is_quiet(&self, clock: &WorkgroupClock, span: ByteSpan) -> bool {
        fence(Acquire);
        let Some(chunks) = self.allocations[span.allocation].shadow.get() else { return true };
        let words = span.start / 4..(span.start + span.bytes).div_ceil(4);
        parts(words).all(|(chunk, words)| {
            let Some(chunk) = chunks[chunk].get() else { return true };
            chunk.writes[words].iter().all(|write| {
                let write = write.load(Relaxed);
                write == 0 || (write >> 32) as u32 == clock.workgroup
            })
        })
    }

    /// A load; `records` if a later write by another workgroup is a race, too.
    pub(crate) fn read(
        &self,
        clock: &WorkgroupClock,
        span: ByteSpan,
        load: LoadScope,
        records: bool,
    ) -> Result<(), FaultKind> {
        let records = records && load != LoadScope::Device;
        if !records && self.is_quiet(clock, span) {
            return Ok(());
        }
        self.each_word(span, |chunk, word, mask, address| {
            let write = AccessRecord::from_bits(chunk.writes[word].load(Relaxed));
            check(clock, write.filter(|&write| clock.load_races(load, write)), mask, address)
                .map_err(|race| race.writes(load.cause()))?;
            if !records {
                return Ok(());
            }
            let mut reads = chunk.lock();
            if reads.is_empty() {
                reads.resize(CHUNK, 0);
            }
            let read = match AccessRecord::from_bits(reads[word]) {
                Some(read) if read.workgroup != clock.workgroup && !clock.orders(read) => {
                    read.of_many(mask)
                }
                Some(read) => clock.access(read.bytes | mask, WriteKind::Plain),
                None => clock.access(mask, WriteKind::Plain),
            };
            reads[word] = read.bits();
            Ok(())
        })
    }

    /// A store, which `change` carries out.
    pub(crate) fn write(
        &self,
        clock: &WorkgroupClock,
        span: ByteSpan,
        kind: WriteKind,
        change: impl FnOnce(),
    ) -> Result<(), FaultKind> {
        let words = span.start / 4..(span.start + span.bytes).div_ceil(4);
        let mut change = Some(change);
        for (chunk, part) in parts(words.clone()) {
            let at = chunk * CHUNK;
            let chunk = self.chunk(span.allocation, chunk);
            let reads = chunk.lock();
            for word in part.clone() {
                let (mask, address) = word_of(span, at + word);
                let old = AccessRecord::from_bits(chunk.writes[word].load(Relaxed));
                let other =
                    old.filter(|&old| clock.write_races(kind, old, self.stores_have_scopes));
                check(clock, other, mask, address).map_err(|race| race.writes(kind.cause(old)))?;
                check(clock, last_read(&reads, word), mask, address).map_err(Race::reads)?;
                let old = old.filter(|write| write.workgroup == clock.workgroup);
                let access = clock.access(mask | old.map_or(0, |write| write.bytes), kind);
                chunk.writes[word].store(access.bits(), Relaxed);
            }
            if at + part.end == words.end
                && let Some(change) = change.take()
            {
                // Under the lock, as atomic updates: the value in memory is that of the last write
                // in the shadow.
                fence(Release);
                change();
            }
        }
        Ok(())
    }

    /// A load that passed by the caches of the workgroup: it may have seen what a store or an
    /// atomic update published. After the load, because those publish before they change memory.
    pub(crate) fn observe(&self, clock: &mut WorkgroupClock, span: ByteSpan) {
        fence(Acquire);
        if let Some(chunks) = self.allocations[span.allocation].shadow.get() {
            let words = span.start / 4..(span.start + span.bytes).div_ceil(4);
            for (chunk, words) in parts(words) {
                let Some(chunk) = chunks[chunk].get() else { continue };
                for write in &chunk.writes[words] {
                    if let Some(write) = AccessRecord::from_bits(write.load(Relaxed)) {
                        clock.see_store(write, &self.history);
                    }
                }
            }
        }
        let address = span.base + span.start as u64;
        let published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(published) = published.get(&address) {
            clock.see(&published.known, &published.unreleased);
        }
    }

    /// An atomic update, which `change` carries out; `releases` if the wave has completed its
    /// stores. Returns what `change` returns.
    pub(crate) fn update<T>(
        &self,
        clock: &mut WorkgroupClock,
        span: ByteSpan,
        kind: WriteKind,
        releases: bool,
        change: impl FnOnce() -> T,
    ) -> Result<T, FaultKind> {
        // Updates are aligned: one chunk holds their words.
        let first = span.start / 4;
        let chunk = self.chunk(span.allocation, first / CHUNK);
        let reads = chunk.lock();
        let mut stores = [None; 2];
        for (word, store) in (first..(span.start + span.bytes).div_ceil(4)).zip(&mut stores) {
            let (mask, address) = word_of(span, word);
            let word = word % CHUNK;
            let old = AccessRecord::from_bits(chunk.writes[word].load(Relaxed));
            let other = old.filter(|&old| clock.write_races(kind, old, self.stores_have_scopes));
            let cause = if kind == WriteKind::Update { kind.cause(old) } else { RaceCause::Scope };
            check(clock, other, mask, address).map_err(|race| race.writes(cause))?;
            check(clock, last_read(&reads, word), mask, address).map_err(Race::reads)?;
            *store = old;
            chunk.writes[word].store(clock.access(mask, kind).bits(), Relaxed);
        }
        if kind != WriteKind::Update {
            return Ok(change());
        }
        let address = span.base + span.start as u64;
        let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        let published = published.entry(address).or_default();
        for store in stores.into_iter().flatten() {
            // Later updates continue what the store released.
            clock.see_store(store, &self.history);
            published.continue_store(store, &self.history);
        }
        clock.see(&published.known, &published.unreleased);
        if releases {
            clock.release(&mut published.known);
        } else {
            published.unreleased.insert(clock.workgroup, clock.epoch());
        }
        // Under the locks, so that updates and stores see each other's clocks in the order in which
        // they change memory.
        Ok(change())
    }

    /// The caches of the workgroup are dropped: what it saw takes effect.
    pub(crate) fn acquire(&self, clock: &mut WorkgroupClock) {
        clock.acquire(&self.history);
    }

    fn chunk(&self, allocation: usize, chunk: usize) -> &Chunk {
        let allocation = &self.allocations[allocation];
        let chunks = allocation
            .shadow
            .get_or_init(|| (0..allocation.chunks).map(|_| OnceLock::new()).collect());
        chunks[chunk].get_or_init(Chunk::new)
    }

    /// Applies a function to each word of a span: its chunk and place in it, a bit per byte, and
    /// its address.
    fn each_word(
        &self,
        span: ByteSpan,
        mut function: impl FnMut(&Chunk, usize, u8, u64) -> Result<(), FaultKind>,
    ) -> Result<(), FaultKind> {
        for word in span.start / 4..(span.start + span.bytes).div_ceil(4) {
            let (mask, address) = word_of(span, word);
            let chunk = self.chunk(span.allocation, word / CHUNK);
            function(chunk, word % CHUNK, mask, address)?;
        }
        Ok(())
    }
}

/// The bytes of a span in a word, a bit per byte, and the word's address.
fn word_of(span: ByteSpan, word: usize) -> (u8, u64) {
    let first = span.start.max(word * 4) - word * 4;
    let last = (span.start + span.bytes).min(word * 4 + 4) - word * 4;
    (((1u16 << last) - (1u16 << first)) as u8, span.base + word as u64 * 4)
}

/// The parts of a range of words by chunk.
fn parts(words: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> {
    (words.start / CHUNK..words.end.div_ceil(CHUNK)).map(move |chunk| {
        let first = words.start.saturating_sub(chunk * CHUNK);
        (chunk, first..(words.end - chunk * CHUNK).min(CHUNK))
    })
}

fn last_read(reads: &[u64], word: usize) -> Option<AccessRecord> {
    reads.get(word).and_then(|&bits| AccessRecord::from_bits(bits))
}

/// An access of another workgroup that nothing orders before this one.
struct Race {
    other: u32,
    address: u64,
    /// The missing part, as far as the clocks tell.
    cause: RaceCause,
}

impl Race {
    /// The race with a write; `cause` is what the accesses themselves tell.
    fn writes(self, cause: RaceCause) -> FaultKind {
        let cause = if self.cause == RaceCause::Unordered { cause } else { self.cause };
        self.fault("writes", cause)
    }

    fn reads(self) -> FaultKind {
        let cause = self.cause;
        self.fault("reads", cause)
    }

    fn fault(self, access: &'static str, cause: RaceCause) -> FaultKind {
        FaultKind::GlobalRace { other: self.other, access, address: self.address, cause }
    }
}

fn check(
    clock: &WorkgroupClock,
    other: Option<AccessRecord>,
    mask: u8,
    address: u64,
) -> Result<(), Race> {
    match other {
        Some(other) if other.bytes & mask != 0 && !clock.orders(other) => {
            let byte = (other.bytes & mask).trailing_zeros();
            let address = address + u64::from(byte);
            Err(Race { other: other.workgroup, address, cause: clock.cause(other) })
        }
        _ => Ok(()),
    }
}
