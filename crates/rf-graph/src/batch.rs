//! Batches of tokens, and their check against the limits of a program.

use std::ops::Range;

use rf_kv::{PageCounts, PageGroup, PageId};

use crate::error::BackendError;
use crate::graph::Graph;
use crate::input::Input;
use crate::op::{Op, Position, text_position};
use crate::program::Program;
use crate::value::RowKind;

/// The input of one step: tokens of one or several sequences.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// Token ids of all spans, one span after the other.
    pub ids: &'a [u32],
    /// Tokens by sequence. The spans cover `ids` in order and without gaps.
    pub spans: &'a [Span<'a>],
    /// Indices into `ids` of the rows whose output is requested, ascending.
    pub output_rows: &'a [usize],
    /// Values of the ops [`Op::Input`] of the stage; `None` for a stage without
    /// them.
    pub input: Option<Input<'a>>,
}

/// Consecutive tokens of one sequence, or rows in the place of tokens.
#[derive(Clone, Debug, Default)]
pub struct Span<'a> {
    /// Indices into [`Batch::ids`].
    pub tokens: Range<usize>,
    /// Tokens of the sequence in the cache, which is the place of the span's first token in it.
    pub past_tokens: usize,
    /// The position of each token for [`Op::Rope`] and its fused forms; other ops take the first
    /// coordinate. `None` if positions are places in the cache.
    pub positions: Option<&'a [Position]>,
    /// Rows instead of tokens; `None` for tokens. The ids of media rows are those that the model
    /// uses where it needs ids nevertheless.
    pub media: Option<Media<'a>>,
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

/// Rows that take the place of the token embeddings of a span: those of a picture or of sound.
#[derive(Clone, Copy, Debug)]
pub struct Media<'a> {
    /// `[tokens, width]`. The width is that of the embedding, times 1 and the number of parts that
    /// [`Op::AddMedia`] adds.
    pub rows: &'a [f32],
    /// True if the rows see each other both ways, in layers with
    /// [`Attention::non_causal_media`](crate::Attention::non_causal_media).
    pub non_causal: bool,
}

impl<'a> Span<'a> {
    /// The tokens of the sequence in the cache after the batch.
    pub fn end(&self) -> usize {
        self.past_tokens + self.tokens.len()
    }

    /// The position of the token with this index within the span.
    pub fn position(&self, index: usize) -> Position {
        match self.positions {
            Some(positions) => positions[index],
            None => text_position(self.past_tokens + index),
        }
    }

    /// The largest coordinate of the span's positions.
    pub fn max_coordinate(&self) -> usize {
        match self.positions {
            Some(all) => all.iter().flatten().max().map_or(0, |max| *max as usize),
            None => self.end().saturating_sub(1),
        }
    }

    /// The media row with this index within the span; `None` for a span of tokens.
    pub fn media_row(&self, index: usize) -> Option<&'a [f32]> {
        let Media { rows, .. } = self.media?;
        let width = rows.len() / self.tokens.len().max(1);
        rows.get(index * width..(index + 1) * width)
    }

    /// True if the span is [non-causal media](Media).
    pub fn is_non_causal(&self) -> bool {
        self.media.is_some_and(|media| media.non_causal)
    }

    /// Pages of the sequence in a group.
    pub fn pages_of(&self, group: PageGroup) -> &[PageId] {
        match group {
            PageGroup::Full => self.pages,
            PageGroup::Window => self.window_pages,
            PageGroup::State => self.state.as_slice(),
        }
    }
}

/// The limits that a program sets on its batches.
#[derive(Clone, Debug)]
pub struct BatchLimits {
    /// Rows of the embedding table. Without a table, token ids are unused and any value is valid.
    pub vocab_size: usize,
    /// Elements of a media row that the program reads; `None` if it takes no media.
    pub media_width: Option<usize>,
    /// Width of all ops [`Op::Input`] together by stage; `None` for a stage
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

impl Span<'_> {
    /// Checks that there is a position for each token, and that none is after the end of the span.
    fn check_positions(&self) -> Result<(), String> {
        let Some(positions) = self.positions else { return Ok(()) };
        let tokens = self.tokens.len();
        if positions.len() != tokens {
            return Err(format!("{} positions of {tokens} tokens", positions.len()));
        }
        // Tables of RoPE grow with the largest coordinate.
        let end = self.past_tokens.saturating_add(tokens);
        match self.max_coordinate() {
            max if max > end => Err(format!("position {max} in a sequence of {end} tokens")),
            _ => Ok(()),
        }
    }

    /// Checks that media rows have the elements that a program reads.
    fn check_media(&self, width: Option<usize>) -> Result<(), String> {
        let Some(media) = self.media else { return Ok(()) };
        let Some(width) = width else {
            return Err("media, which the program does not take".into());
        };
        let (floats, tokens) = (media.rows.len(), self.tokens.len());
        if !floats.is_multiple_of(tokens) || floats / tokens < width {
            return Err(format!("{floats} values of media, expected {tokens} rows of {width}"));
        }
        Ok(())
    }
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
            span.check_positions().map_err(BackendError::InvalidBatch)?;
            span.check_media(limits.media_width).map_err(BackendError::InvalidBatch)?;
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

impl BatchLimits {
    /// The limits of a program.
    pub fn new(program: &Program) -> Self {
        let graph = &program.graph;
        let vocab_size = graph.ops().iter().rev().find_map(|op| match op {
            Op::Embed { table, .. } => Some(program.weights[table.index()].rows()),
            _ => None,
        });
        let stages = graph.stages().into_iter();
        Self {
            vocab_size: vocab_size.unwrap_or(usize::MAX),
            media_width: media_width(graph),
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

/// Elements of a media row that a graph reads; `None` if it embeds tokens only.
fn media_width(graph: &Graph) -> Option<usize> {
    let embeds = graph.ops().iter().any(|op| matches!(op, Op::Embed { .. }));
    let widths = graph.ops().iter().filter_map(|op| match op {
        Op::Embed { takes_media: true, out, .. } => Some(graph.value(*out).width),
        Op::AddMedia { part, out, .. } => Some((part + 1) * graph.value(*out).width),
        _ => None,
    });
    // A later part of a split program need not read the rows that an earlier one takes.
    widths.max().or((!embeds).then_some(0))
}
