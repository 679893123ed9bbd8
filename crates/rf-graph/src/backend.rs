//! The contract between graphs and backends: what compiles programs, and what runs them.

use rf_kv::{CopyPage, PageGroup, PageId};

use crate::batch::Batch;
use crate::collective::Member;
use crate::error::BackendError;
use crate::fuse::{Fusions, fuse};
use crate::memory::{MemoryNeed, MemoryUse};
use crate::op_cost::Peak;
use crate::output::Output;
use crate::program::Program;
use crate::telemetry::Telemetry;

/// A device with the code that executes graphs on it.
pub trait Backend: Send + Sync {
    /// A short name such as `CPU` or `GPU`.
    fn name(&self) -> &'static str;

    /// A description for people: instruction set, threads, device.
    fn description(&self) -> String;

    /// The supported fusions. [`fuse`](crate::fuse()) applies no others.
    fn fusions(&self) -> Fusions;

    /// Returns true if matmuls with weights of 16 bits, and attention over a cache that is not f32,
    /// may round their left operand to f16. `rf_oracle::case::ErrorBound::with_f16_operands` states
    /// the allowed error.
    fn rounds_operands_to_f16(&self) -> bool {
        false
    }

    /// Free memory for a program, in bytes; `None` if unknown.
    fn available_memory_bytes(&self) -> Option<u64>;

    /// Measures the arithmetic throughput of the device. By default nothing is measured and the
    /// throughput is unknown.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn measure_peak(&self) -> Result<Peak, BackendError> {
        Ok(Peak::default())
    }

    /// Computes the memory that [`Self::compile`] takes for a program, which is already fused for
    /// this backend. Nothing is loaded or allocated.
    ///
    /// This is the only arithmetic of memory: memory plans, layer placement and load-time checks
    /// use it. Its `held` part equals [`Executor::memory`] after compilation.
    ///
    /// # Errors
    ///
    /// If the backend does not support an op or a format of the program.
    fn memory_need(&self, program: &Program) -> Result<MemoryNeed, BackendError>;

    /// Checks that a program fits in the memory available now.
    ///
    /// # Errors
    ///
    /// [`BackendError::DoesNotFit`] if it does not, and as [`Self::memory_need`].
    fn check_memory(&self, program: &Program) -> Result<(), BackendError> {
        let need = self.memory_need(program)?;
        match self.available_memory_bytes() {
            Some(available_bytes) if need.total_bytes() > available_bytes => {
                Err(BackendError::DoesNotFit { backend: self.name(), need, available_bytes })
            }
            _ => Ok(()),
        }
    }

    /// Compiles a program: loads the weights and allocates the KV cache and all buffers.
    ///
    /// # Errors
    ///
    /// If this backend does not support an op or a format of the program, or memory is short.
    fn compile(
        &self,
        program: Program,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Box<dyn Executor>, BackendError>;
}

/// A compiled program with its KV cache.
pub trait Executor: Send {
    /// Runs one stage of a batch and writes the requested rows. Stages that share values run in
    /// order.
    ///
    /// # Errors
    ///
    /// If the batch is empty, exceeds a limit of the program, or refers to a stage, a token id or a
    /// page that does not exist, or the backend does not compute such an output. The KV cache is
    /// unchanged in these cases.
    fn forward(&mut self, batch: &Batch<'_>, output: Output<'_>) -> Result<(), BackendError>;

    /// Waits for all batches. A batch without output rows may still be computed when
    /// [`Self::forward`] returns; later calls of the executor wait for it where they need to.
    ///
    /// # Errors
    ///
    /// If such a batch failed. Later batches fail, too.
    fn wait(&mut self) -> Result<(), BackendError> {
        Ok(())
    }

    /// Makes this executor a part of several that run a divided program together: its ops
    /// [`Op::AllReduce`](crate::Op::AllReduce) sum over them. Called once, before the first batch.
    ///
    /// # Errors
    ///
    /// If the backend cannot sum over parts.
    fn join(&mut self, member: Member) -> Result<(), BackendError> {
        drop(member);
        let what = "a part of a model: it has no sums over parts".to_owned();
        Err(BackendError::Unsupported { backend: "this backend", what })
    }

    /// The largest `k` of [`OutputRows::TopK`](crate::OutputRows::TopK); 0 if the backend returns
    /// whole rows only.
    fn max_top_k(&self) -> usize {
        0
    }

    /// Returns true if spans may have [media](crate::Media) and positions that differ from places.
    fn takes_media(&self) -> bool {
        true
    }

    /// Copies whole pages, in order, in the layers of their group: of the KV cache, or the
    /// recurrent states of a sequence.
    ///
    /// # Errors
    ///
    /// If a page does not exist.
    fn copy_pages(&mut self, copies: &[CopyPage]) -> Result<(), BackendError>;

    /// Appends the contents of a page in all layers of its group to `out`, in a form that only
    /// [`Self::write_page`] of the same program on the same backend reads.
    ///
    /// # Errors
    ///
    /// If the page does not exist, or the backend cannot read pages.
    fn read_page(
        &self,
        group: PageGroup,
        page: PageId,
        out: &mut Vec<u8>,
    ) -> Result<(), BackendError> {
        _ = (group, page, out);
        let what = "reading the pages of the cache".to_owned();
        Err(BackendError::Unsupported { backend: "this backend", what })
    }

    /// Replaces the contents of a page by those that [`Self::read_page`] returned.
    ///
    /// # Errors
    ///
    /// If the page does not exist or has another size, or the backend cannot write pages.
    fn write_page(
        &mut self,
        group: PageGroup,
        page: PageId,
        bytes: &[u8],
    ) -> Result<(), BackendError> {
        _ = (group, page, bytes);
        let what = "writing the pages of the cache".to_owned();
        Err(BackendError::Unsupported { backend: "this backend", what })
    }

    /// Allocated memory, in bytes.
    fn memory(&self) -> MemoryUse;

    /// The measurements; `None` if the executor takes none.
    fn telemetry(&mut self) -> Option<&mut dyn Telemetry> {
        None
    }
}

impl Program {
    /// The program with the fused ops that a backend supports.
    #[must_use]
    pub fn fused_for(self, backend: &dyn Backend) -> Self {
        Self { graph: fuse(self.graph, backend.fusions()), ..self }
    }
}

/// Progress of loading the weights.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Bytes of weights loaded so far.
    pub done_bytes: u64,
    /// Bytes of all weights.
    pub total_bytes: u64,
}
