//! The time that a constraint may take per token.
//!
//! The matcher limits its items, but the time for an item grows with those before it: a few bytes
//! of ambiguous grammar take seconds per token once a text has some hundred. So a thread watches
//! running calls and cancels those that take too long. Only the time counts in which the thread of
//! a call runs: a busy machine must not cut answers.

use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use llguidance::CancellationHandle;

use crate::limits::{MASK_CREDIT, MASK_TIME};
use crate::stopwatch::Stopwatch;

/// The precision of the limits.
const TICK: Duration = Duration::from_millis(10);

/// The time that a constraint has left. Each token adds [`MASK_TIME`] to it, up to [`MASK_CREDIT`].
#[derive(Debug)]
pub(crate) struct Budget {
    watch: Arc<Watch>,
    left: Duration,
}

/// A call that may be cancelled.
#[derive(Debug)]
struct Watch {
    /// The time of the call that runs, and the time after which it is cancelled.
    running: Mutex<Option<(Stopwatch, Duration)>>,
    handle: CancellationHandle,
}

static WATCHES: Mutex<Vec<Weak<Watch>>> = Mutex::new(Vec::new());
static ADDED: Condvar = Condvar::new();
/// True if the thread could be started. Without it, only the limits of the matcher hold.
static IS_WATCHED: LazyLock<bool> =
    LazyLock::new(|| thread::Builder::new().name("rf-mask-watch".into()).spawn(watch).is_ok());

impl Budget {
    /// A full budget, for calls that `handle` cancels.
    pub(crate) fn new(handle: CancellationHandle) -> Self {
        let watch = Arc::new(Watch { running: Mutex::new(None), handle });
        if *IS_WATCHED {
            let mut watches = WATCHES.lock().unwrap_or_else(PoisonError::into_inner);
            watches.push(Arc::downgrade(&watch));
            ADDED.notify_one();
        }
        Self { watch, left: MASK_CREDIT }
    }

    /// Adds the time for a token.
    pub(crate) fn add_token(&mut self) {
        self.left = (self.left + MASK_TIME).min(MASK_CREDIT);
    }

    /// Runs a call, which is cancelled once the time is over.
    pub(crate) fn run<T>(&mut self, call: impl FnOnce() -> T) -> T {
        *self.watch.running() = Some((Stopwatch::start(), self.left.max(MASK_TIME)));
        let value = call();
        let ended = self.watch.running().take();
        let taken = ended.map_or(Duration::ZERO, |(stopwatch, _)| stopwatch.elapsed());
        self.left = self.left.saturating_sub(taken);
        value
    }
}

impl Watch {
    fn running(&self) -> MutexGuard<'_, Option<(Stopwatch, Duration)>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.running().as_ref().is_some_and(|(stopwatch, limit)| stopwatch.elapsed() > *limit)
    }
}

/// Cancels calls, as long as the process lives.
fn watch() {
    loop {
        let mut watches = WATCHES.lock().unwrap_or_else(PoisonError::into_inner);
        while watches.is_empty() {
            watches = ADDED.wait(watches).unwrap_or_else(PoisonError::into_inner);
        }
        watches.retain(|watch| {
            let Some(watch) = watch.upgrade() else { return false };
            if watch.is_over() {
                watch.handle.cancel();
            }
            true
        });
        drop(watches);
        thread::sleep(TICK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps the thread running.
    fn work(time: Duration) {
        let stopwatch = Stopwatch::start();
        while stopwatch.elapsed() < time {}
    }

    #[test]
    fn calls_within_the_budget_are_not_cancelled() {
        let handle = CancellationHandle::default();
        let mut budget = Budget::new(handle.clone());
        for _ in 0..50 {
            budget.add_token();
            budget.run(|| work(Duration::from_millis(1)));
        }
        thread::sleep(MASK_CREDIT + 5 * TICK);
        assert!(!handle.is_cancelled(), "only the time of calls counts");
    }

    #[test]
    fn a_call_beyond_the_budget_is_cancelled() {
        let handle = CancellationHandle::default();
        let mut budget = Budget::new(handle.clone());
        let stopwatch = Stopwatch::start();
        budget.run(|| {
            while !handle.is_cancelled() && stopwatch.elapsed() < Duration::from_secs(20) {
                work(Duration::from_millis(1));
            }
        });
        assert!(handle.is_cancelled());
        assert!(stopwatch.elapsed() >= MASK_CREDIT, "{:?}", stopwatch.elapsed());
    }

    #[test]
    fn slow_calls_use_the_budget_up() {
        let handle = CancellationHandle::default();
        let mut budget = Budget::new(handle.clone());
        let mut calls = 0;
        while !handle.is_cancelled() && calls < 1000 {
            budget.add_token();
            budget.run(|| work(MASK_TIME * 3));
            calls += 1;
        }
        assert!(calls < 1000, "each call takes more than a token adds");
    }
}
