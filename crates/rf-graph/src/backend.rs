//! The contract between graphs and backends: programs, batches and executors.

use std::ops::Range;
use std::sync::Arc;

use rf_kv::{CopyPage, PageCounts, PageGroup, PageId};

use crate::error::BackendError;
use crate::fuse::Fusions;
use crate::graph::Graph;
use crate::input::{Input, QueuedRows};
use crate::kv::KvLayout;
use crate::memory::{MemoryNeed, MemoryUse};
use crate::op_cost::Peak;
use crate::telemetry::{BackendExecutionSummary, Timeline};
use crate::value::RowKind;
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

/// The input of one step: tokens of one or several sequences.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// Token ids of all spans, one span after the other.
    pub ids: &'a [u32],
    /// Tokens by sequence. The spans cover `ids` in order and without gaps.
    pub spans: &'a [Span<'a>],
    /// Indices into `ids` of the rows whose output is requested, ascending.
    pub output_rows: &'a [usize],
    /// Values of the ops [`Op::Input`](crate::Op::Input) of the stage; `None` for a stage without
    /// them.
    pub input: Option<Input<'a>>,
}

/// Consecutive tokens of one sequence.
#[derive(Clone, Debug)]
pub struct Span<'a> {
    /// Indices into [`Batch::ids`].
    pub tokens: Range<usize>,
    /// Tokens of the sequence in the cache, which is the position of the span's first token.
    pub past_tokens: usize,
    /// Pages of the sequence in [`PageGroup::Full`], with room for `past_tokens + tokens.len()`
    /// tokens.
    pub pages: &'a [PageId],
    /// As many pages in [`PageGroup::Window`]; empty for a program without that group. Pages before
    /// those that the window of the span's first token reaches are arbitrary existing ones.
    pub window_pages: &'a [PageId],
    /// The page of the sequence in [`PageGroup::State`]; unused by a program without states. What
    /// it holds before the first token of the sequence is arbitrary and not read.
    pub state: Option<PageId>,
}

impl Span<'_> {
    /// Pages of the sequence in a group.
    pub fn pages_of(&self, group: PageGroup) -> &[PageId] {
        match group {
            PageGroup::Full => self.pages,
            PageGroup::Window => self.window_pages,
            PageGroup::State => self.state.as_slice(),
        }
    }
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

impl<'a> Batch<'a> {
    /// Number of rows of a value of this kind.
    pub fn rows(&self, kind: RowKind) -> usize {
        match kind {
            RowKind::Token => self.ids.len(),
            RowKind::Output => self.output_rows.len(),
        }
    }

    /// The values of [`Self::input`] in host memory; empty without any. Waits for queued ones.
    ///
    /// # Errors
    ///
    /// If the device that computes them failed.
    pub fn input_rows(&self) -> Result<&'a [f32], BackendError> {
        self.input.map_or(Ok(&[]), Input::rows)
    }

    /// Bytes of [`Self::input`].
    pub fn input_bytes(&self) -> u64 {
        self.input.map_or(0, |input| (input.floats() * size_of::<f32>()) as u64)
    }

    /// Checks the batch against the limits of a program, for one of its stages.
    ///
    /// # Errors
    ///
    /// [`BackendError::InvalidBatch`] names the violated limit.
    pub fn check(&self, limits: &BatchLimits, stage: usize) -> Result<(), BackendError> {
        let invalid = |what: String| Err(BackendError::InvalidBatch(what));
        let n = self.ids.len();
        if n == 0 || n > limits.max_batch_tokens {
            return invalid(format!("{n} tokens, the limit is 1 to {}", limits.max_batch_tokens));
        }
        if self.output_rows.len() > limits.max_output_rows {
            return invalid(format!(
                "{} output rows, the limit is {}",
                self.output_rows.len(),
                limits.max_output_rows
            ));
        }
        if let Some(id) = self.ids.iter().find(|id| **id as usize >= limits.vocab_size) {
            return invalid(format!("token id {id}, the vocabulary size is {}", limits.vocab_size));
        }
        if self.output_rows.iter().any(|row| *row >= n)
            || !self.output_rows.is_sorted_by(|a, b| a < b)
        {
            return invalid("output rows are not ascending rows of the batch".into());
        }
        let Some(input_width) = limits.input_widths.get(stage) else {
            return invalid(format!("stage {stage} of {}", limits.input_widths.len()));
        };
        let floats = self.input.map(Input::floats);
        if floats != input_width.map(|width| n * width) {
            let width = input_width.unwrap_or(0);
            let given = floats.unwrap_or(0);
            return invalid(format!("{given} values of input, expected {n} rows of {width}"));
        }
        let mut next = 0;
        for span in self.spans {
            if span.tokens.start != next || span.tokens.end <= next {
                return invalid(format!("span {:?} where {next} was next", span.tokens));
            }
            next = span.tokens.end;
        }
        if next != n {
            return invalid(format!("spans cover {next} of {n} tokens"));
        }
        self.check_pages(limits, PageGroup::Full)?;
        if limits.num_pages.window > 0 {
            self.check_pages(limits, PageGroup::Window)?;
        }
        self.check_states(limits.num_pages.states)
    }

    /// Checks that each sequence has recurrent states of its own, if the program has states.
    fn check_states(&self, num_states: usize) -> Result<(), BackendError> {
        let invalid = |what: String| Err(BackendError::InvalidBatch(what));
        if num_states == 0 {
            return Ok(());
        }
        let mut written = Vec::with_capacity(self.spans.len());
        for span in self.spans {
            match span.state {
                None => return invalid("a sequence without recurrent states".into()),
                Some(state) if state.index() >= num_states => {
                    return invalid(format!("state {} of {num_states}", state.index()));
                }
                Some(state) => written.push(state),
            }
        }
        written.sort_unstable();
        match written.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => invalid(format!("state {} would be written twice", pair[0].index())),
            None => Ok(()),
        }
    }

    /// Checks the pages of a group.
    fn check_pages(&self, limits: &BatchLimits, group: PageGroup) -> Result<(), BackendError> {
        let invalid = |what: String| Err(BackendError::InvalidBatch(what));
        let num_pages = limits.num_pages.of(group);
        let mut written = Vec::with_capacity(self.spans.len());
        for span in self.spans {
            let pages = span.pages_of(group);
            let slots = pages.len() * limits.page_tokens;
            let (past, tokens) = (span.past_tokens, span.tokens.len());
            let Some(end) = past.checked_add(tokens).filter(|end| *end <= slots) else {
                return invalid(format!("{tokens} tokens after {past} in {slots} slots"));
            };
            if let Some(page) = pages.iter().find(|p| p.index() >= num_pages) {
                return invalid(format!("page {} of {num_pages}", page.index()));
            }
            let new = past / limits.page_tokens..end.div_ceil(limits.page_tokens);
            written.extend_from_slice(&pages[new]);
        }
        // Backends write pages in parallel, so sequences may share only pages that no span writes.
        written.sort_unstable();
        if let Some(pair) = written.windows(2).find(|pair| pair[0] == pair[1]) {
            return invalid(format!("page {} would be written twice", pair[0].index()));
        }
        Ok(())
    }
}

/// The limits that a program sets on its batches.
#[derive(Clone, Debug)]
pub struct BatchLimits {
    /// Rows of the embedding table. Without a table, token ids are unused and any value is valid.
    pub vocab_size: usize,
    /// Width of all ops [`Op::Input`](crate::Op::Input) together by stage; `None` for a stage
    /// without them.
    pub input_widths: Vec<Option<usize>>,
    /// See [`Program::max_batch_tokens`].
    pub max_batch_tokens: usize,
    /// See [`Program::max_output_rows`].
    pub max_output_rows: usize,
    /// Tokens per page.
    pub page_tokens: usize,
    /// Number of pages of the cache.
    pub num_pages: PageCounts,
}

impl BatchLimits {
    /// The limits of a program.
    pub fn new(program: &Program) -> Self {
        let graph = &program.graph;
        let vocab_size = graph.ops().iter().rev().find_map(|op| match op {
            crate::Op::Embed { table, .. } => Some(program.weights[table.index()].rows()),
            _ => None,
        });
        let stages = graph.stages().into_iter();
        Self {
            vocab_size: vocab_size.unwrap_or(usize::MAX),
            input_widths: stages
                .map(|stage| {
                    Some(graph.width_of(&stage.inputs)).filter(|_| !stage.inputs.is_empty())
                })
                .collect(),
            max_batch_tokens: program.max_batch_tokens,
            max_output_rows: program.max_output_rows,
            page_tokens: program.kv.page_tokens,
            num_pages: program.kv.num_pages,
        }
    }
}
