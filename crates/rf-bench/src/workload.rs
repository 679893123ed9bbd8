//! Workloads: tasks in the list of benchmarks.

use std::fmt;
use std::sync::Arc;

use rf_oracle::rf_graph::OpCost;

use crate::{Error, Prepared, Suite, Target, Task};

/// A benchmark: a task, its name and cost, and whether the quick subset contains it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Workload {
    /// See [`Task::name`].
    pub name: String,
    /// See [`Task::suite`].
    pub suite: Suite,
    /// See [`Task::cost`].
    pub cost: OpCost,
    /// True if the workload belongs to the subset that takes less than a minute.
    pub quick: bool,
    task: Arc<dyn Task>,
}

impl Workload {
    /// A workload of a task.
    pub fn new(task: impl Task + 'static, quick: bool) -> Self {
        let (name, suite, cost) = (task.name(), task.suite(), task.cost());
        Self { name, suite, cost, quick, task: Arc::new(task) }
    }

    /// See [`Task::is_single_threaded`].
    pub fn is_single_threaded(&self) -> bool {
        self.task.is_single_threaded()
    }

    /// See [`Task::check`].
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`], with the reason.
    pub fn check(&self, target: &Target) -> Result<(), Error> {
        self.task.check(target)
    }

    /// See [`Task::prepare`].
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the target does not support the task, with the reason;
    /// [`Error::OutOfMemory`].
    pub fn prepare(&self, target: &Target) -> Result<Prepared, Error> {
        self.check(target)?;
        self.task.prepare(target)
    }
}

/// One line: name, bytes, operations, and a mark for the quick subset.
impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, cost, quick, .. } = self;
        let operations = cost.operations();
        write!(f, "{name:<56} {:>11} bytes {operations:>13}", cost.bytes)?;
        if operations > 0 {
            f.write_str(if cost.int8_operations > 0 { " int8" } else { " f32" })?;
        }
        f.write_str(if *quick { " quick" } else { "" })
    }
}
