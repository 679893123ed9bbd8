//! The time that a thread runs.

use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Measures how long the thread runs that starts it. The time in which the system runs other
/// programs instead does not count, where the system tells it: on Linux, to a few milliseconds.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    started: Instant,
    /// The statistics of the thread, and the time that it had run at the start.
    thread: Option<(Arc<File>, Duration)>,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        let thread = system::statistics().and_then(|file| {
            let before = system::run_time(&file)?;
            Some((file, before))
        });
        Self { started: Instant::now(), thread }
    }

    /// The time since the start. Any thread may ask.
    pub(crate) fn elapsed(&self) -> Duration {
        let passed = self.started.elapsed();
        let run = self.thread.as_ref().and_then(|(file, before)| {
            let now = system::run_time(file)?;
            Some(now.saturating_sub(*before))
        });
        run.map_or(passed, |run| run.min(passed))
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::fs::File;
    use std::os::unix::fs::FileExt as _;
    use std::sync::Arc;
    use std::time::Duration;

    thread_local! {
        static STATISTICS: Option<Arc<File>> =
            File::open("/proc/thread-self/schedstat").ok().map(Arc::new);
    }

    /// The statistics of the scheduler for this thread.
    pub(super) fn statistics() -> Option<Arc<File>> {
        STATISTICS.with(Clone::clone)
    }

    /// The time that the thread of these statistics has run, which is their first number.
    pub(super) fn run_time(file: &File) -> Option<Duration> {
        let mut text = [0; 64];
        let length = file.read_at(&mut text, 0).ok()?;
        let nanos = str::from_utf8(&text[..length]).ok()?.split(' ').next()?.parse().ok()?;
        Some(Duration::from_nanos(nanos))
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::fs::File;
    use std::sync::Arc;
    use std::time::Duration;

    pub(super) fn statistics() -> Option<Arc<File>> {
        None
    }

    pub(super) fn run_time(_: &File) -> Option<Duration> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn work_counts_and_sleep_does_not() {
        let stopwatch = Stopwatch::start();
        if stopwatch.thread.is_none() {
            return;
        }
        thread::sleep(Duration::from_millis(300));
        assert!(stopwatch.elapsed() < Duration::from_millis(200), "{:?}", stopwatch.elapsed());
        while stopwatch.elapsed() < Duration::from_millis(100) {
            std::hint::black_box(0);
        }
        assert!(stopwatch.started.elapsed() >= Duration::from_millis(400));
    }
}
