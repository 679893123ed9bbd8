//! Stand-ins for backends.

use std::sync::atomic::{AtomicUsize, Ordering};

use rf_graph::{
    Backend, BackendError, Batch, Executor, Fusions, Member, MemoryNeed, MemoryUse, Output,
    Program, Progress,
};
use rf_kv::CopyPage;

/// A backend with a name, an amount of memory and failures of the test's choice, which computes on
/// another one.
pub struct StubBackend {
    inner: Box<dyn Backend>,
    name: &'static str,
    available_bytes: u64,
    failures: AtomicUsize,
    steps: Option<usize>,
}

/// An executor whose device is lost after some steps.
struct MortalExecutor {
    inner: Box<dyn Executor>,
    steps: usize,
}

impl StubBackend {
    /// A backend with this much memory.
    pub fn new(inner: impl Backend + 'static, name: &'static str, available_bytes: u64) -> Self {
        Self { inner: Box::new(inner), name, available_bytes, failures: 0.into(), steps: None }
    }

    /// The first attempts to compile a program fail for want of memory.
    #[must_use]
    pub fn with_failures(self, count: usize) -> Self {
        Self { failures: count.into(), ..self }
    }

    /// Executors lose their device after this many steps: all later ones fail.
    #[must_use]
    pub fn with_steps(self, steps: usize) -> Self {
        Self { steps: Some(steps), ..self }
    }
}

impl Backend for StubBackend {
    fn name(&self) -> &'static str {
        self.name
    }

    fn description(&self) -> String {
        "test".into()
    }

    fn fusions(&self) -> Fusions {
        self.inner.fusions()
    }

    fn available_memory_bytes(&self) -> Option<u64> {
        Some(self.available_bytes)
    }

    fn memory_need(&self, program: &Program) -> Result<MemoryNeed, BackendError> {
        // A program that arrives here is fused already.
        let again = rf_graph::fuse(program.graph.clone(), self.inner.fusions());
        assert_eq!(again.ops().len(), program.graph.ops().len());
        self.inner.memory_need(program)
    }

    fn compile(
        &self,
        program: Program,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Box<dyn Executor>, BackendError> {
        let decrement = |failures: usize| failures.checked_sub(1);
        let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
        if self.failures.fetch_update(set, get, decrement).is_ok() {
            return Err(BackendError::OutOfMemory { what: "test", bytes: 1 });
        }
        let inner = self.inner.compile(program, progress)?;
        Ok(match self.steps {
            Some(steps) => Box::new(MortalExecutor { inner, steps }),
            None => inner,
        })
    }
}

impl Executor for MortalExecutor {
    fn forward(&mut self, batch: &Batch<'_>, output: Output<'_>) -> Result<(), BackendError> {
        let Some(rest) = self.steps.checked_sub(1) else {
            return Err(BackendError::Device("the device is lost".into()));
        };
        self.steps = rest;
        self.inner.forward(batch, output)
    }

    fn join(&mut self, member: Member) -> Result<(), BackendError> {
        self.inner.join(member)
    }

    fn max_top_k(&self) -> usize {
        self.inner.max_top_k()
    }

    fn copy_pages(&mut self, copies: &[CopyPage]) -> Result<(), BackendError> {
        self.inner.copy_pages(copies)
    }

    fn memory(&self) -> MemoryUse {
        self.inner.memory()
    }
}
