//! The data of a batch in device memory.

use rf_graph::{Batch, RowKind};
use rf_hip::{Context, DeviceBuffer, PinnedBuffer, Stream};
use rf_kv::{PageCounts, PageGroup};

use crate::error::Error;
use crate::params::{self, Address};

/// Contexts up to this length share a recording: attention over them takes little time.
const MIN_CONTEXT: usize = 256;

/// The counts of a batch that launches depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Shape {
    pub(super) tokens: usize,
    pub(super) spans: usize,
    pub(super) outputs: usize,
    /// Tokens of the shortest span.
    pub(super) shortest_span: usize,
    /// Tokens of the longest span.
    pub(super) longest_span: usize,
    /// Positions of the longest sequence, rounded up to a power of two of at least [`MIN_CONTEXT`].
    /// Attention divides its keys by this length. A recording is valid until the length doubles.
    pub(super) context: usize,
}

impl Shape {
    pub(super) fn of(batch: &Batch<'_>) -> Self {
        let spans = batch.spans.iter();
        let context = spans.clone().map(|s| s.past_tokens + s.tokens.len()).max().unwrap_or(0);
        Self {
            tokens: batch.ids.len(),
            spans: batch.spans.len(),
            outputs: batch.output_rows.len(),
            shortest_span: spans.clone().map(|s| s.tokens.len()).min().unwrap_or(0),
            longest_span: spans.map(|s| s.tokens.len()).max().unwrap_or(0),
            context: context.next_power_of_two().max(MIN_CONTEXT),
        }
    }
}

impl Shape {
    /// Number of rows of a value of this kind.
    pub(super) fn rows_of(&self, kind: RowKind) -> usize {
        match kind {
            RowKind::Token => self.tokens,
            RowKind::Output => self.outputs,
        }
    }
}

/// The largest batch that the arrays have room for.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepSizes {
    max_tokens: usize,
    max_outputs: usize,
    /// Page numbers of all spans and groups.
    max_pages: usize,
    /// Groups with pages: each has records of spans and page numbers of its own.
    groups: &'static [PageGroup],
}

impl StepSizes {
    /// The sizes for a cache of `num_pages`.
    pub(super) fn new(max_tokens: usize, max_outputs: usize, num_pages: PageCounts) -> Self {
        let groups: &[PageGroup] = match (num_pages.window > 0, num_pages.states > 0) {
            (false, false) => &[PageGroup::Full],
            (true, false) => &PageGroup::OF_TOKENS,
            (false, true) => &[PageGroup::Full, PageGroup::State],
            (true, true) => &PageGroup::ALL,
        };
        // Sequences may share pages. A span has at most as many page numbers in each group as in
        // the first one.
        let max_pages = groups.len() * (2 * num_pages.full).max(1024);
        Self { max_tokens, max_outputs, max_pages, groups }
    }

    /// Replaces the room for page numbers by that for twice the `pages` of a batch.
    pub(super) fn with_room_for(self, pages: usize) -> Self {
        Self { max_pages: 2 * pages, ..self }
    }

    fn len(self) -> usize {
        (3 + 4 * self.groups.len()) * self.max_tokens + self.max_outputs + self.max_pages
    }

    /// Bytes of device memory.
    pub(super) fn bytes(self) -> usize {
        self.len() * size_of::<u32>()
    }
}

/// The arrays of [`params::Batch`], all of u32, in one allocation.
pub(super) struct StepMemory {
    sizes: StepSizes,
    device: DeviceBuffer<u32>,
    host: PinnedBuffer<u32>,
}

impl StepMemory {
    pub(super) fn new(context: &Context, sizes: StepSizes) -> Result<Self, Error> {
        Ok(Self {
            sizes,
            device: DeviceBuffer::new(context, sizes.len())?,
            host: PinnedBuffer::new(context, sizes.len())?,
        })
    }

    pub(super) fn sizes(&self) -> StepSizes {
        self.sizes
    }

    pub(super) fn bytes(&self) -> usize {
        self.device.size_bytes()
    }

    fn groups(&self) -> &'static [PageGroup] {
        self.sizes.groups
    }

    /// Number of page numbers of a batch.
    pub(super) fn pages_of(&self, batch: &Batch<'_>) -> usize {
        let spans = batch.spans.iter();
        spans.flat_map(|span| self.groups().iter().map(|group| span.pages_of(*group).len())).sum()
    }

    /// Returns true if a batch with this many page numbers fits.
    pub(super) fn has_room(&self, shape: &Shape, pages: usize) -> bool {
        self.layout(shape).pages + pages <= self.device.len()
    }

    fn layout(&self, shape: &Shape) -> Layout {
        Layout::of(shape, self.sizes.groups)
    }

    /// Queues the upload of a batch and returns its size in bytes.
    pub(super) fn upload(&mut self, stream: &Stream, batch: &Batch<'_>) -> Result<usize, Error> {
        let (at, groups) = (self.layout(&Shape::of(batch)), self.groups());
        let host = &mut self.host[..];
        host[..batch.ids.len()].copy_from_slice(batch.ids);
        let mut page = 0;
        for (i, span) in batch.spans.iter().enumerate() {
            for (place, token) in span.tokens.clone().enumerate() {
                host[at.positions + token] = (span.past_tokens + place) as u32;
                host[at.span_of + token] = i as u32;
            }
            for &group in groups {
                let record = params::Span {
                    first_token: span.tokens.start as u32,
                    num_tokens: span.tokens.len() as u32,
                    past_tokens: span.past_tokens as u32,
                    first_page: page as u32,
                };
                let spans = &mut host[at.spans(group, batch.spans.len()) + 4 * i..][..4];
                spans.copy_from_slice(bytemuck::cast_slice(&[record]));
                for id in span.pages_of(group) {
                    host[at.pages + page] = id.raw();
                    page += 1;
                }
            }
        }
        for (slot, row) in host[at.output_rows..].iter_mut().zip(batch.output_rows) {
            *slot = *row as u32;
        }
        let len = at.pages + page;
        self.device.copy_from_pinned(stream, 0, &self.host, 0..len)?;
        Ok(len * size_of::<u32>())
    }

    /// The kernel parameters of a batch: addresses and lengths of its arrays, with the pages of a
    /// group. Without that group they are those of [`PageGroup::Full`].
    pub(super) fn params(&self, shape: &Shape, group: PageGroup) -> params::Batch {
        let at = self.layout(shape);
        let address = |index: usize| self.device.address() + (4 * index) as Address;
        params::Batch {
            ids: address(0),
            positions: address(at.positions),
            span_of: address(at.span_of),
            spans: address(at.spans(group, shape.spans)),
            pages: address(at.pages),
            output_rows: address(at.output_rows),
            num_tokens: shape.tokens as u32,
            num_spans: shape.spans as u32,
            num_outputs: shape.outputs as u32,
            reserved: 0,
        }
    }
}

/// Indices of the arrays. Token ids are first. Page numbers are last, because their count is not
/// part of the shape.
struct Layout {
    /// Each has records of spans.
    groups: &'static [PageGroup],
    positions: usize,
    span_of: usize,
    /// The records of spans of all groups, one group after the other.
    spans: usize,
    output_rows: usize,
    pages: usize,
}

impl Layout {
    fn of(shape: &Shape, groups: &'static [PageGroup]) -> Self {
        let positions = shape.tokens;
        let span_of = positions + shape.tokens;
        // A span is a record of 16 bytes.
        let spans = (span_of + shape.tokens).next_multiple_of(4);
        let output_rows = spans + 4 * groups.len() * shape.spans;
        let pages = output_rows + shape.outputs;
        Self { groups, positions, span_of, spans, output_rows, pages }
    }

    /// The records of `count` spans with the pages of a group. Without that group they are those of
    /// [`PageGroup::Full`].
    fn spans(&self, group: PageGroup, count: usize) -> usize {
        let place = self.groups.iter().position(|each| *each == group).unwrap_or(0);
        self.spans + 4 * place * count
    }
}
