//! Several backends as one that runs divided programs.

use std::sync::Arc;
use std::time::Duration;

use super::executor::{self, TensorExecutor};
use super::{Divided, Division, divide};
use crate::backend::{Backend, Executor, Progress};
use crate::collective::{Member, Rendezvous};
use crate::error::BackendError;
use crate::fuse::Fusions;
use crate::memory::MemoryNeed;
use crate::program::Program;

/// The longest time for which a part waits for another one in a step, by default. Between two sums
/// a part computes half a layer.
const LIMIT: Duration = Duration::from_mins(2);

/// Backends that compute every layer of a program together: see [`divide`].
pub struct TensorBackend<'a> {
    backends: Vec<&'a dyn Backend>,
    shares: Vec<f32>,
    shares_memory: bool,
    limit: Duration,
}

impl<'a> TensorBackend<'a> {
    /// Divides programs over backends in proportion to their shares. Those with a share of 0 have
    /// no part. `None` if no share is above 0.
    ///
    /// The backends run at the same time, so no two may share threads or a device. A backend that
    /// occurs twice would wait for itself.
    pub fn new(backends: &[(&'a dyn Backend, f32)]) -> Option<Self> {
        let used = backends.iter().filter(|(_, share)| *share > 0.0);
        let (backends, shares): (Vec<_>, Vec<_>) = used.copied().unzip();
        (!shares.is_empty()).then_some(Self {
            backends,
            shares,
            shares_memory: false,
            limit: LIMIT,
        })
    }

    /// States that the backends allocate from the same memory, as those of a CPU do.
    #[must_use]
    pub fn with_shared_memory(self) -> Self {
        Self { shares_memory: true, ..self }
    }

    /// Sets the longest time for which a part waits for another one in a step.
    #[must_use]
    pub fn with_limit(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// Returns the matrices of a program that are divided, and those that are not.
    pub fn division(&self, program: &Program) -> Division {
        divide(program, &self.shares).division
    }

    /// The parts of a program, each fused for its backend.
    fn divided(&self, program: &Program) -> Divided {
        let Divided { parts, stages, division } = divide(program, &self.shares);
        let fused = parts.into_iter().zip(&self.backends);
        let parts = fused.map(|(part, backend)| part.fused_for(*backend)).collect();
        Divided { parts, stages, division }
    }

    fn needs(&self, divided: &Divided) -> Result<Vec<MemoryNeed>, BackendError> {
        let parts = divided.parts.iter().zip(&self.backends);
        parts.map(|(part, backend)| backend.memory_need(part)).collect()
    }
}

impl Backend for TensorBackend<'_> {
    fn name(&self) -> &'static str {
        "tensor"
    }

    fn description(&self) -> String {
        let descriptions: Vec<_> = self.backends.iter().map(|b| b.description()).collect();
        descriptions.join("; ")
    }

    /// None: the program is divided before each part is fused.
    fn fusions(&self) -> Fusions {
        Fusions::NONE
    }

    fn rounds_operands_to_f16(&self) -> bool {
        self.backends.iter().any(|backend| backend.rounds_operands_to_f16())
    }

    fn available_memory_bytes(&self) -> Option<u64> {
        let mut bytes = self.backends.iter().map(|backend| backend.available_memory_bytes());
        if self.shares_memory {
            return bytes.next()?;
        }
        bytes.try_fold(0, |sum: u64, bytes| Some(sum.saturating_add(bytes?)))
    }

    fn memory_need(&self, program: &Program) -> Result<MemoryNeed, BackendError> {
        let divided = self.divided(program);
        let parts = self.needs(&divided)?.into_iter();
        let all = parts.fold(MemoryNeed::default(), |sum, need| sum + need);
        Ok(all + executor::memory_need(program, &divided.stages, self.shares.len()))
    }

    /// Checks each part against the memory of its backend, or all parts against a shared one.
    fn check_memory(&self, program: &Program) -> Result<(), BackendError> {
        let divided = self.divided(program);
        if !self.shares_memory {
            let mut parts = divided.parts.iter().zip(&self.backends);
            return parts.try_for_each(|(part, backend)| backend.check_memory(part));
        }
        let need = self.memory_need(program)?;
        match self.available_memory_bytes() {
            Some(available_bytes) if need.total_bytes() > available_bytes => {
                let backend = self.backends[0].name();
                Err(BackendError::DoesNotFit { backend, need, available_bytes })
            }
            _ => Ok(()),
        }
    }

    fn compile(
        &self,
        program: Program,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Box<dyn Executor>, BackendError> {
        let Divided { parts, stages, .. } = self.divided(&program);
        let rendezvous = Arc::new(Rendezvous::new(parts.len(), self.limit));
        let bytes: Vec<u64> = parts.iter().map(weight_bytes).collect();
        let total_bytes = bytes.iter().sum();
        let mut before = 0;
        let mut executors = Vec::with_capacity(parts.len());
        for (part, (program, backend)) in parts.into_iter().zip(&self.backends).enumerate() {
            let mut executor =
                backend.compile(program, &mut |Progress { done_bytes, .. }| {
                    let done_bytes = before + done_bytes.min(bytes[part]);
                    progress(Progress { done_bytes, total_bytes });
                })?;
            let collective = Arc::clone(&rendezvous) as _;
            executor.join(Member { collective, part })?;
            executors.push(executor);
            before += bytes[part];
        }
        let executor = TensorExecutor::new(&program, executors, stages, rendezvous, self.limit)?;
        Ok(Box::new(executor))
    }
}

fn weight_bytes(program: &Program) -> u64 {
    program.weights.iter().map(|weight| weight.size_bytes() as u64).sum()
}
