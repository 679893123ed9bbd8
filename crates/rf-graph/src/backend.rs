//! The contract between a graph and what executes it.

use std::fmt;
use std::ops::Range;

use rf_kv::PageId;

use crate::fuse::Fusions;
use crate::graph::Graph;
use crate::op_cost::Peak;
use crate::telemetry::{BackendExecutionSummary, Timeline};
use crate::value::RowKind;
use crate::weight::Weight;

/// Something that executes graphs.
pub trait Backend: Send + Sync {
    /// A word: `CPU`, `ROCm`.
    fn name(&self) -> &'static str;

    /// What it runs on, for people: instruction set, threads, device.
    fn description(&self) -> String;

    /// The fused ops that it takes; [`fuse`](crate::fuse()) makes no others.
    fn fusions(&self) -> Fusions;

    /// Memory that a program could have now, in bytes, if that is known.
    fn available_memory_bytes(&self) -> Option<u64>;

    /// Measures the arithmetic throughput of the device. A backend without a measurement knows no
    /// limit.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn measure_peak(&self) -> Result<Peak, BackendError> {
        Ok(Peak::default())
    }

    /// Compiles a program: loads the weights and allocates the KV cache and all buffers.
    ///
    /// # Errors
    ///
    /// If the program has an op or a format that this backend does not take, or memory is short.
    fn compile(
        &self,
        program: Program,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Box<dyn Executor>, BackendError>;
}

/// A compiled program with its KV cache.
pub trait Executor: Send {
    /// Runs one batch and writes the graph's output: `out [output_rows, width of the output]`.
    ///
    /// # Errors
    ///
    /// If the batch is empty or larger than the program allows, or names what does not exist (token
    /// ids, pages). The cache is unchanged then.
    fn forward(&mut self, batch: &Batch<'_>, out: &mut [f32]) -> Result<(), BackendError>;

    /// The largest `k` of [`Self::forward_top_k`]; 0 where a backend only gives whole rows.
    fn max_top_k(&self) -> usize {
        0
    }

    /// Runs one batch and writes the `k` largest elements of each row of the graph's output, `out
    /// [output_rows, k]`: larger first, of equal ones the lower place first, NaN as −∞. Much less than a row of
    /// logits has to leave a device so.
    ///
    /// # Errors
    ///
    /// As [`Self::forward`], and if `k` is 0 or above [`Self::max_top_k`].
    fn forward_top_k(
        &mut self,
        batch: &Batch<'_>,
        k: usize,
        out: &mut [Candidate],
    ) -> Result<(), BackendError> {
        _ = (batch, out);
        Err(BackendError::InvalidBatch(format!("the {k} best of a row are not to be had")))
    }

    /// Copies whole pages of the KV cache, in order.
    ///
    /// # Errors
    ///
    /// If a page does not exist.
    fn copy_pages(&mut self, copies: &[(PageId, PageId)]) -> Result<(), BackendError>;

    /// Memory held.
    fn memory(&self) -> MemoryUse;

    /// Starts or stops taking the time of every op, which costs some speed; starting forgets what was
    /// taken. False where a backend cannot.
    fn profile(&mut self, on: bool) -> bool {
        _ = on;
        false
    }

    /// Keeps, as long as times are taken ([`Self::profile`], which comes first), when each op ran on which thread or
    /// device, up to about so many events: whole batches, the first ones. False where a backend cannot.
    fn record_timeline(&mut self, max_events: usize) -> bool {
        _ = max_events;
        false
    }

    /// What was kept, one timeline per backend; empty where nothing was.
    fn timelines(&self) -> Vec<Timeline> {
        Vec::new()
    }

    /// What ran since times are taken, one summary per backend; empty where none are.
    fn summaries(&self) -> Vec<BackendExecutionSummary> {
        Vec::new()
    }
}

/// What a backend compiles.
#[derive(Debug)]
pub struct Program {
    /// The ops.
    pub graph: Graph,
    /// Weights by [`WeightId::index`](crate::WeightId::index).
    pub weights: Vec<Weight>,
    /// Shape of the KV cache.
    pub kv: KvLayout,
    /// Tokens in the largest batch.
    pub max_batch_tokens: usize,
    /// Rows of output in the largest batch.
    pub max_output_rows: usize,
}

/// One step: some tokens of some sequences.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// Token ids of all spans, one span after the other.
    pub ids: &'a [u32],
    /// Which sequence each token belongs to.
    pub spans: &'a [Span<'a>],
    /// Rows (indices into `ids`) whose output is wanted, ascending.
    pub output_rows: &'a [usize],
    /// What [`Op::Input`](crate::Op::Input) is: `[tokens, width]`. `None` for a graph without it.
    pub input: Option<&'a [f32]>,
}

/// Consecutive tokens of one sequence.
#[derive(Clone, Debug)]
pub struct Span<'a> {
    /// Their indices in [`Batch::ids`].
    pub tokens: Range<usize>,
    /// Tokens of the sequence already in the cache: the position of the first token of the span.
    pub past_tokens: usize,
    /// Pages of the sequence, enough for `past_tokens + tokens.len()`.
    pub pages: &'a [PageId],
}

/// Shape of the KV cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvLayout {
    /// `(num_kv_heads, head_dim)` of each layer.
    pub layers: Vec<(usize, usize)>,
    /// Tokens per page: 16, 32 or 64.
    pub page_tokens: usize,
    /// Pages.
    pub num_pages: usize,
    /// Storage format.
    pub dtype: KvType,
}

impl KvLayout {
    /// Bytes that one token takes over all layers, keys and values.
    pub fn bytes_per_token(&self) -> usize {
        self.layers.iter().map(|&(heads, dim)| 2 * heads * self.dtype.head_bytes(dim)).sum()
    }

    /// Bytes of the whole cache.
    pub fn bytes(&self) -> usize {
        self.bytes_per_token() * self.page_tokens * self.num_pages
    }
}

/// Storage format of keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KvType {
    /// 4 bytes.
    F32,
    /// 2 bytes.
    F16,
    /// One byte and an f16 scale per 32 elements of a head.
    Q8_0,
    /// One byte, [`rf_quant::E4m3`]: no scale, saturating at 448.
    Fp8,
}

impl KvType {
    /// All types.
    pub const ALL: [Self; 4] = [Self::F32, Self::F16, Self::Q8_0, Self::Fp8];

    /// The name that users write: `f16`.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Q8_0 => "q8_0",
            Self::Fp8 => "fp8",
        }
    }

    /// Bytes of one head of one token.
    pub fn head_bytes(self, head_dim: usize) -> usize {
        match self {
            Self::F32 => 4 * head_dim,
            Self::F16 => 2 * head_dim,
            Self::Q8_0 => head_dim + 2 * head_dim.div_ceil(32),
            Self::Fp8 => head_dim,
        }
    }
}

/// An element of an output row: a token that may come next.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Candidate {
    /// Its place in the row.
    pub id: u32,
    /// The element.
    pub logit: f32,
}

/// Progress of loading.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Bytes of weights loaded so far.
    pub done_bytes: u64,
    /// Bytes of all weights.
    pub total_bytes: u64,
}

/// Memory held by an executor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Weights, in the backend's own layout or mapped.
    pub weights_bytes: u64,
    /// KV cache.
    pub kv_bytes: u64,
    /// Everything that a batch needs.
    pub buffers_bytes: u64,
}

/// Why a backend did not do it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// The program asks for something that this backend has not got.
    #[error("{backend} cannot run {what}")]
    Unsupported {
        /// Name of the backend.
        backend: &'static str,
        /// The op, format or shape.
        what: String,
    },
    /// The batch does not fit the program.
    #[error("invalid batch: {0}")]
    InvalidBatch(String),
    /// Not enough memory.
    #[error("out of memory: {what}{}", size(*bytes))]
    OutOfMemory {
        /// What was to be allocated.
        what: &'static str,
        /// Its size; 0 if that is not known.
        bytes: u64,
    },
    /// The device or its runtime failed.
    #[error("{0}")]
    Device(String),
}

/// In parentheses, for an error.
fn size(bytes: u64) -> String {
    match bytes {
        0 => String::new(),
        bytes => format!(" ({} MiB)", bytes.div_ceil(1 << 20)),
    }
}

impl Batch<'_> {
    /// Rows of a value of a kind.
    pub fn rows(&self, kind: RowKind) -> usize {
        match kind {
            RowKind::Token => self.ids.len(),
            RowKind::Output => self.output_rows.len(),
        }
    }

    /// Checks a batch against the program it is for.
    ///
    /// # Errors
    ///
    /// [`BackendError::InvalidBatch`] says what does not fit.
    pub fn check(&self, limits: &BatchLimits) -> Result<(), BackendError> {
        let invalid = |what: String| Err(BackendError::InvalidBatch(what));
        let n = self.ids.len();
        if n == 0 || n > limits.max_batch_tokens {
            return invalid(format!("{n} tokens, allowed are 1 to {}", limits.max_batch_tokens));
        }
        if self.output_rows.len() > limits.max_output_rows {
            return invalid(format!(
                "{} output rows, allowed are {}",
                self.output_rows.len(),
                limits.max_output_rows
            ));
        }
        if let Some(id) = self.ids.iter().find(|id| **id as usize >= limits.vocab_size) {
            return invalid(format!("token id {id}, the vocabulary has {}", limits.vocab_size));
        }
        if self.output_rows.iter().any(|row| *row >= n)
            || !self.output_rows.is_sorted_by(|a, b| a < b)
        {
            return invalid("output rows are not ascending rows of the batch".into());
        }
        let floats = self.input.map(<[f32]>::len);
        if floats != limits.input_width.map(|width| n * width) {
            let due = limits.input_width.unwrap_or(0);
            let given = floats.unwrap_or(0);
            return invalid(format!("{given} values of input, {n} rows of {due} are due"));
        }
        let mut next = 0;
        let mut written = Vec::with_capacity(self.spans.len());
        for span in self.spans {
            if span.tokens.start != next || span.tokens.end <= next {
                return invalid(format!("span {:?} where {next} was next", span.tokens));
            }
            next = span.tokens.end;
            let slots = span.pages.len() * limits.page_tokens;
            let (past, tokens) = (span.past_tokens, span.tokens.len());
            let Some(end) = past.checked_add(tokens).filter(|end| *end <= slots) else {
                return invalid(format!("{tokens} tokens after {past} in {slots} slots"));
            };
            if let Some(page) = span.pages.iter().find(|p| p.index() >= limits.num_pages) {
                return invalid(format!("page {} of {}", page.index(), limits.num_pages));
            }
            let pages = past / limits.page_tokens..end.div_ceil(limits.page_tokens);
            written.extend_from_slice(&span.pages[pages]);
        }
        if next != n {
            return invalid(format!("spans cover {next} of {n} tokens"));
        }
        // Backends write pages in parallel; sharing is for pages that are only read.
        written.sort_unstable();
        if let Some(pair) = written.windows(2).find(|pair| pair[0] == pair[1]) {
            return invalid(format!("page {} would be written twice", pair[0].index()));
        }
        Ok(())
    }
}

/// What a program allows in a batch.
#[derive(Clone, Copy, Debug)]
pub struct BatchLimits {
    /// Rows of the embedding table; without one, ids mean nothing and any is allowed.
    pub vocab_size: usize,
    /// Width of [`Op::Input`](crate::Op::Input), if the graph has it.
    pub input_width: Option<usize>,
    /// See [`Program::max_batch_tokens`].
    pub max_batch_tokens: usize,
    /// See [`Program::max_output_rows`].
    pub max_output_rows: usize,
    /// Tokens per page.
    pub page_tokens: usize,
    /// Pages of the cache.
    pub num_pages: usize,
}

impl BatchLimits {
    /// The limits of a program.
    pub fn new(program: &Program) -> Self {
        let (mut vocab_size, mut input_width) = (None, None);
        for op in program.graph.ops() {
            match op {
                crate::Op::Embed { table, .. } => {
                    vocab_size = Some(program.weights[table.index()].rows());
                }
                crate::Op::Input { out } => input_width = Some(program.graph.value(*out).width),
                _ => {}
            }
        }
        Self {
            vocab_size: vocab_size.unwrap_or(usize::MAX),
            input_width,
            max_batch_tokens: program.max_batch_tokens,
            max_output_rows: program.max_output_rows,
            page_tokens: program.kv.page_tokens,
            num_pages: program.kv.num_pages,
        }
    }
}

impl fmt::Display for KvType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
