//! The contract between graphs and backends: programs and executors.

use std::sync::Arc;

use rf_kv::{CopyPage, PageGroup, PageId};

use crate::batch::Batch;
use crate::error::BackendError;
use crate::fuse::Fusions;
use crate::graph::Graph;
use crate::input::QueuedRows;
use crate::kv::KvLayout;
use crate::memory::{MemoryNeed, MemoryUse};
use crate::op_cost::Peak;
use crate::telemetry::{BackendExecutionSummary, Timeline};
use crate::weight::Weight;

/// A device with the code that executes graphs on it.
pub trait Backend: Send + Sync {
    /// A short name such as `CPU` or `GPU`.
    fn name(&self) -> &'static str;

    /// A description for people: instruction set, threads, device.
    fn description(&self) -> String;

    /// The supported fusions. [`fuse`](crate::fuse()) applies no others.
    fn fusions(&self) -> Fusions;

    /// Returns true if matmuls with weights of 16 bits, and attention over a cache that is not f32,
    /// may round their left operand to f16.
    /// [`Bound::with_f16_operands`](crate::case::Bound::with_f16_operands) states the allowed
    /// error.
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
    /// Runs one batch and writes the output of the graph to `out`, `[output_rows, width]`. Of a
    /// graph of several stages it runs the last one.
    ///
    /// # Errors
    ///
    /// If the batch is empty, exceeds a limit of the program, or refers to a token id or a page
    /// that does not exist. The KV cache is unchanged in these cases.
    fn forward(&mut self, batch: &Batch<'_>, out: &mut [f32]) -> Result<(), BackendError>;

    /// Runs one stage of a batch ([`Graph::stages`]) and writes its outputs to `out`, one after the
    /// other, each `[rows, width]`. Stages that share values run in order.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::forward`], and if there is no such stage.
    fn forward_stage(
        &mut self,
        stage: usize,
        batch: &Batch<'_>,
        out: &mut [f32],
    ) -> Result<(), BackendError> {
        if stage > 0 {
            let what = format!("stage {stage} of a program of one stage");
            return Err(BackendError::InvalidBatch(what));
        }
        self.forward(batch, out)
    }

    /// Queues a stage of a batch and returns its outputs, which the executor may compute later:
    /// the input of a stage of another executor. Returns `None`, and does nothing, if the backend
    /// computes such a batch only in [`Self::forward_stage`].
    ///
    /// A failure of the stage may be reported by [`Self::wait`] only.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::forward_stage`].
    fn queue_stage(
        &mut self,
        stage: usize,
        batch: &Batch<'_>,
    ) -> Result<Option<Arc<dyn QueuedRows>>, BackendError> {
        _ = (stage, batch);
        Ok(None)
    }

    /// Waits for all batches. A batch without output rows may still be computed when
    /// [`Self::forward`] returns; later calls of the executor wait for it where they need to.
    ///
    /// # Errors
    ///
    /// If such a batch failed. Later batches fail, too.
    fn wait(&mut self) -> Result<(), BackendError> {
        Ok(())
    }

    /// The largest `k` of [`Self::forward_top_k`]; 0 if the backend returns whole rows only.
    fn max_top_k(&self) -> usize {
        0
    }

    /// Runs one batch and writes the `k` largest elements of each output row to `out`,
    /// `[output_rows, k]`. Larger elements come first, equal ones in the order of the row; NaN
    /// counts as −∞. This copies far fewer bytes from a device than whole rows of logits.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::forward`], and if `k` is 0 or above [`Self::max_top_k`].
    fn forward_top_k(
        &mut self,
        batch: &Batch<'_>,
        k: usize,
        out: &mut [Candidate],
    ) -> Result<(), BackendError> {
        _ = (batch, out);
        Err(BackendError::InvalidBatch(format!(
            "this backend does not select the {k} largest elements of a row"
        )))
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

    /// Starts or stops profiling: the backend times every op, which costs some speed. Starting
    /// discards earlier measurements. Returns false if the backend has no profiler.
    fn profile(&mut self, on: bool) -> bool {
        _ = on;
        false
    }

    /// Records a timeline while profiling is on: the start and duration of each op on each thread
    /// or device. Call [`Self::profile`] first. The timeline holds about `max_events` events;
    /// batches beyond that are dropped whole. Returns false if the backend records no timeline.
    fn record_timeline(&mut self, max_events: usize) -> bool {
        _ = max_events;
        false
    }

    /// The recorded timelines, one per backend; empty if none was recorded.
    fn timelines(&self) -> Vec<Timeline> {
        Vec::new()
    }

    /// Summaries since profiling started, one per backend; empty if profiling is off.
    fn summaries(&self) -> Vec<BackendExecutionSummary> {
        Vec::new()
    }
}

/// A graph with its weights, KV cache and batch limits: the input of [`Backend::compile`]. Weights
/// are shared, so a clone is cheap.
#[derive(Clone, Debug)]
pub struct Program {
    /// Ops and values.
    pub graph: Graph,
    /// Weights by [`WeightId::index`](crate::WeightId::index).
    pub weights: Vec<Weight>,
    /// Shape of the KV cache.
    pub kv: KvLayout,
    /// Largest number of tokens of a batch.
    pub max_batch_tokens: usize,
    /// Largest number of output rows of a batch.
    pub max_output_rows: usize,
}

/// An element of an output row: a candidate for the next token.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Candidate {
    /// Token id: the index of the element in the row.
    pub id: u32,
    /// Logit: the value of the element.
    pub logit: f32,
}

/// Progress of loading the weights.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Bytes of weights loaded so far.
    pub done_bytes: u64,
    /// Bytes of all weights.
    pub total_bytes: u64,
}
