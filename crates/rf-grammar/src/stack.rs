//! The stack and the time of compilations.

use std::cell::RefCell;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::Error;
use crate::stopwatch::Stopwatch;

/// The stack of a compilation. The matcher recurses over references and rules, up to 11 KiB deep
/// for each, so grammars within the limits take less than a quarter of it. The system provides the
/// pages that are used, and takes them back when the thread ends.
const STACK_BYTES: usize = 256 << 20;

/// Runs `work` on a thread with a large stack. What recurses must be dropped by `work`, too.
pub(crate) fn with_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, Error> {
    let timer = TIMER.with_borrow(Clone::clone);
    let work = || match timer {
        Some(timer) => timer.measure(work),
        None => work(),
    };
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("rf-grammar".into()).stack_size(STACK_BYTES);
        let thread = thread.spawn_scoped(scope, work).map_err(Error::Thread)?;
        Ok(thread.join().unwrap_or_else(|payload| resume_unwind(payload)))
    })
}

thread_local! {
    /// The timer of the compilations that this thread waits for.
    static TIMER: RefCell<Option<CompileTimer>> = const { RefCell::new(None) };
}

/// Measures the time of the processor that compilations take. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct CompileTimer {
    times: Arc<Mutex<Times>>,
}

#[derive(Debug, Default)]
struct Times {
    ended: Duration,
    running: Option<Stopwatch>,
}

impl CompileTimer {
    /// Does work that compiles grammars, which counts.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        TIMER.set(Some(self.clone()));
        let value = work();
        TIMER.set(None);
        value
    }

    /// The time that compilations took so far. Where the system does not tell the time of the
    /// processor, it is the time that passed.
    pub fn elapsed(&self) -> Duration {
        let times = self.times();
        times.ended + times.running.as_ref().map_or(Duration::ZERO, Stopwatch::elapsed)
    }

    /// Does the work of a compilation on its own thread.
    fn measure<T>(&self, work: impl FnOnce() -> T) -> T {
        self.times().running = Some(Stopwatch::start());
        let value = work();
        let mut times = self.times();
        if let Some(stopwatch) = times.running.take() {
            times.ended += stopwatch.elapsed();
        }
        drop(times);
        value
    }

    fn times(&self) -> MutexGuard<'_, Times> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_compilations_counts() {
        let timer = CompileTimer::default();
        let work = |time| {
            with_large_stack(|| {
                let stopwatch = Stopwatch::start();
                while stopwatch.elapsed() < time {}
            })
            .unwrap();
        };
        let time = Duration::from_millis(20);
        work(time);
        assert_eq!(timer.elapsed(), Duration::ZERO);
        timer.run(|| (0..2).for_each(|_| work(time)));
        let taken = timer.elapsed();
        assert!(taken >= time, "{taken:?}");
        assert_eq!(timer.elapsed(), taken, "nothing runs");
    }
}
