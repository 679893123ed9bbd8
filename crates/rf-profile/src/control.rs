//! The speed of the machine itself, beside what is measured on it.
//!
//! Clocks change, and on a machine that others share so does what a core and the memory give: by half and more, for seconds or
//! minutes, which no repetition within that time averages out. A fixed amount of work that no code under test has a part in
//! shows it: where that takes longer, a longer time of something else says nothing of its code.

use std::fs;
use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// Words that a thread reads: 16 MiB.
const WINDOW_WORDS: usize = 2 << 20;

/// Windows that are read in turn: 512 MiB pass before one comes again, more than caches keep. A window that some caches
/// still had and others not would say what else ran, and nothing of memory.
const WINDOWS: usize = 32;

/// Steps of the arithmetic: some 100 us.
const STEPS: u32 = 30_000;

/// Each is done so often, and the best counts: what is too short to last does not.
const PASSES: usize = 2;

/// What the fixed work took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Control {
    /// Independent additions and shifts in registers: clocks, and neighbours on the same core.
    pub core_us: f64,
    /// Reading memory: neighbours on the same memory.
    pub memory_us: f64,
}

/// What the fixed work took around a measurement, at least and at most. What it took within lies between, unless a neighbour
/// came and went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControlRange {
    /// The machine at its fastest.
    pub least: Control,
    /// The machine at its slowest.
    pub most: Control,
    /// Share of the threads' time in which other programs, or other machines on the same host, had the processor, within
    /// the measurement; 0 where the system does not tell.
    pub waited: f64,
}

/// Share of waiting beyond which a time means nothing: threads that meet at barriers wait for one that has no processor
/// ever so much longer than they compute.
const MOST_WAITED: f64 = 0.05;

/// The fixed work, ready to be done again and again.
///
/// # Examples
///
/// ```
/// use rf_profile::control::ControlWork;
///
/// let work = ControlWork::new(2);
/// let (first, ()) = work.around(2, || { /* what is measured */ });
/// let (second, ()) = work.around(2, || { /* the same, later */ });
/// if second.slower_than(&first) > 1.2 {
///     println!("the machine may have got slower meanwhile: {first:?}, {second:?}");
/// }
/// ```
#[derive(Debug)]
pub struct ControlWork {
    /// At least as many windows as threads.
    words: Vec<u64>,
    /// The window that is read next.
    next: AtomicUsize,
}

impl ControlWork {
    /// For up to so many threads: 512 MiB, or 16 MiB for each if that is more.
    pub fn new(threads: usize) -> Self {
        Self { words: vec![1; threads.max(WINDOWS) * WINDOW_WORDS], next: AtomicUsize::new(0) }
    }

    /// Does it once, on as many threads as what is measured has, all at the same time, of which the slowest counts: some
    /// milliseconds. One thread is the caller's.
    pub fn measure(&self, threads: usize) -> Control {
        let threads = threads.clamp(1, self.words.len() / WINDOW_WORDS);
        let work = || Control { core_us: best(compute), memory_us: best(|| self.read()) };
        if threads == 1 {
            return work();
        }
        let together = Barrier::new(threads);
        let times: Vec<Control> = thread::scope(|scope| {
            let together = &together;
            let work = move || {
                together.wait();
                work()
            };
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
        });
        times.into_iter().reduce(|a, b| a.most(&b)).unwrap_or_default()
    }

    /// Reads the next window.
    fn read(&self) {
        let windows = self.words.len() / WINDOW_WORDS;
        let window = self.next.fetch_add(1, Ordering::Relaxed) % windows;
        let words = black_box(&self.words[window * WINDOW_WORDS..][..WINDOW_WORDS]);
        black_box(words.iter().fold(0_u64, |sum, word| sum.wrapping_add(*word)));
    }

    /// Does it before and after something else.
    pub fn around<T>(&self, threads: usize, measured: impl FnOnce() -> T) -> (ControlRange, T) {
        let before = self.measure(threads);
        let lost = || waited() + stolen();
        let (start, lost_before) = (Instant::now(), lost());
        let value = measured();
        let lost = lost().saturating_sub(lost_before).as_secs_f64();
        let elapsed = start.elapsed().as_secs_f64() * threads.max(1) as f64;
        let after = self.measure(threads);
        let range = ControlRange {
            least: before.least(&after),
            most: before.most(&after),
            waited: if elapsed > 0.0 { (lost / elapsed).min(1.0) } else { 0.0 },
        };
        (range, value)
    }
}

/// How long the threads of this process, that are there now, were ready to run and did not, as Linux counts it.
fn waited() -> Duration {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return Duration::ZERO };
    // Time that it ran, time that it waited, turns.
    let of_thread = |path: PathBuf| -> Option<u64> {
        fs::read_to_string(path.join("schedstat")).ok()?.split(' ').nth(1)?.parse().ok()
    };
    let threads = threads.filter_map(|thread| of_thread(thread.ok()?.path()));
    Duration::from_nanos(threads.sum())
}

/// For how long a hypervisor let processors of this machine wait that had something to do, all together
/// (`proc_stat(5)`).
fn stolen() -> Duration {
    /// `USER_HZ`, which programs see on every architecture that this one runs on.
    const TICKS_PER_S: f64 = 100.0;
    let ticks = || -> Option<f64> {
        let text = fs::read_to_string("/proc/stat").ok()?;
        // cpu user nice system idle iowait irq softirq steal
        text.lines().next()?.split_whitespace().nth(8)?.parse().ok()
    };
    Duration::from_secs_f64(ticks().unwrap_or(0.0) / TICKS_PER_S)
}

impl Control {
    /// The faster of both, in each part.
    #[must_use]
    pub fn least(&self, other: &Self) -> Self {
        Self {
            core_us: self.core_us.min(other.core_us),
            memory_us: self.memory_us.min(other.memory_us),
        }
    }

    /// The slower of both, in each part.
    #[must_use]
    pub fn most(&self, other: &Self) -> Self {
        Self {
            core_us: self.core_us.max(other.core_us),
            memory_us: self.memory_us.max(other.memory_us),
        }
    }

    /// How many times as long as `other` it took, in the part where that is most: 1.2 is a machine that is 20 % slower at
    /// something.
    pub fn slower_than(&self, other: &Self) -> f64 {
        let ratio = |a: f64, b: f64| if b > 0.0 { a / b } else { 1.0 };
        ratio(self.core_us, other.core_us).max(ratio(self.memory_us, other.memory_us))
    }

    fn mean(all: impl ExactSizeIterator<Item = Self>) -> Self {
        let count = all.len() as f64;
        all.fold(Self::default(), |sum, one| Self {
            core_us: sum.core_us + one.core_us / count,
            memory_us: sum.memory_us + one.memory_us / count,
        })
    }
}

impl ControlRange {
    /// How many times as slow as at `other` the machine may have been: at its slowest against its fastest. At least 1, and
    /// infinite where others had the processor for more than 5 % of the time.
    pub fn slower_than(&self, other: &Self) -> f64 {
        if self.waited > MOST_WAITED {
            return f64::INFINITY;
        }
        self.most.slower_than(&other.least).max(1.0)
    }

    /// Both ends, of several measurements on average; `None` of nothing.
    pub fn mean(all: &[Self]) -> Option<Self> {
        let least = Control::mean(all.iter().map(|range| range.least));
        let most = Control::mean(all.iter().map(|range| range.most));
        let waited = all.iter().map(|range| range.waited).sum::<f64>() / all.len() as f64;
        (!all.is_empty()).then_some(Self { least, most, waited })
    }
}

fn best(mut work: impl FnMut()) -> f64 {
    let passes = (0..PASSES).map(|_| {
        let start = Instant::now();
        work();
        start.elapsed()
    });
    passes.min().unwrap_or(Duration::ZERO).as_secs_f64() * 1e6
}

/// Eight chains side by side, so that what a core can do in a clock counts, and not only how long a clock is.
fn compute() {
    let mut chains: [u64; 8] = black_box([1, 2, 3, 4, 5, 6, 7, 8]);
    for step in 0..STEPS {
        for x in &mut chains {
            // Shifts of what is not known beforehand: nothing to be computed without the steps.
            *x = (*x ^ (*x << 13)).wrapping_add(u64::from(step));
        }
    }
    black_box(chains);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(least_us: f64, most_us: f64) -> ControlRange {
        let of = |core_us| Control { core_us, memory_us: 1000.0 };
        ControlRange { least: of(least_us), most: of(most_us), waited: 0.0 }
    }

    #[test]
    fn the_part_that_is_slower_counts_and_the_ends_that_are_furthest_apart() {
        let fast = Control { core_us: 100.0, memory_us: 2000.0 };
        let slow = Control { core_us: 150.0, memory_us: 1000.0 };
        assert!((slow.slower_than(&fast) - 1.5).abs() < 1e-9);
        assert!((fast.slower_than(&slow) - 2.0).abs() < 1e-9);
        assert_eq!(fast.most(&slow), Control { core_us: 150.0, memory_us: 2000.0 });
        assert_eq!(fast.least(&slow), Control { core_us: 100.0, memory_us: 1000.0 });
        let drift = range(90.0, 120.0).slower_than(&range(80.0, 100.0));
        assert!((drift - 1.5).abs() < 1e-9, "{drift}");
        let faster = range(10.0, 20.0).slower_than(&range(80.0, 100.0));
        assert!((faster - 1.0).abs() < 1e-9, "{faster}");
        let shared = ControlRange { waited: 0.3, ..range(10.0, 20.0) };
        assert!(shared.slower_than(&range(80.0, 100.0)).is_infinite());
    }

    #[test]
    fn several_ranges_are_their_mean() {
        let mean = ControlRange::mean(&[range(10.0, 20.0), range(20.0, 40.0)]).unwrap();
        assert!(
            (mean.least.core_us - 15.0).abs() < 1e-9 && (mean.most.core_us - 30.0).abs() < 1e-9
        );
        assert_eq!(ControlRange::mean(&[]), None);
    }

    #[test]
    fn work_takes_time_on_one_thread_and_on_all() {
        let work = ControlWork::new(2);
        for threads in [1, 2, 100] {
            let (range, ()) = work.around(threads, || ());
            assert!(range.least.core_us > 0.0 && range.least.memory_us > 0.0, "{range:?}");
            assert!(range.most.core_us >= range.least.core_us, "{range:?}");
        }
    }
}
