//! Which workgroups of a launch run. Each runs to its end, unless it waits for another one: then it
//! is put aside and others start, up to the number that the device holds.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::options::Random;

/// A workgroup that is put aside, with its state.
#[derive(Debug)]
pub(super) struct Aside<S> {
    pub(super) state: S,
    /// The place where the workgroup waits; unknown if it only ran long without a store.
    pub(super) wait: Option<Wait>,
    /// The version of memory before it was found to wait.
    pub(super) version: u64,
}

/// The instruction at which a wave waits for another workgroup.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    pub(super) wave: u32,
    pub(super) slot: u32,
}

/// The next work of a thread.
#[derive(Debug)]
pub(super) enum Task<S> {
    /// The workgroup with this number starts.
    Start(u32),
    Continue(Box<Aside<S>>),
    /// No workgroup can continue: this one, `resident` in all, and `left` that have not started.
    Stuck {
        first: Box<Aside<S>>,
        resident: usize,
        left: usize,
    },
}

/// The workgroups of a launch.
#[derive(Debug)]
pub(super) struct Residency<S> {
    /// The numbers of the workgroups in the order in which they start.
    order: Vec<u32>,
    /// The most workgroups that have started and not ended.
    limit: usize,
    state: Mutex<State<S>>,
    /// A workgroup has ended or was put aside.
    moved: Condvar,
}

#[derive(Debug)]
struct State<S> {
    /// The place in the order of the workgroup that starts next.
    next: usize,
    running: usize,
    aside: Vec<Aside<S>>,
    /// Counts the times that a workgroup left its thread after it changed memory.
    version: u64,
    failed: bool,
}

impl<S> Residency<S> {
    /// A limit of 0 stands for none.
    pub(super) fn new(order: Vec<u32>, limit: usize) -> Self {
        let limit = if limit == 0 { usize::MAX } else { limit };
        let state = State { next: 0, running: 0, aside: Vec::new(), version: 0, failed: false };
        Self { order, limit, state: Mutex::new(state), moved: Condvar::new() }
    }

    pub(super) fn workgroups(&self) -> usize {
        self.order.len()
    }

    pub(super) fn version(&self) -> u64 {
        self.lock().version
    }

    /// Waits for something to do. `None`: everything has ended, or a workgroup has failed.
    pub(super) fn next(&self, random: &mut Random) -> Option<Task<S>> {
        let mut state = self.lock();
        loop {
            if state.failed {
                return None;
            }
            let left = self.order.len() - state.next;
            if left > 0 && state.running + state.aside.len() < self.limit {
                let number = self.order[state.next];
                state.next += 1;
                state.running += 1;
                return Some(Task::Start(number));
            }
            let version = state.version;
            let can_continue = |aside: &Aside<S>| aside.wait.is_none() || aside.version < version;
            let ready = state.aside.iter().filter(|&aside| can_continue(aside)).count();
            if ready > 0 {
                let chosen = random.below(ready);
                let places = state.aside.iter().enumerate();
                let mut places = places.filter(|(_, aside)| can_continue(aside));
                let place = places.nth(chosen)?.0;
                let aside = state.aside.remove(place);
                state.running += 1;
                return Some(Task::Continue(Box::new(aside)));
            }
            if state.running == 0 {
                let resident = state.aside.len();
                let first = Box::new(state.aside.drain(..).next()?);
                state.failed = true;
                self.moved.notify_all();
                return Some(Task::Stuck { first, resident, left });
            }
            state = self.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A workgroup has ended, or is put aside. `changed` if it changed memory since it went on.
    pub(super) fn leave(&self, aside: Option<Aside<S>>, changed: bool) {
        let mut state = self.lock();
        state.running -= 1;
        state.version += u64::from(changed);
        state.aside.extend(aside);
        drop(state);
        self.moved.notify_all();
    }

    /// No other workgroup starts or continues.
    pub(super) fn fail(&self) {
        self.lock().failed = true;
        self.moved.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
