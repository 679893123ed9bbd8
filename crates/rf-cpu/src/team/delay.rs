//! How long the threads of a team wait for a core.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

/// Where the system tells how long a thread waited for a core, while it could have run.
#[derive(Debug, Default)]
pub(super) struct RunDelay {
    /// Written once by the thread itself.
    path: OnceLock<PathBuf>,
}

impl RunDelay {
    /// Makes this the calling thread's.
    pub(super) fn attach(&self) {
        if let Ok(thread) = fs::read_link("/proc/thread-self") {
            self.path.get_or_init(|| PathBuf::from("/proc").join(thread).join("schedstat"));
        }
    }

    /// The delay since the thread started. None if the system does not tell.
    pub(super) fn read(&self) -> Option<Duration> {
        parse(&fs::read_to_string(self.path.get()?).ok()?)
    }
}

/// The second number of `schedstat`: nanoseconds on a run queue
/// (`Documentation/scheduler/sched-stats` of Linux).
fn parse(schedstat: &str) -> Option<Duration> {
    schedstat.split_ascii_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_is_the_second_number() {
        assert_eq!(parse("44120861 1234567 310\n"), Some(Duration::from_nanos(1_234_567)));
        assert_eq!((parse(""), parse("1 x 2")), (None, None));
    }

    #[test]
    fn a_thread_that_shares_its_core_has_waited() {
        let delay = RunDelay::default();
        delay.attach();
        let Some(before) = delay.read() else {
            eprintln!("skipped: the system has no /proc/thread-self/schedstat");
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
