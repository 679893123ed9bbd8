//! A workload, from its name to one run of it.

use std::fmt;
use std::time::Duration;

use rf_graph::DType;

use crate::{Error, Suite, Target, attention, dequant, launch, matmul, memory, standard};

/// Something that is measured.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Workload {
    /// Words and sizes, `matmul/q4_k/4096x4096/rows=8`: the same in every version, so that records can be compared.
    pub name: String,
    /// What it is measured with.
    pub suite: Suite,
    /// Bytes that a run has to move between memory and whatever computes: weights, activations and cache, each once;
    /// 0 where moving is not what it is about.
    pub bytes: u64,
    /// What a run computes.
    pub operations: Operations,
    /// Whether it belongs to the subset that takes less than a minute.
    pub quick: bool,
    pub(crate) task: Task,
}

/// What a workload does.
#[derive(Clone, Debug)]
pub(crate) enum Task {
    Product(matmul::Product),
    Attention(attention::Attend),
    Standard(standard::Standard),
    Convert(dequant::Convert),
    TableRows(dequant::TableRows),
    Pool(memory::PoolTask),
    Cache(memory::CacheTask),
    Step(launch::Step),
}

/// Arithmetic of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operations {
    /// What most of it is done in.
    pub kind: OperationKind,
    /// How much; a multiply-add counts as two. 0 where arithmetic is not what it is about.
    pub count: u64,
}

/// Arithmetic that a machine has a limit for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum OperationKind {
    /// Multiply-adds of f32. The GPU backend multiplies f16 instead in attention of prompts.
    F32,
    /// Dot products of int8.
    I8,
}

/// What a run's time is measured with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Clock {
    /// The executor's profile of the op: on a GPU between events on the device, on the CPU between barriers.
    Op,
    /// The host's clock, around the call.
    Host,
}

/// All one-op workloads of a suite, in the order of reports. [`Suite::Inference`] has none: its
/// metrics need a model file.
pub fn workloads(suite: Suite) -> Vec<Workload> {
    match suite {
        Suite::Matmul => matmul::workloads(),
        Suite::Attention => [attention::workloads(), standard::workloads()].concat(),
        Suite::Dequant => dequant::workloads(),
        Suite::Inference => Vec::new(),
        Suite::Memory => memory::workloads(),
        Suite::Launch => launch::workloads(),
    }
}

impl Workload {
    /// Whether a target does this at all, before anything is made for it.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`], with the reason.
    pub fn check(&self, target: &Target) -> Result<(), Error> {
        let why = match (&self.task, target.is_gpu()) {
            (Task::Standard(_), true) => "no GPU kernel writes all scores down",
            (Task::Convert(_), true) => "whole tensors are converted by the host",
            (Task::Pool(_), true) => "the host keeps track of pages, whatever the device",
            (Task::Step(step), false) if step.is_replay() => "the CPU has no graphs to replay",
            _ => return Ok(()),
        };
        Err(Error::Unsupported(why.to_owned()))
    }

    /// Whether one thread of the host does it, whatever the target.
    pub fn is_single_threaded(&self) -> bool {
        matches!(self.task, Task::Convert(_) | Task::Pool(_) | Task::Standard(_))
    }

    /// Makes what a run needs. It is freed with what comes back; hold one at a time.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] where the target cannot do it, with the reason; [`Error::OutOfMemory`].
    pub fn prepare(&self, target: &Target) -> Result<Prepared, Error> {
        self.check(target)?;
        match &self.task {
            Task::Product(product) => product.program().prepare(target),
            Task::Attention(attend) => attend.program().prepare(target),
            Task::Standard(standard) => Ok(standard.prepare()),
            Task::Convert(convert) => convert.prepare(),
            Task::TableRows(rows) => rows.program().prepare(target),
            Task::Pool(task) => task.prepare(),
            Task::Cache(task) => task.prepare(target),
            Task::Step(step) => step.prepare(target),
        }
    }
}

/// A format in names.
pub(crate) fn word(dtype: DType) -> String {
    dtype.name().to_ascii_lowercase()
}

impl Operations {
    /// For what moves bytes and computes nothing worth counting.
    pub(crate) const NONE: Self = Self { kind: OperationKind::F32, count: 0 };
}

impl OperationKind {
    /// In reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::I8 => "int8",
        }
    }
}

impl fmt::Display for OperationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One line: name, bytes, operations, whether it is quick.
impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, bytes, operations: Operations { kind, count }, quick, .. } = self;
        write!(f, "{name:<56} {bytes:>11} bytes {count:>13}")?;
        if *count > 0 {
            write!(f, " {kind}")?;
        }
        f.write_str(if *quick { " quick" } else { "" })
    }
}

/// A workload with all it needs.
pub struct Prepared {
    clock: Clock,
    run: Box<dyn FnMut() -> Result<Duration, Error>>,
}

impl Prepared {
    pub(crate) fn new(
        clock: Clock,
        run: impl FnMut() -> Result<Duration, Error> + 'static,
    ) -> Self {
        Self { clock, run: Box::new(run) }
    }

    /// What the times of [`Self::run`] are measured with.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Runs it once. The time is that of what the workload's name says: where a run goes over several equal weights
    /// or caches, the mean of them.
    ///
    /// The first runs of a program take longer (pages are mapped, kernels loaded, graphs captured): leave them out.
    ///
    /// # Errors
    ///
    /// What the backend says.
    pub fn run(&mut self) -> Result<Duration, Error> {
        (self.run)()
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").field("clock", &self.clock).finish_non_exhaustive()
    }
}
