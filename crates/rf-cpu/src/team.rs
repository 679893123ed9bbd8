//! A team of threads, as in OpenMP: one parallel region per batch, with barriers inside.
//!
//! Waking threads takes microseconds, and a token of a small model takes a few hundred. The team
//! therefore enters one region per batch and synchronises at spinning barriers between steps.
//! Outside a region all threads sleep.

#![expect(unsafe_code, reason = "disjoint mutable access to buffers shared by the team")]

use std::hint;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use rf_graph::BackendError;

/// A fixed set of threads that run parallel regions.
pub(crate) struct Team {
    pool: Option<rayon::ThreadPool>,
    threads: usize,
}

impl Team {
    /// Starts a team of `threads` threads, at least one.
    pub(crate) fn new(threads: usize) -> Result<Self, BackendError> {
        let threads = threads.max(1);
        let pool = (threads > 1)
            .then(|| {
                rayon::ThreadPoolBuilder::new()
                    .num_threads(threads)
                    .thread_name(|i| format!("rf-cpu-{i}"))
                    .build()
            })
            .transpose()
            .map_err(|e| BackendError::Device(format!("cannot start {threads} threads: {e}")))?;
        Ok(Self { pool, threads })
    }

    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// Runs `work` on every thread at once and returns when all have finished.
    pub(crate) fn run(&self, counters: &[Counter], work: impl Fn(&Member<'_>) + Sync) {
        let barrier = Barrier::new(self.threads);
        let member = |index| Member { index, threads: self.threads, barrier: &barrier, counters };
        match &self.pool {
            None => work(&member(0)),
            Some(pool) => {
                pool.broadcast(|context| {
                    let guard = PoisonOnPanic(&barrier);
                    work(&member(context.index()));
                    std::mem::forget(guard);
                });
            }
        }
    }
}

/// One thread of a team, inside a region.
pub(crate) struct Member<'a> {
    pub(crate) index: usize,
    pub(crate) threads: usize,
    barrier: &'a Barrier,
    counters: &'a [Counter],
}

impl Member<'_> {
    /// Waits for the whole team. Writes before the barrier are visible after it.
    pub(crate) fn barrier(&self) {
        self.barrier.wait(|| ());
    }

    /// Like [`Self::barrier`], but the last member to arrive runs `all_here` first.
    pub(crate) fn barrier_then(&self, all_here: impl FnOnce()) {
        self.barrier.wait(all_here);
    }

    /// This member's contiguous share of `0..items`.
    pub(crate) fn share(&self, items: usize) -> Range<usize> {
        let at = |i: usize| items * i / self.threads;
        at(self.index)..at(self.index + 1)
    }

    /// Schedules `0..items` dynamically, in chunks. `step` is the index of the loop's counter: each
    /// loop of a region has its own.
    pub(crate) fn dynamic_chunks(
        &self,
        step: usize,
        items: usize,
        chunk: usize,
    ) -> impl Iterator<Item = Range<usize>> {
        let counter = &self.counters[step].0;
        std::iter::from_fn(move || {
            let first = counter.fetch_add(chunk, Ordering::Relaxed);
            (first < items).then(|| first..items.min(first + chunk))
        })
    }
}

/// The next index of a shared loop, on its own cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Counter(AtomicUsize);

impl Counter {
    /// Resets the loop to index 0, between regions.
    pub(crate) fn reset(&mut self) {
        *self.0.get_mut() = 0;
    }
}

#[repr(align(64))]
struct Line<T>(T);

/// A spinning barrier, as steps take microseconds. After about 50 µs it yields to the scheduler,
/// for machines with more threads than cores.
struct Barrier {
    threads: usize,
    arrived: Line<AtomicUsize>,
    generation: Line<AtomicUsize>,
    poisoned: AtomicBool,
}

impl Barrier {
    fn new(threads: usize) -> Self {
        Self {
            threads,
            arrived: Line(AtomicUsize::new(0)),
            generation: Line(AtomicUsize::new(0)),
            poisoned: AtomicBool::new(false),
        }
    }

    fn wait(&self, all_here: impl FnOnce()) {
        const SPINS_BEFORE_YIELD: u32 = 1_000; // about 50 µs
        if self.threads == 1 {
            return all_here();
        }
        let generation = self.generation.0.load(Ordering::Relaxed);
        if self.arrived.0.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.arrived.0.store(0, Ordering::Relaxed);
            all_here();
            self.generation.0.store(generation.wrapping_add(1), Ordering::Release);
            return;
        }
        let mut spins = 0_u32;
        while self.generation.0.load(Ordering::Acquire) == generation {
            assert!(!self.poisoned.load(Ordering::Relaxed), "another thread of the team panicked");
            spins = spins.saturating_add(1);
            if spins < SPINS_BEFORE_YIELD {
                hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
    }
}

/// Poisons the barrier when a thread panics, so that the others do not wait forever.
struct PoisonOnPanic<'a>(&'a Barrier);

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        self.0.poisoned.store(true, Ordering::Relaxed);
    }
}

/// A slice of which the team writes disjoint parts.
pub(crate) struct Shared<'a, T> {
    start: *mut T,
    len: usize,
    owner: PhantomData<&'a mut [T]>,
}

// SAFETY: a slice of T, whose parts are accessed under the contract of its methods.
unsafe impl<T: Send> Send for Shared<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Shared<'_, T> {}

impl<T> Clone for Shared<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), owner: PhantomData }
    }

    pub(crate) fn len(self) -> usize {
        self.len
    }

    /// The part `range` of the slice.
    pub(crate) fn part(self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: the range is inside the slice.
        let start = unsafe { self.start.add(range.start) };
        Self { start, len: range.len(), owner: PhantomData }
    }

    /// Elements `range`, to read.
    ///
    /// # Safety
    ///
    /// No thread writes these elements while the result lives: the last writes precede the last
    /// barrier.
    pub(crate) unsafe fn get(self, range: Range<usize>) -> &'a [T] {
        let part = self.part(range);
        // SAFETY: inside the slice, and not written concurrently by contract.
        unsafe { std::slice::from_raw_parts(part.start, part.len) }
    }

    /// Elements `range`, to write.
    ///
    /// # Safety
    ///
    /// No other thread reads or writes these elements while the result lives.
    pub(crate) unsafe fn get_mut(self, range: Range<usize>) -> &'a mut [T] {
        let part = self.part(range);
        // SAFETY: inside the slice, and exclusive by contract.
        unsafe { std::slice::from_raw_parts_mut(part.start, part.len) }
    }
}

/// A matrix `[rows, width]` of f32 that the team shares.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    pub(crate) data: Shared<'a, f32>,
    pub(crate) width: usize,
}

impl<'a> Rows<'a> {
    /// One row, to read.
    ///
    /// # Safety
    ///
    /// The contract of [`Shared::get`].
    pub(crate) unsafe fn row(self, row: usize) -> &'a [f32] {
        // SAFETY: by contract.
        unsafe { self.data.get(row * self.width..(row + 1) * self.width) }
    }

    /// Part of a row, to write.
    ///
    /// # Safety
    ///
    /// The contract of [`Shared::get_mut`].
    pub(crate) unsafe fn row_mut(self, row: usize, columns: Range<usize>) -> &'a mut [f32] {
        let first = row * self.width;
        // SAFETY: by contract.
        unsafe { self.data.get_mut(first + columns.start..first + columns.end) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_stolen_once_and_barriers_order_the_writes() {
        let team = Team::new(3).unwrap();
        let counters = [Counter::default(), Counter::default()];
        let mut squares = vec![0_usize; 1000];
        let mut sums = vec![0_usize; 3];
        let calls = AtomicUsize::new(0);
        let (squares_shared, sums_shared) = (Shared::new(&mut squares), Shared::new(&mut sums));
        team.run(&counters, |member| {
            for range in member.dynamic_chunks(0, 1000, 7) {
                for i in range {
                    // SAFETY: each item belongs to one chunk.
                    let square = unsafe { squares_shared.get_mut(i..i + 1) };
                    square[0] += i * i;
                }
            }
            member.barrier_then(|| {
                calls.fetch_add(1, Ordering::Relaxed);
            });
            // The last member ran the closure before any member continues.
            assert_eq!(calls.load(Ordering::Relaxed), 1);
            // SAFETY: written before the barrier.
            let squares = unsafe { squares_shared.get(0..1000) };
            // SAFETY: one element per member.
            let sum = unsafe { sums_shared.get_mut(member.index..member.index + 1) };
            sum[0] = squares.iter().sum();
        });
        assert_eq!(sums, [332_833_500; 3]);
    }

    #[test]
    fn a_panic_in_one_thread_ends_the_region() {
        let team = Team::new(2).unwrap();
        let region = std::panic::AssertUnwindSafe(|| {
            team.run(&[], |member| {
                assert_ne!(member.index, 1, "planned");
                member.barrier();
            });
        });
        assert!(std::panic::catch_unwind(region).is_err());
    }
}
