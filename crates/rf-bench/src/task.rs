//! A task: the part of a workload that knows how to run.

use std::fmt;
use std::time::Duration;

use rf_oracle::rf_graph::OpCost;

use crate::{Error, Suite, Target};

/// Work that is timed: one op, or a call of a library.
///
/// [`Workload`](crate::Workload) pairs a task with its place in the list of benchmarks.
pub trait Task: fmt::Debug + Send + Sync {
    /// Words and sizes, `matmul/q4_k/4096x4096/rows=8`. A name stands for the same work in every
    /// version, since baselines refer to it.
    fn name(&self) -> String;

    /// The suite of the task.
    fn suite(&self) -> Suite;

    /// The cost of one run; zero if bytes and arithmetic do not matter.
    fn cost(&self) -> OpCost;

    /// Returns true if the task runs on one host thread, whatever the target.
    fn is_single_threaded(&self) -> bool {
        false
    }

    /// Checks whether the target supports the task, before anything is allocated.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`], with the reason.
    fn check(&self, target: &Target) -> Result<(), Error> {
        _ = target;
        Ok(())
    }

    /// Allocates and fills the operands of a run. They are freed with the result, so hold one
    /// result at a time.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the target does not support the task, with the reason;
    /// [`Error::OutOfMemory`].
    fn prepare(&self, target: &Target) -> Result<Prepared, Error>;
}

/// The clock that times a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Clock {
    /// The executor's profile of the op: device events on a GPU, barriers on the CPU.
    Op,
    /// The host's clock, around the call.
    Host,
}

/// A task with its operands.
pub struct Prepared {
    clock: Clock,
    run: Box<dyn FnMut() -> Result<Duration, Error>>,
}

impl Prepared {
    /// A task whose `run` returns the time of one run.
    pub fn new(clock: Clock, run: impl FnMut() -> Result<Duration, Error> + 'static) -> Self {
        Self { clock, run: Box::new(run) }
    }

    /// The clock of [`Self::run`].
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Runs the task once and returns its time. If a run covers several equal weights or caches,
    /// the time is the mean over them.
    ///
    /// The first runs of a program take longer (pages are mapped, kernels loaded, graphs
    /// captured): discard them.
    ///
    /// # Errors
    ///
    /// The error of the backend.
    pub fn run(&mut self) -> Result<Duration, Error> {
        (self.run)()
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").field("clock", &self.clock).finish_non_exhaustive()
    }
}
