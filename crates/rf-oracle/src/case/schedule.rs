//! Schedules: the batches of a case, and the KV pages that they use.

use std::ops::Range;

use rf_graph::{Batch, Input, KvLayer, KvLayout, KvType, Media, Position, Span, StateShape};
use rf_kv::{PageCounts, PageGroup, PageId, PagePool, PageSize, PageTable};

use super::numbers::Numbers;

/// Rows of the embedding tables that inputs come from.
pub(super) const VOCAB_SIZE: usize = 211;

/// Tokens per page of timed cases, equal to the default of the program.
const PAGE_TOKENS: usize = PageSize::Tokens32.tokens();

/// Tokens per batch when a timed case fills the KV cache.
const FILL_TOKENS: usize = 512;

/// The batches of a case in order, and the layout of the KV cache for their tokens.
///
/// The last batch is timed; earlier ones fill the cache.
#[derive(Clone, Debug)]
pub struct Schedule {
    pub(super) kv: KvLayout,
    pub(super) batches: Vec<CaseBatch>,
}

/// A [`Batch`] that owns its contents.
#[derive(Clone, Debug)]
pub struct CaseBatch {
    ids: Vec<u32>,
    spans: Vec<CaseSpan>,
    output_rows: Vec<usize>,
    input: Option<Vec<f32>>,
}

/// A [`Span`] that owns its contents.
#[derive(Clone, Debug)]
struct CaseSpan {
    tokens: Range<usize>,
    past_tokens: usize,
    pages: Vec<PageId>,
    window_pages: Vec<PageId>,
    state: Option<PageId>,
    positions: Option<Vec<Position>>,
    media: Option<Vec<f32>>,
    non_causal: bool,
}

impl CaseSpan {
    /// A span of tokens without window pages and states.
    fn new(tokens: Range<usize>, past_tokens: usize, pages: Vec<PageId>) -> Self {
        Self {
            tokens,
            past_tokens,
            pages,
            window_pages: Vec::new(),
            state: None,
            positions: None,
            media: None,
            non_causal: false,
        }
    }
}

impl CaseBatch {
    /// Calls `f` with the batch.
    pub fn with<R>(&self, f: impl FnOnce(&Batch<'_>) -> R) -> R {
        self.with_output_rows(&self.output_rows, f)
    }

    /// Calls `f` with the batch and other output rows. Without any, no output is copied to the
    /// host, which takes longer than many ops.
    pub fn with_output_rows<R>(&self, rows: &[usize], f: impl FnOnce(&Batch<'_>) -> R) -> R {
        let spans: Vec<Span<'_>> = self
            .spans
            .iter()
            .map(|span| Span {
                tokens: span.tokens.clone(),
                past_tokens: span.past_tokens,
                pages: &span.pages,
                window_pages: &span.window_pages,
                state: span.state,
                positions: span.positions.as_deref(),
                media: span
                    .media
                    .as_deref()
                    .map(|rows| Media { rows, non_causal: span.non_causal }),
            })
            .collect();
        let input = self.input.as_deref().map(Input::Rows);
        f(&Batch { ids: &self.ids, spans: &spans, output_rows: rows, input })
    }

    /// The number of tokens.
    pub fn tokens(&self) -> usize {
        self.ids.len()
    }

    /// The number of cached tokens before the batch, over all sequences.
    pub fn past_tokens(&self) -> usize {
        self.spans.iter().map(|span| span.past_tokens).sum()
    }
}

impl Schedule {
    /// Tokens of sequences, `(sequence, tokens)` per span, batch by batch. Their pages are
    /// scattered.
    pub fn steps(page_tokens: usize, steps: &[&[(usize, usize)]]) -> Self {
        let mut numbers = Numbers::new("schedule");
        let spans = || steps.iter().copied().flatten();
        let sequences = spans().map(|(sequence, _)| sequence + 1).max().unwrap_or(0);
        let mut lengths = vec![0; sequences];
        spans().for_each(|(sequence, tokens)| lengths[*sequence] += tokens);

        // One page more than needed, so that one page belongs to no sequence.
        let num_pages = lengths.iter().map(|l: &usize| l.div_ceil(page_tokens)).sum::<usize>() + 1;
        let mut free: Vec<u32> = (0..num_pages as u32).collect();
        let tables: Vec<Vec<PageId>> = lengths
            .iter()
            .map(|length| {
                let pages = 0..length.div_ceil(page_tokens);
                pages.map(|_| PageId::new(free.swap_remove(numbers.below(free.len())))).collect()
            })
            .collect();

        let mut past = vec![0; sequences];
        let mut batch = |step: &&[(usize, usize)]| {
            let mut spans = Vec::new();
            let mut first = 0;
            for &(sequence, tokens) in *step {
                let last = past[sequence] + tokens;
                let pages = tables[sequence][..last.div_ceil(page_tokens)].to_vec();
                spans.push(CaseSpan::new(first..first + tokens, past[sequence], pages));
                first += tokens;
                past[sequence] = last;
            }
            let ids = (0..first).map(|_| numbers.below(VOCAB_SIZE) as u32).collect();
            let output_rows = (0..first).filter(|row| row % 3 != 1).collect();
            CaseBatch { ids, spans, output_rows, input: None }
        };
        let batches = steps.iter().map(&mut batch).collect();
        Self { kv: layout(page_tokens, num_pages), batches }
    }

    /// Makes the batches of [`steps`](Self::steps) with window pages: sequences return those that
    /// their window has passed, so that others take them.
    pub(super) fn window_steps(
        page_size: PageSize,
        steps: &[&[(usize, usize)]],
        window: usize,
    ) -> Self {
        let mut schedule = Self::steps(page_size.tokens(), steps);
        let most = schedule.kv.num_pages;
        let counts = PageCounts { window: most.full, ..most };
        let mut pool = PagePool::with_window(counts, page_size, Some(window));
        let mut tables: Vec<PageTable> = Vec::new();
        for (step, batch) in steps.iter().zip(&mut schedule.batches) {
            for (&(sequence, tokens), span) in step.iter().zip(&mut batch.spans) {
                if tables.len() <= sequence {
                    tables.resize_with(sequence + 1, PageTable::new);
                }
                let table = &mut tables[sequence];
                pool.grow(table, table.len_tokens() + tokens).expect("pages for every token");
                span.window_pages = table.pages(PageGroup::Window).to_vec();
            }
            for table in &mut tables {
                pool.drop_front(table);
            }
        }
        let window_pages = pool.stats(PageGroup::Window).peak_used_pages;
        schedule.kv.num_pages = PageCounts { window: window_pages, ..most };
        schedule.kv.window = Some(window);
        schedule
    }

    /// Batches of these numbers of tokens, each a sequence of its own.
    pub fn batches(tokens: &[usize]) -> Self {
        let steps: Vec<[(usize, usize); 1]> =
            tokens.iter().enumerate().map(|(sequence, tokens)| [(sequence, *tokens)]).collect();
        let steps: Vec<&[(usize, usize)]> = steps.iter().map(<[_; 1]>::as_slice).collect();
        Self::steps(16, &steps)
    }

    /// One batch: the first tokens of one sequence, for timing. Their ids cycle through the
    /// vocabulary.
    pub fn single(tokens: usize) -> Self {
        Self::at_depth(0, tokens)
    }

    /// Tokens of one sequence after `past_tokens` others, for timing. The pages of the past are
    /// filled as sequences of one page each, because attention over short sequences is fast.
    pub fn at_depth(past_tokens: usize, tokens: usize) -> Self {
        let page = |page: usize| PageId::new(page as u32);
        let ids = |tokens: usize| (0..tokens).map(|i| (i % VOCAB_SIZE) as u32).collect();
        let pages: Vec<usize> = (0..past_tokens.div_ceil(PAGE_TOKENS)).collect();
        let fill = pages.chunks(FILL_TOKENS / PAGE_TOKENS).map(|pages| {
            let spans = pages.iter().enumerate().map(|(i, &number)| {
                let tokens = i * PAGE_TOKENS..(i + 1) * PAGE_TOKENS;
                CaseSpan::new(tokens, 0, vec![page(number)])
            });
            let ids = ids(pages.len() * PAGE_TOKENS);
            CaseBatch { ids, spans: spans.collect(), output_rows: Vec::new(), input: None }
        });
        let num_pages = (past_tokens + tokens).div_ceil(PAGE_TOKENS);
        let timed = CaseBatch {
            ids: ids(tokens),
            spans: vec![CaseSpan::new(0..tokens, past_tokens, (0..num_pages).map(page).collect())],
            output_rows: (0..tokens).collect(),
            input: None,
        };
        let batches = fill.chain([timed]).collect();
        Self { kv: layout(PAGE_TOKENS, num_pages), batches }
    }

    /// One batch that reads each row of a table of `rows` rows once.
    pub(super) fn each_row(rows: usize) -> Self {
        let mut schedule = Self::single(rows);
        for batch in &mut schedule.batches {
            batch.ids = (0..rows as u32).collect();
        }
        schedule
    }

    /// Sets the input to normal numbers `[tokens, width]` for [`Op::Input`](rf_graph::Op::Input).
    pub(super) fn with_input(mut self, width: usize) -> Self {
        let mut numbers = Numbers::new("input");
        for batch in &mut self.batches {
            let len = batch.ids.len() * width;
            batch.input = Some((0..len).map(|_| numbers.normal()).collect());
        }
        self
    }

    /// Gives every token an explicit position, with coordinates up to the end of its span.
    pub(super) fn with_positions(mut self) -> Self {
        let mut numbers = Numbers::new("positions");
        for span in self.batches.iter_mut().flat_map(|batch| &mut batch.spans) {
            let end = span.past_tokens + span.tokens.len();
            let mut position = || [(); 4].map(|()| numbers.below(end + 1) as u32);
            span.positions = Some(span.tokens.clone().map(|_| position()).collect());
        }
        self
    }

    /// Makes every second span media rows of normal numbers, `[tokens, width]`.
    pub(super) fn with_media(mut self, width: usize, non_causal: bool) -> Self {
        let mut numbers = Numbers::new("media");
        let spans = self.batches.iter_mut().flat_map(|batch| &mut batch.spans);
        for span in spans.step_by(2) {
            let len = span.tokens.len() * width;
            span.media = Some((0..len).map(|_| numbers.normal()).collect());
            span.non_causal = non_causal;
        }
        self
    }

    /// Removes the output rows of the first batch.
    pub(super) fn without_first_output(mut self) -> Self {
        if let Some(first) = self.batches.first_mut() {
            first.output_rows.clear();
        }
        self
    }

    /// Sets the KV heads of each layer, `(num_kv_heads, head_dim)`, in a cache of a type.
    pub(super) fn with_cache(self, dtype: KvType, layers: Vec<(usize, usize)>) -> Self {
        let layers = layers.into_iter().map(|(heads, head_dim)| KvLayer::new(heads, head_dim));
        self.with_layers(dtype, layers.collect())
    }

    /// Sets the recurrent states of a sequence. A sequence takes over the states of an earlier one
    /// that has ended, with their contents.
    pub(super) fn with_states(mut self, states: Vec<StateShape>) -> Self {
        let key = |span: &CaseSpan| span.pages.first().copied();
        let mut owners = Vec::new();
        for at in 0..self.batches.len() {
            let (first, later) = self.batches[at..].split_first_mut().expect("a batch is left");
            let keys: Vec<_> = first.spans.iter().map(key).collect();
            let goes_on = |owner: &Option<PageId>| {
                let later = later.iter().flat_map(|batch| &batch.spans).map(key);
                keys.iter().copied().chain(later).any(|key| key == *owner)
            };
            for span in &mut first.spans {
                let known = owners.iter().position(|owner| *owner == key(span));
                let state = known.or_else(|| owners.iter().position(|owner| !goes_on(owner)));
                let state = state.unwrap_or(owners.len());
                owners.resize(owners.len().max(state + 1), None);
                owners[state] = key(span);
                span.state = Some(PageId::new(state as u32));
            }
        }
        self.kv.num_pages.states = owners.len();
        self.kv.states = states;
        self
    }

    /// Sets the layers of the cache and its type.
    pub(super) fn with_layers(mut self, dtype: KvType, layers: Vec<KvLayer>) -> Self {
        self.kv = KvLayout { layers, dtype, ..self.kv };
        self
    }
}

/// A cache without layers.
fn layout(page_tokens: usize, num_pages: usize) -> KvLayout {
    KvLayout::new(Vec::new(), page_tokens, num_pages, KvType::F32)
}
