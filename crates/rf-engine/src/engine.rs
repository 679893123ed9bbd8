//! A model on a backend: where tokens become logits.

mod cache;
mod feed;
mod mtp;
mod saved;
mod slot_text;
mod slots;
mod stats;
mod tiers;

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use rf_graph::{
    Backend, BackendExecutionSummary, Batch, BatchLimits, Candidate, Executor, Input, KvLayout,
    MemoryNeed, MemoryUse, Position, Progress, Span, Telemetry, Timeline,
};
use rf_kv::{PageGroup, PagePool, PageSize};
use rf_model::Pooling;
use tracing::field::Empty;

use crate::error::Error;
use crate::identity::identity;
use crate::media::{MediaError, is_row};
use crate::model::Model;
use crate::options::EngineOptions;
use crate::sampling::Sampler;
use crate::session::{Session, lock};
use feed::{Pieces, RunOutput};
use mtp::Mtp;
use slot_text::SlotText;
use tiers::Tiers;

pub use feed::{Outputs, SequenceInput};
pub use stats::{PrefixCacheStats, TierStats};
pub use tiers::DiskCacheOptions;
pub(crate) use tiers::PendingImport;

/// A model loaded on a backend.
pub struct Engine {
    model: Arc<Model>,
    executor: Box<dyn Executor>,
    pool: Arc<Mutex<PagePool>>,
    kv: KvLayout,
    memory_need: MemoryNeed,
    context_tokens: usize,
    batch_tokens: usize,
    page_tokens: usize,
    /// Bytes of the recurrent states of a sequence; 0 without such layers.
    state_bytes: u64,
    /// Recurrent states that the prefix cache keeps on the device.
    checkpoints: usize,
    tiers: Tiers,
    slots: Vec<SlotText>,
    pooling: Option<Pooling>,
    /// The block that guesses further tokens, if it is loaded.
    mtp: Option<Mtp>,
    /// See [`identity`].
    identity: u128,
    /// Elements of an output row.
    output_width: usize,
    /// See [`Self::media_width`].
    media_width: Option<usize>,
}

impl Engine {
    /// Loads a model. An `Arc<Model>` stays available to the caller.
    ///
    /// # Errors
    ///
    /// If the model does not fit in memory, or the backend does not support it.
    pub fn load(
        model: impl Into<Arc<Model>>,
        backend: &dyn Backend,
        options: EngineOptions,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, Error> {
        let model = model.into();
        let _span = tracing::info_span!("model_load").entered();
        let page_size = PageSize::try_from(options.page_tokens)?;
        let program = model.program(&options)?.fused_for(backend);
        let memory_need = backend.memory_need(&program)?;
        let held = memory_need.held;
        tracing::debug!(
            backend = backend.name(),
            weights_bytes = held.weights_bytes,
            kv_bytes = held.kv_bytes,
            states_bytes = held.states_bytes,
            buffers_bytes = held.buffers_bytes,
            reserve_bytes = memory_need.reserve_bytes,
            "memory need"
        );
        backend.check_memory(&program)?;
        let kv = program.kv.clone();
        // As many bytes as a page has on the device.
        let state_bytes = held.states_bytes / (kv.num_pages.states as u64).max(1);
        let tiers = Tiers::new(options.host_cache_bytes, !options.always_reads_back);
        let mut pool = PagePool::with_window(kv.num_pages, page_size, kv.window);
        pool.set_exports(tiers.exports());
        let output_width = program.graph.value(program.graph.output()).width;
        let identity = identity(backend.name(), &program, model.adapters());
        let media_width = BatchLimits::new(&program).media_width;
        let executor = backend.compile(program, progress)?;
        let media_width = media_width.filter(|_| executor.takes_media());
        let mtp = options.has_mtp().then(|| Mtp::new(model.config().hidden_size, output_width));
        Ok(Self {
            mtp,
            identity,
            memory_need,
            context_tokens: model.context_tokens(&options),
            batch_tokens: model.batch_tokens(&options),
            page_tokens: page_size.tokens(),
            state_bytes,
            checkpoints: options.checkpoints,
            tiers,
            slots: Vec::new(),
            pooling: options.pooling,
            output_width,
            media_width,
            kv,
            pool: Arc::new(Mutex::new(pool)),
            executor,
            model,
        })
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// Tokens per sequence.
    pub fn context_tokens(&self) -> usize {
        self.context_tokens
    }

    /// Tokens per batch.
    pub fn batch_tokens(&self) -> usize {
        self.batch_tokens
    }

    /// Tokens per page of the KV cache.
    pub fn page_tokens(&self) -> usize {
        self.page_tokens
    }

    /// The pooling of embeddings; `None` for an engine that generates.
    pub fn pooling(&self) -> Option<Pooling> {
        self.pooling
    }

    /// Elements of an output row: of the logits, of an embedding, or of the scores.
    pub fn output_width(&self) -> usize {
        self.output_width
    }

    /// Elements of a media row that the model reads; `None` if the model or its backend takes no
    /// media.
    pub fn media_width(&self) -> Option<usize> {
        self.media_width
    }

    /// Memory held by the backend.
    pub fn memory(&self) -> MemoryUse {
        self.executor.memory()
    }

    /// Memory need computed before loading.
    pub fn memory_need(&self) -> MemoryNeed {
        self.memory_need
    }

    /// Starts or stops timing every op. Returns false if no backend supports it.
    pub fn profile(&mut self, on: bool) -> bool {
        self.executor.telemetry().map(|telemetry| telemetry.profile(on)).is_some()
    }

    /// The ops since timing started, one summary per backend.
    pub fn summaries(&mut self) -> Vec<BackendExecutionSummary> {
        self.executor.telemetry().map_or_else(Vec::new, Telemetry::summaries)
    }

    /// Records, while ops are timed ([`profile`](Self::profile)), when each op ran on each thread
    /// or device: the first batches, up to about `max_events` per backend. Returns false if no
    /// backend supports it.
    pub fn record_timeline(&mut self, max_events: usize) -> bool {
        self.executor.telemetry().is_some_and(|telemetry| telemetry.record_timeline(max_events))
    }

    /// The recorded timelines, one per backend.
    pub fn timelines(&mut self) -> Vec<Timeline> {
        self.executor.telemetry().map_or_else(Vec::new, Telemetry::timelines)
    }

    /// Computes tokens of one or more sequences and returns the selected logits: rows of
    /// `vocab_size`, in the order of the feeds. Tokens beyond the batch size are computed in
    /// chunks, which do not change the result.
    ///
    /// # Errors
    ///
    /// If a sequence outgrows its context, the cache is full, the engine was loaded to embed, or
    /// the backend fails. Sequences keep the tokens of complete chunks.
    pub fn forward(&mut self, feeds: &mut [SequenceInput<'_>]) -> Result<Vec<f32>, Error> {
        let mut logits = Vec::new();
        self.forward_into(feeds, &mut logits)?;
        Ok(logits)
    }

    /// Computes the logits of [`forward`](Self::forward) into the start of a buffer, which grows as
    /// needed: a new one of this size every step would cost more than sampling.
    ///
    /// # Errors
    ///
    /// The errors of [`forward`](Self::forward).
    pub(crate) fn forward_into(
        &mut self,
        feeds: &mut [SequenceInput<'_>],
        logits: &mut Vec<f32>,
    ) -> Result<(), Error> {
        self.check_generates()?;
        self.rows_into(feeds, logits)
    }

    /// Computes the selected rows of the output, `[rows, output_width]`, into the start of a
    /// buffer.
    pub(crate) fn rows_into(
        &mut self,
        feeds: &mut [SequenceInput<'_>],
        rows: &mut Vec<f32>,
    ) -> Result<(), Error> {
        let width = self.output_width;
        self.run(feeds, RunOutput::Whole { width, len: 0, rows })
    }

    /// Returns true if the model's block for further tokens (MTP) is loaded.
    pub(crate) fn has_mtp(&self) -> bool {
        self.mtp.is_some()
    }

    /// Guesses `len` tokens after `ids`: the newest token of a sequence, and those before it that
    /// the cache lacks. Guesses none where the cache is full.
    ///
    /// # Errors
    ///
    /// If the block is not loaded, or the backend fails.
    pub(crate) fn draft(
        &mut self,
        session: &mut Session,
        ids: &[u32],
        len: usize,
        sampler: &mut Sampler,
    ) -> Result<Vec<u32>, Error> {
        let Some(mtp) = &mut self.mtp else { return Err(Error::NoMtp) };
        mtp.draft((self.executor.as_mut(), &mut self.tiers), session, ids, len, sampler)
    }

    fn check_generates(&self) -> Result<(), Error> {
        if self.pooling.is_some() { Err(Error::LoadedToEmbed) } else { Ok(()) }
    }

    /// The largest `k` of [`forward_top_k`](Self::forward_top_k); 0 if the backend does not support
    /// it.
    pub(crate) fn max_top_k(&self) -> usize {
        self.executor.max_top_k()
    }

    /// Computes what [`forward`](Self::forward) does, but returns only the `k` most probable tokens
    /// of each row, in descending order; of equal ones, the lower id comes first.
    ///
    /// # Errors
    ///
    /// The errors of [`forward`](Self::forward), and if `k` is 0 or above
    /// [`max_top_k`](Self::max_top_k).
    pub(crate) fn forward_top_k(
        &mut self,
        feeds: &mut [SequenceInput<'_>],
        k: usize,
    ) -> Result<Vec<Candidate>, Error> {
        self.check_generates()?;
        let mut best = Vec::new();
        self.run(feeds, RunOutput::TopK { k, best: &mut best })?;
        Ok(best)
    }

    /// Splits tokens into batches and computes them.
    fn run(
        &mut self,
        feeds: &mut [SequenceInput<'_>],
        mut output: RunOutput<'_>,
    ) -> Result<(), Error> {
        let vocab_size = self.model.config().vocab_size;
        for feed in &*feeds {
            let prompt_tokens = feed.session.len() + feed.ids.len();
            if prompt_tokens > self.context_tokens {
                return Err(Error::PromptTooLong {
                    prompt_tokens,
                    context_tokens: self.context_tokens,
                });
            }
            if feed.ids.is_empty() {
                return Err(Error::EmptyPrompt);
            }
            check_ids(feed, vocab_size)?;
        }
        let mut pieces: Vec<(usize, Range<usize>)> = Vec::new();
        let mut room = self.batch_tokens;
        for index in 0..feeds.len() {
            let mut at = 0;
            let computed = feeds[index].session.len();
            let media = Arc::clone(feeds[index].session.media());
            while at < feeds[index].ids.len() {
                let stretch = media.stretch(computed + at);
                let left = stretch.end - (computed + at);
                if stretch.is_whole() && left > room && !pieces.is_empty() {
                    self.batch(feeds, &pieces, &mut output)?;
                    pieces.clear();
                    room = self.batch_tokens;
                }
                let tokens = if stretch.is_whole() {
                    left
                } else {
                    room.min(feeds[index].session.tokens_to_checkpoint()).min(left)
                };
                let end = feeds[index].ids.len().min(at.saturating_add(tokens));
                if stretch.is_whole() && (end < at + left || left > room) {
                    return Err(MediaError::Cut.into());
                }
                pieces.push((index, at..end));
                room -= end - at;
                at = end;
                // The rest of a sequence is in another batch.
                if room == 0 || at < feeds[index].ids.len() {
                    self.batch(feeds, &pieces, &mut output)?;
                    pieces.clear();
                    room = self.batch_tokens;
                }
            }
        }
        if !pieces.is_empty() {
            self.batch(feeds, &pieces, &mut output)?;
        }
        // Text of such a result would hide the damage.
        if output.has_nan() { Err(Error::NotANumber) } else { Ok(()) }
    }

    /// Computes one batch: pieces of feeds. If it fails, no sequence changes, except that one with
    /// recurrent states loses its tokens.
    fn batch(
        &mut self,
        feeds: &mut [SequenceInput<'_>],
        pieces: &Pieces,
        output: &mut RunOutput<'_>,
    ) -> Result<(), Error> {
        let tokens: usize = pieces.iter().map(|(_, range)| range.len()).sum();
        let span = tracing::debug_span!(
            "batch",
            tokens,
            sequences = feeds.len(),
            kv_pages = Empty,
            kv_bytes = Empty,
            kv_unfilled_tokens = Empty,
            kv_allocations = Empty
        )
        .entered();
        let pool = Arc::clone(&self.pool);
        let mut pool = lock(&pool);
        let (start, before) = (Instant::now(), output.len());
        let result = self.compute(&mut pool, feeds, pieces, output);
        // Without output rows, a device may still be computing.
        if output.len() > before {
            self.tiers.note_computed(tokens, start.elapsed());
        }
        if !span.is_disabled() {
            let stats = pool.stats(PageGroup::Full);
            span.record("kv_pages", stats.used_pages);
            span.record("kv_bytes", self.kv_bytes_used(&pool));
            span.record("kv_unfilled_tokens", stats.unfilled_tokens);
            span.record("kv_allocations", stats.allocations);
        }
        for (index, range) in pieces {
            let feed = &mut feeds[*index];
            let session = &mut *feed.session;
            if result.is_ok() {
                session.extend(&mut pool, &feed.ids[range.clone()], self.page_tokens);
            } else {
                session.roll_back(&mut pool);
            }
        }
        self.tiers.follow(&mut pool, self.executor.as_ref());
        result
    }

    /// Grows the sequences in the cache and runs the batch.
    fn compute(
        &mut self,
        pool: &mut PagePool,
        feeds: &mut [SequenceInput<'_>],
        pieces: &Pieces,
        output: &mut RunOutput<'_>,
    ) -> Result<(), Error> {
        let mut ids = Vec::new();
        let mut output_rows = Vec::new();
        for (index, range) in pieces {
            let feed = &mut feeds[*index];
            let session = &mut *feed.session;
            let copies = pool.grow(&mut session.table, session.tokens.len() + range.len())?;
            self.tiers.follow(pool, self.executor.as_ref());
            self.executor.copy_pages(&copies)?;
            let first = ids.len();
            // The rows of media take the place of the embeddings of token 0.
            let ids_of_tokens = feed.ids[range.clone()].iter();
            ids.extend(ids_of_tokens.map(|id| if is_row(*id) { 0 } else { *id }));
            match feed.outputs {
                Outputs::All => output_rows.extend(first..ids.len()),
                Outputs::Tail(count) => {
                    let start = feed.ids.len().saturating_sub(count).max(range.start);
                    output_rows.extend(first + (start - range.start).min(range.len())..ids.len());
                }
                Outputs::Last if range.end == feed.ids.len() => output_rows.push(ids.len() - 1),
                Outputs::First if range.start == 0 => output_rows.push(first),
                Outputs::First | Outputs::Last | Outputs::None => {}
            }
        }
        let places = |(index, range): &(usize, Range<usize>)| {
            let session = &*feeds[*index].session;
            session.media().positions(session.len()..session.len() + range.len())
        };
        let positions: Vec<Option<Vec<Position>>> = pieces.iter().map(places).collect();
        let mut first = 0;
        let spans: Vec<Span<'_>> = pieces
            .iter()
            .zip(&positions)
            .map(|((index, range), positions)| {
                let session = &*feeds[*index].session;
                let tokens = first..first + range.len();
                first = tokens.end;
                Span {
                    tokens,
                    past_tokens: session.tokens.len(),
                    pages: session.table.pages(PageGroup::Full),
                    window_pages: session.table.pages(PageGroup::Window),
                    state: session.table.state(),
                    positions: positions.as_deref(),
                    media: session.media().stretch(session.len()).media(range.len()),
                }
            })
            .collect();
        let factors = self.adapter_factors(feeds, pieces, &spans);
        let input = factors.as_deref().map(Input::Rows);
        let batch = Batch { ids: &ids, spans: &spans, output_rows: &output_rows, input };
        let (executor, output) = (self.executor.as_mut(), output.next(output_rows.len()));
        let Some(mtp) = &mut self.mtp else { return Ok(executor.forward(&batch, output)?) };
        mtp.compute(executor, &batch, (feeds, pieces), output)?;
        mtp.keep_states(feeds, pieces);
        Ok(())
    }

    /// The input with the factors of the adapters, a row per token; `None` without adapters.
    fn adapter_factors(
        &self,
        feeds: &[SequenceInput<'_>],
        pieces: &Pieces,
        spans: &[Span<'_>],
    ) -> Option<Vec<f32>> {
        let adapters = self.model.adapter_set();
        if adapters.is_empty() {
            return None;
        }
        let mut rows = Vec::new();
        for ((index, range), span) in pieces.iter().zip(spans) {
            let scales = feeds[*index].session.adapters().to_vec();
            let row = adapters.input_row(&scales, span.media.is_some());
            rows.extend(row.repeat(range.len()));
        }
        Some(rows)
    }
}

/// Checks that the ids of a feed are tokens, or rows where the session has media.
fn check_ids(feed: &SequenceInput<'_>, vocab_size: usize) -> Result<(), Error> {
    let media = feed.session.media();
    let is_known = |(place, id): &(usize, u32)| match media.row_id(*place) {
        Some(row) => *id == row,
        None => (*id as usize) < vocab_size && !is_row(*id),
    };
    let mut ids = (feed.session.len()..).zip(feed.ids.iter().copied());
    match ids.find(|placed| !is_known(placed)) {
        Some((_, id)) => Err(Error::UnknownToken { id, vocab_size }),
        None => Ok(()),
    }
}
