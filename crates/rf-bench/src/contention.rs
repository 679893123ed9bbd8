//! CPU contention: the time that threads of this process waited for a CPU.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Contention above which wall-clock times decide nothing: threads that meet at barriers wait for
/// the one without a CPU.
pub(crate) const HIGH_CONTENTION: f64 = 0.05;

/// A measurement of contention that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContentionTimer {
    start: Instant,
    lost: Duration,
}

impl ContentionTimer {
    /// Begins a measurement.
    pub(crate) fn start() -> Self {
        Self { lost: lost_cpu_time(), start: Instant::now() }
    }

    /// The fraction of the time since the start in which each of `threads` threads was ready and
    /// had no CPU; 0 where the system does not report it.
    pub(crate) fn fraction(self, threads: usize) -> f64 {
        let elapsed = self.start.elapsed().as_secs_f64() * threads.max(1) as f64;
        let lost = lost_cpu_time().saturating_sub(self.lost).as_secs_f64();
        if elapsed > 0.0 { (lost / elapsed).min(1.0) } else { 0.0 }
    }
}

/// CPU time that the threads of this process waited for, and that the hypervisor withheld from the
/// machine, as Linux counts them.
fn lost_cpu_time() -> Duration {
    /// `USER_HZ` of every architecture that Linux programs see.
    const TICKS_PER_S: f64 = 100.0;
    // schedstat: time on a CPU, time in the run queue, number of slices.
    let queued = |path: PathBuf| -> Option<u64> {
        fs::read_to_string(path.join("schedstat")).ok()?.split(' ').nth(1)?.parse().ok()
    };
    // cpu user nice system idle iowait irq softirq steal
    let stolen = || -> Option<f64> {
        let text = fs::read_to_string("/proc/stat").ok()?;
        text.lines().next()?.split_whitespace().nth(8)?.parse().ok()
    };
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten();
    let queued_ns: u64 = tasks.filter_map(|task| queued(task.ok()?.path())).sum();
    let stolen = Duration::from_secs_f64(stolen().unwrap_or(0.0) / TICKS_PER_S);
    Duration::from_nanos(queued_ns) + stolen
}
