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

use crate::limits::{FORK_TIME, MASK_CREDIT, MASK_TIME};
use crate::stopwatch::Stopwatch;

/// The precision of the limits.
const TICK: Duration = Duration::from_millis(10);

/// The share of one constraint in the time that all constraints of its request have.
///
/// Each token adds [`MASK_TIME`] to that time, up to [`MASK_CREDIT`]. The choices of a request
/// advance in rounds of a token each. A round adds [`MASK_TIME`] once, and [`FORK_TIME`] for each
/// further choice.
#[derive(Debug)]
pub(crate) struct Budget {
    watch: Arc<Watch>,
    /// The last round in which this constraint took part.
    round: u64,
}

/// The time that the constraints of a request have.
#[derive(Debug)]
struct Pool {
    left: Duration,
    round: u64,
    /// True once a call was cancelled. All constraints of the request then give up.
    is_spent: bool,
}

/// A call that may be cancelled.
#[derive(Debug)]
struct Watch {
    /// The time of the call that runs, and the time after which it is cancelled.
    running: Mutex<Option<(Stopwatch, Duration)>>,
    handle: CancellationHandle,
    pool: Arc<Mutex<Pool>>,
}

static WATCHES: Mutex<Vec<Weak<Watch>>> = Mutex::new(Vec::new());
static ADDED: Condvar = Condvar::new();
/// True if the thread could be started. Without it, only the limits of the matcher hold.
static IS_WATCHED: LazyLock<bool> =
    LazyLock::new(|| thread::Builder::new().name("rf-mask-watch".into()).spawn(watch).is_ok());

impl Budget {
    /// A full budget, for calls that `handle` cancels.
    pub(crate) fn new(handle: CancellationHandle) -> Self {
        let pool = Pool { left: MASK_CREDIT, round: 0, is_spent: false };
        Self::with_pool(handle, Arc::new(Mutex::new(pool)))
    }

    /// A budget of a copy of the constraint, which shares its time. `handle` cancels the calls of
    /// the copy.
    pub(crate) fn fork(&self, handle: CancellationHandle) -> Self {
        Self::with_pool(handle, Arc::clone(&self.watch.pool))
    }

    fn with_pool(handle: CancellationHandle, pool: Arc<Mutex<Pool>>) -> Self {
        let watch = Arc::new(Watch { running: Mutex::new(None), handle, pool });
        if *IS_WATCHED {
            let mut watches = WATCHES.lock().unwrap_or_else(PoisonError::into_inner);
            watches.push(Arc::downgrade(&watch));
            ADDED.notify_one();
        }
        Self { watch, round: 0 }
    }

    /// Adds the time for a token.
    pub(crate) fn add_token(&mut self) {
        let mut pool = self.watch.pool();
        // A constraint that took part in the round already begins the next one.
        let begins_round = self.round == pool.round;
        pool.round += u64::from(begins_round);
        let added = if begins_round { MASK_TIME } else { FORK_TIME };
        pool.left = (pool.left + added).min(MASK_CREDIT);
        self.round = pool.round;
    }

    /// Runs a call, which is cancelled once the time is over.
    pub(crate) fn run<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let limit = {
            let pool = self.watch.pool();
            // The other choices would take as long, each until the thread that watches sees it.
            if pool.is_spent {
                self.watch.handle.cancel();
            }
            pool.left.max(FORK_TIME)
        };
        *self.watch.running() = Some((Stopwatch::start(), limit));
        let value = call();
        let ended = self.watch.running().take();
        let taken = ended.map_or(Duration::ZERO, |(stopwatch, _)| stopwatch.elapsed());
        let mut pool = self.watch.pool();
        pool.left = pool.left.saturating_sub(taken);
        drop(pool);
        value
    }
}

impl Watch {
    fn running(&self) -> MutexGuard<'_, Option<(Stopwatch, Duration)>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cancels a call whose time is over.
    fn check(&self) {
        let running = self.running();
        if running.as_ref().is_some_and(|(stopwatch, limit)| stopwatch.elapsed() > *limit) {
            self.pool().is_spent = true;
            self.handle.cancel();
        }
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
            watch.check();
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
    fn forks_share_one_budget() {
        let handles: Vec<_> = (0..64).map(|_| CancellationHandle::default()).collect();
        let first = Budget::new(handles[0].clone());
        let mut budgets: Vec<_> = handles[1..].iter().map(|h| first.fork(h.clone())).collect();
        budgets.push(first);
        for round in 1..=2 {
            budgets[0].watch.pool().left = Duration::ZERO;
            budgets.iter_mut().for_each(Budget::add_token);
            let left = budgets[0].watch.pool().left;
            assert_eq!(left, MASK_TIME + FORK_TIME * 63, "round {round}");
        }
        // One alone has a round per token.
        budgets[0].watch.pool().left = Duration::ZERO;
        (0..3).for_each(|_| budgets[5].add_token());
        assert_eq!(budgets[0].watch.pool().left, MASK_TIME * 3);
        budgets[0].watch.pool().left = MASK_CREDIT;
        let mut spent = Duration::ZERO;
        for budget in &mut budgets {
            let handle = budget.watch.handle.clone();
            budget.run(|| {
                while !handle.is_cancelled() && spent < Duration::from_secs(20) {
                    work(Duration::from_millis(1));
                    spent += Duration::from_millis(1);
                }
            });
        }
        assert!(handles.iter().all(CancellationHandle::is_cancelled));
        assert!(spent < Duration::from_secs(20), "the first call that is cancelled ends all");
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
