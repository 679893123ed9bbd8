//! The clock of the work on the thread of the engine.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time that the thread of the engine takes for a piece of work: a step, or a call between two
/// steps ([`Handle::call`](super::Handle::call)).
///
/// A GPU that hangs never ends a step. A supervisor finds this by comparing the two times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkTime {
    /// The time since the present work began; `None` while the thread sleeps.
    pub current: Option<Duration>,
    /// The longest work that has ended; `None` before the first end.
    pub longest: Option<Duration>,
}

/// The clock of the thread, which handles read.
#[derive(Debug, Default)]
pub(super) struct WorkClock(Mutex<Work>);

#[derive(Clone, Copy, Debug, Default)]
struct Work {
    begun: Option<Instant>,
    longest: Option<Duration>,
}

impl WorkClock {
    /// Times a piece of work. If the work panics, the thread is at its end, and so is the work.
    pub(super) fn time<R>(&self, work: impl FnOnce() -> R) -> R {
        /// Ends the work, also if it panics.
        struct End<'a>(&'a WorkClock, Instant);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                let taken = self.1.elapsed();
                self.0.update(|work| {
                    work.begun = None;
                    work.longest = work.longest.max(Some(taken));
                });
            }
        }
        let begun = Instant::now();
        self.update(|work| work.begun = Some(begun));
        let _end = End(self, begun);
        work()
    }

    pub(super) fn read(&self) -> WorkTime {
        let work = self.update(|work| *work);
        WorkTime { current: work.begun.map(|begun| begun.elapsed()), longest: work.longest }
    }

    fn update<R>(&self, change: impl FnOnce(&mut Work) -> R) -> R {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn work_has_a_time_while_it_runs_and_after_its_end() {
        let clock = WorkClock::default();
        assert_eq!(clock.read(), WorkTime::default());
        let pause = Duration::from_millis(20);
        clock.time(|| {
            std::thread::sleep(pause);
            let time = clock.read();
            assert!(time.current >= Some(pause) && time.longest.is_none(), "{time:?}");
        });
        let time = clock.read();
        assert!(time.current.is_none() && time.longest >= Some(pause), "{time:?}");
        clock.time(|| ());
        assert_eq!(clock.read(), time, "the longest work counts");
    }

    #[test]
    fn work_that_panics_has_ended() {
        let clock = WorkClock::default();
        let panicked = catch_unwind(AssertUnwindSafe(|| clock.time(|| panic!("on purpose"))));
        assert!(panicked.is_err());
        assert!(clock.read().current.is_none() && clock.read().longest.is_some());
    }
}
