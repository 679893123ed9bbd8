//! A model on a backend: where tokens become logits.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use rf_graph::{
    Backend, BackendError, BackendExecutionSummary, Batch, Candidate, Executor, KvType, MemoryUse,
    Program, Progress, Span, Timeline, fuse,
};
use rf_kv::{PagePool, PageSize, PoolStats};
use tracing::field::Empty;

use crate::error::Error;
use crate::model::{MemoryPlan, Model};
use crate::session::Session;

/// How to load a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Tokens per sequence; by default the model's context, at most
    /// [`DEFAULT_CONTEXT_TOKENS`](Self::DEFAULT_CONTEXT_TOKENS).
    pub context_tokens: Option<usize>,
    /// Tokens that are computed at once: longer prompts go in chunks.
    pub batch_tokens: usize,
    /// Tokens per page of the KV cache: 16, 32 or 64.
    pub page_tokens: usize,
    /// Storage of the KV cache.
    pub kv_type: KvType,
    /// Sequences that the KV cache has room for.
    pub max_sequences: usize,
}

impl EngineOptions {
    /// Context where none is given, so that a model made for 128k tokens runs on a small machine.
    pub const DEFAULT_CONTEXT_TOKENS: usize = 4096;
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            context_tokens: None,
            batch_tokens: 512,
            page_tokens: 32,
            kv_type: KvType::F16,
            max_sequences: 1,
        }
    }
}

/// A model loaded on a backend.
pub struct Engine {
    model: Model,
    executor: Box<dyn Executor>,
    pool: Arc<Mutex<PagePool>>,
    plan: MemoryPlan,
    batch_tokens: usize,
    page_tokens: usize,
}

/// New tokens of one sequence.
#[derive(Debug)]
pub struct Feed<'a> {
    /// The sequence; it has the tokens afterwards.
    pub session: &'a mut Session,
    /// At least one token.
    pub ids: &'a [u32],
    /// Of which tokens the logits are wanted.
    pub outputs: Outputs,
}

/// Of which tokens the logits are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outputs {
    /// None: the tokens only join the cache.
    None,
    /// The last one.
    Last,
    /// All.
    All,
}

/// Has an executor run one batch, and keeps what comes out.
type Step<'a> = dyn FnMut(&mut dyn Executor, &Batch<'_>) -> Result<(), BackendError> + 'a;

impl Engine {
    /// Loads a model.
    ///
    /// # Errors
    ///
    /// If it does not fit in memory, or the backend has not got what it needs.
    pub fn load(
        model: Model,
        backend: &dyn Backend,
        options: EngineOptions,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, Error> {
        let _span = tracing::info_span!("model_load").entered();
        let plan = model.memory_plan(&options)?;
        if let Some(available_bytes) = backend.available_memory_bytes()
            && plan.total_bytes() > available_bytes
        {
            return Err(Error::DoesNotFit { needed_bytes: plan.total_bytes(), available_bytes });
        }
        let page_size = PageSize::try_from(options.page_tokens)?;
        let program = model.program(&options)?;
        let pool = PagePool::new(program.kv.num_pages, page_size);
        let program = Program { graph: fuse(program.graph, backend.fusions()), ..program };
        let executor = backend.compile(program, progress)?;
        Ok(Self {
            plan,
            batch_tokens: options.batch_tokens,
            page_tokens: page_size.tokens(),
            pool: Arc::new(Mutex::new(pool)),
            executor,
            model,
        })
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Tokens per sequence.
    pub fn context_tokens(&self) -> usize {
        self.plan.context_tokens
    }

    /// Tokens that are computed at once.
    pub fn batch_tokens(&self) -> usize {
        self.batch_tokens
    }

    /// Tokens per page of the KV cache.
    pub fn page_tokens(&self) -> usize {
        self.page_tokens
    }

    /// Memory held by the backend.
    pub fn memory(&self) -> MemoryUse {
        self.executor.memory()
    }

    /// Memory that was planned before loading.
    pub fn memory_plan(&self) -> MemoryPlan {
        self.plan
    }

    /// Pages of the KV cache: held, free, handed out so far.
    pub fn kv_stats(&self) -> PoolStats {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner).stats()
    }

    /// Starts or stops taking the time of every op; false where the backend cannot.
    pub fn profile(&mut self, on: bool) -> bool {
        self.executor.profile(on)
    }

    /// What ran since times are taken, one summary per backend.
    pub fn summaries(&self) -> Vec<BackendExecutionSummary> {
        self.executor.summaries()
    }

    /// Keeps, while times are taken ([`profile`](Self::profile)), when each op ran on each thread or device: the first
    /// batches, up to about so many events of each backend. False where no backend can.
    pub fn record_timeline(&mut self, max_events: usize) -> bool {
        self.executor.record_timeline(max_events)
    }

    /// What was kept, one timeline per backend.
    pub fn timelines(&self) -> Vec<Timeline> {
        self.executor.timelines()
    }

    /// A new, empty sequence.
    pub fn session(&self) -> Session {
        Session::new(Arc::clone(&self.pool))
    }

    /// Feeds tokens, of several sequences at once, and returns the logits that were asked for: rows of
    /// `vocab_size`, in the order of the feeds. More tokens than fit a batch go in chunks; the result
    /// does not depend on how.
    ///
    /// # Errors
    ///
    /// If a sequence outgrows its context, the cache is full, or the backend fails. Sequences keep the
    /// tokens of the chunks that were computed.
    pub fn forward(&mut self, feeds: &mut [Feed<'_>]) -> Result<Vec<f32>, Error> {
        let vocab_size = self.model.config().vocab_size;
        let mut logits = Vec::new();
        self.run(feeds, &mut |executor, batch| {
            let at = logits.len();
            logits.resize(at + batch.output_rows.len() * vocab_size, 0.0);
            executor.forward(batch, &mut logits[at..])
        })?;
        Ok(logits)
    }

    /// The largest `k` of [`forward_top_k`](Self::forward_top_k); 0 where the backend only gives logits.
    pub fn max_top_k(&self) -> usize {
        self.executor.max_top_k()
    }

    /// As [`forward`](Self::forward), but only the `k` most probable tokens of each row: rows of `k`, the most
    /// probable first, of equal ones the lower id first.
    ///
    /// # Errors
    ///
    /// As [`forward`](Self::forward), and if `k` is 0 or above [`max_top_k`](Self::max_top_k).
    pub fn forward_top_k(
        &mut self,
        feeds: &mut [Feed<'_>],
        k: usize,
    ) -> Result<Vec<Candidate>, Error> {
        let mut best = Vec::new();
        self.run(feeds, &mut |executor, batch| {
            let at = best.len();
            best.resize(at + batch.output_rows.len() * k, Candidate::default());
            executor.forward_top_k(batch, k, &mut best[at..])
        })?;
        Ok(best)
    }

    /// Feeds tokens in batches, each of which goes to `step`.
    fn run(&mut self, feeds: &mut [Feed<'_>], step: &mut Step<'_>) -> Result<(), Error> {
        let vocab_size = self.model.config().vocab_size;
        for feed in &*feeds {
            let prompt_tokens = feed.session.len() + feed.ids.len();
            if prompt_tokens > self.plan.context_tokens {
                return Err(Error::PromptTooLong {
                    prompt_tokens,
                    context_tokens: self.plan.context_tokens,
                });
            }
            if feed.ids.is_empty() {
                return Err(Error::EmptyPrompt);
            }
            if let Some(&id) = feed.ids.iter().find(|id| **id as usize >= vocab_size) {
                return Err(Error::UnknownToken { id, vocab_size });
            }
        }
        let mut pieces: Vec<(usize, Range<usize>)> = Vec::new();
        let mut room = self.batch_tokens;
        for index in 0..feeds.len() {
            let mut at = 0;
            while at < feeds[index].ids.len() {
                let end = feeds[index].ids.len().min(at + room);
                pieces.push((index, at..end));
                room -= end - at;
                at = end;
                if room == 0 {
                    self.batch(feeds, &pieces, step)?;
                    pieces.clear();
                    room = self.batch_tokens;
                }
            }
        }
        if !pieces.is_empty() {
            self.batch(feeds, &pieces, step)?;
        }
        Ok(())
    }

    /// Computes one batch: some tokens of some feeds. If it fails, every sequence is as it was.
    fn batch(
        &mut self,
        feeds: &mut [Feed<'_>],
        pieces: &[(usize, Range<usize>)],
        step: &mut Step<'_>,
    ) -> Result<(), Error> {
        let tokens: usize = pieces.iter().map(|(_, range)| range.len()).sum();
        let span = tracing::debug_span!(
            "batch",
            tokens,
            sequences = feeds.len(),
            kv_pages = Empty,
            kv_unfilled_tokens = Empty,
            kv_allocations = Empty
        )
        .entered();
        let pool = Arc::clone(&self.pool);
        let mut pool = pool.lock().unwrap_or_else(PoisonError::into_inner);
        let result = self.compute(&mut pool, feeds, pieces, step);
        if !span.is_disabled() {
            let stats = pool.stats();
            span.record("kv_pages", stats.used_pages);
            span.record("kv_unfilled_tokens", stats.unfilled_tokens);
            span.record("kv_allocations", stats.allocations);
        }
        for (index, range) in pieces {
            let feed = &mut feeds[*index];
            let session = &mut *feed.session;
            if result.is_ok() {
                session.tokens.extend_from_slice(&feed.ids[range.clone()]);
            } else {
                pool.truncate(&mut session.table, session.tokens.len());
            }
        }
        result
    }

    /// Makes room in the cache and runs the batch.
    fn compute(
        &mut self,
        pool: &mut PagePool,
        feeds: &mut [Feed<'_>],
        pieces: &[(usize, Range<usize>)],
        step: &mut Step<'_>,
    ) -> Result<(), Error> {
        let mut ids = Vec::new();
        let mut output_rows = Vec::new();
        for (index, range) in pieces {
            let feed = &mut feeds[*index];
            let session = &mut *feed.session;
            let copies = pool.grow(&mut session.table, session.tokens.len() + range.len())?;
            let copies: Vec<_> = copies.iter().map(|c| (c.from, c.to)).collect();
            self.executor.copy_pages(&copies)?;
            let first = ids.len();
            ids.extend_from_slice(&feed.ids[range.clone()]);
            match feed.outputs {
                Outputs::All => output_rows.extend(first..ids.len()),
                Outputs::Last if range.end == feed.ids.len() => output_rows.push(ids.len() - 1),
                Outputs::Last | Outputs::None => {}
            }
        }
        let mut first = 0;
        let spans: Vec<Span<'_>> = pieces
            .iter()
            .map(|(index, range)| {
                let session = &*feeds[*index].session;
                let tokens = first..first + range.len();
                first = tokens.end;
                Span { tokens, past_tokens: session.tokens.len(), pages: session.table.pages() }
            })
            .collect();
        let batch = Batch { ids: &ids, spans: &spans, output_rows: &output_rows, input: None };
        Ok(step(self.executor.as_mut(), &batch)?)
    }
}
