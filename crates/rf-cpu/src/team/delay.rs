//! Reads the time for which a thread waits for a core.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

/// The time for which one thread waited for a core while it could have run, as Linux counts it.
#[derive(Debug, Default)]
pub(super) struct RunDelay {
    /// The file of the counter, which the thread itself names once.
    path: OnceLock<PathBuf>,
}

impl RunDelay {
    /// Counts for the calling thread from now on. Later calls change nothing.
    pub(super) fn attach(&self) {
        if self.path.get().is_none()
            && let Ok(thread) = fs::read_link("/proc/thread-self")
        {
            self.path.get_or_init(|| PathBuf::from("/proc").join(thread).join("schedstat"));
        }
    }

    /// The delay since the thread started, or `None` if the system does not count it.
    pub(super) fn read(&self) -> Option<Duration> {
        parse(&fs::read_to_string(self.path.get()?).ok()?)
    }
}

/// Reads `schedstat` (`Documentation/scheduler/sched-stats` of Linux): nanoseconds on a core, then
/// nanoseconds on a run queue. A kernel that does not count prints zeros.
fn parse(schedstat: &str) -> Option<Duration> {
    let mut numbers = schedstat.split_ascii_whitespace().map(str::parse);
    match (numbers.next()?.ok()?, numbers.next()?.ok()?) {
        (0_u64, _) => None,
        (_, delay_ns) => Some(Duration::from_nanos(delay_ns)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_is_the_second_number() {
        assert_eq!(parse("44120861 1234567 310\n"), Some(Duration::from_nanos(1_234_567)));
        assert_eq!([parse(""), parse("1 x 2"), parse("0 0 0\n")], [None; 3]);
    }

    #[test]
    fn a_thread_that_shares_its_core_has_waited() {
        let delay = RunDelay::default();
        delay.attach();
        let Some(before) = delay.read() else {
            eprintln!("skipped: the system does not count in /proc/thread-self/schedstat");
            return;
        };
        // More threads than cores, until this one has waited.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 * cores {
                scope.spawn(|| {
                    while !done.load(std::sync::atomic::Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            while delay.read() == Some(before) {
                std::hint::spin_loop();
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        assert!(delay.read() > Some(before));
    }
}
