//! The data of a batch: blocks of host memory that the device reads when a step starts, and the
//! arrays in device memory that its kernels read.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use rf_graph::{Batch, RowKind};
use rf_hip::{Context, DeviceBuffer, Event, MappedBuffer, Stream};
use rf_kv::{PageCounts, PageGroup};

use super::hand_over::HandedRows;
use super::rope::RopeTables;
use crate::error::Error;
use crate::params::{self, Address, LoadRowsParams, LoadStepParams};

/// Contexts up to this length share a recording: attention over them takes little time.
const MIN_CONTEXT: usize = 256;

/// Blocks of host memory: the steps that may be queued at once. A chunk of a prompt is queued while
/// the device runs the one before, and of a model on several devices while a later device runs a
/// chunk before that.
pub(super) const BLOCKS: usize = 4;

/// Words before the arrays in device memory: the stamp of the step, and its copies after each part
/// of a divided graph.
pub(super) const STAMPS: usize = 64;

/// Words before the arrays in a block: the stamp and the number of pairs of words.
const HEADER: usize = 2;

/// The counts of a batch that launches depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct StepShape {
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
    /// True if the positions of some tokens are not their places in the cache.
    pub(super) has_positions: bool,
}

impl StepShape {
    pub(super) fn of(batch: &Batch<'_>) -> Self {
        let spans = batch.spans.iter();
        let context = spans.clone().map(|s| s.past_tokens + s.tokens.len()).max().unwrap_or(0);
        Self {
            tokens: batch.ids.len(),
            spans: batch.spans.len(),
            outputs: batch.output_rows.len(),
            shortest_span: spans.clone().map(|s| s.tokens.len()).min().unwrap_or(0),
            longest_span: spans.clone().map(|s| s.tokens.len()).max().unwrap_or(0),
            has_positions: spans.clone().any(|s| s.positions.is_some()),
            context: context.next_power_of_two().max(MIN_CONTEXT),
        }
    }
}

impl StepShape {
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
    pub(super) max_tokens: usize,
    max_outputs: usize,
    /// Page numbers of all spans and groups.
    max_pages: usize,
    /// Elements of the rows of a stage's [`rf_graph::Op::Input`] ops.
    input_floats: usize,
    /// Groups with pages: each has its own records of spans, and page numbers.
    groups: &'static [PageGroup],
}

impl StepSizes {
    /// The sizes for a cache of `num_pages`, without rows of input.
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
        Self { max_tokens, max_outputs, max_pages, input_floats: 0, groups }
    }

    /// Adds the rows of input of stages that have ops of these widths.
    pub(super) fn with_inputs(self, stages: impl Iterator<Item = Vec<usize>>) -> Self {
        let floats = |widths: Vec<usize>| {
            widths.iter().map(|width| (width * self.max_tokens).next_multiple_of(2)).sum()
        };
        Self { input_floats: stages.map(floats).max().unwrap_or(0), ..self }
    }

    /// Replaces the room for page numbers by that for twice the `pages` of a batch.
    pub(super) fn with_room_for(self, pages: usize) -> Self {
        Self { max_pages: 2 * pages, ..self }
    }

    /// Words of the arrays.
    fn len(self) -> usize {
        // An even number, because the device copies pairs.
        let words = (4 + 4 * self.groups.len()) * self.max_tokens + self.max_outputs;
        (words + self.max_pages).next_multiple_of(2)
    }

    /// Words of a block before the rows of input.
    fn arrays_end(self) -> usize {
        (HEADER + self.len()).max(LoadStepParams::READ_WORDS)
    }

    /// Bytes of device memory.
    pub(super) fn bytes(self) -> usize {
        (STAMPS + self.len()) * size_of::<u32>()
    }
}

/// Stamps, then the arrays of [`params::Batch`], all of u32, in one allocation, and the blocks from
/// which the device fills them.
pub(super) struct StepMemory {
    sizes: StepSizes,
    device: DeviceBuffer<u32>,
    blocks: [Block; BLOCKS],
    last_stamp: u32,
}

/// Host memory with the inputs of a step.
struct Block {
    host: MappedBuffer<u32>,
    device_use: DeviceUse,
    /// The rows of another device that the step reads.
    handed: Option<Arc<HandedRows>>,
    /// Recorded after the step.
    done: Event,
}

/// The use of a block by the device.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DeviceUse {
    /// The device does not read it.
    None,
    /// A step that reads it may be queued.
    Queued,
    /// The step with this stamp is queued, and the event of the block after it.
    Unchecked(u32),
}

impl StepMemory {
    pub(super) fn new(context: &Context, sizes: StepSizes) -> Result<Self, Error> {
        let words = sizes.arrays_end() + sizes.input_floats;
        let block = || {
            let host = MappedBuffer::new(context, words)?;
            Ok::<_, Error>(Block {
                host,
                device_use: DeviceUse::None,
                handed: None,
                done: Event::new(context, false)?,
            })
        };
        Ok(Self {
            sizes,
            device: DeviceBuffer::new(context, STAMPS + sizes.len())?,
            blocks: [block()?, block()?, block()?, block()?],
            last_stamp: 0,
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
    pub(super) fn has_room(&self, shape: &StepShape, pages: usize) -> bool {
        self.layout(shape).pages + pages <= self.sizes.len()
    }

    fn layout(&self, shape: &StepShape) -> Layout {
        Layout::of(shape, self.sizes.groups)
    }

    /// Waits until the device does not read a block. Returns the stamp of its step if nobody has
    /// checked the results.
    pub(super) fn claim(&mut self, block: usize, stream: &Stream) -> Result<Option<u32>, Error> {
        let Block { device_use, handed, done, .. } = &mut self.blocks[block];
        if let Some(rows) = handed {
            rows.written().synchronize()?;
        }
        let unchecked = match *device_use {
            DeviceUse::None => None,
            DeviceUse::Queued => {
                stream.synchronize()?;
                None
            }
            DeviceUse::Unchecked(stamp) => {
                done.synchronize()?;
                Some(stamp)
            }
        };
        (*device_use, *handed) = (DeviceUse::None, None);
        Ok(unchecked)
    }

    /// Marks the end of the step that reads a block. Its results are checked later.
    pub(super) fn leave(&mut self, block: usize, stream: &Stream) -> Result<(), Error> {
        let Block { device_use, done, .. } = &mut self.blocks[block];
        stream.record(done)?;
        *device_use = DeviceUse::Unchecked(self.last_stamp);
        Ok(())
    }

    /// Holds rows of another device, which the step that reads a block reads too.
    pub(super) fn hold(&mut self, block: usize, rows: Arc<HandedRows>) {
        self.blocks[block].handed = Some(rows);
    }

    /// Waits for the rows of other devices that queued steps read. If such a device is lost, the
    /// stream of this one may wait forever.
    pub(super) fn await_handed(&self) -> Result<(), Error> {
        let mut handed = self.blocks.iter().filter_map(|block| block.handed.as_ref());
        handed.try_for_each(|rows| Ok(rows.written().synchronize()?))
    }

    /// The stamps of steps whose results nobody has checked, by block. The stream is idle.
    pub(super) fn take_unchecked(&mut self) -> [Option<u32>; BLOCKS] {
        self.blocks.each_mut().map(|block| {
            block.handed = None;
            match std::mem::replace(&mut block.device_use, DeviceUse::None) {
                DeviceUse::Unchecked(stamp) => Some(stamp),
                DeviceUse::None | DeviceUse::Queued => None,
            }
        })
    }

    /// Writes a batch to a block that was claimed, with rows of input of these widths. Returns the
    /// stamp of the step and the number of bytes.
    pub(super) fn write(
        &mut self,
        block: usize,
        batch: &Batch<'_>,
        mut input: &[f32],
        widths: &[usize],
        ropes: &RopeTables,
    ) -> (u32, usize) {
        let shape = StepShape::of(batch);
        let (at, groups) = (self.layout(&shape), self.groups());
        self.last_stamp = self.last_stamp.wrapping_add(1);
        let (stamp, rows_at) = (self.last_stamp, self.sizes.arrays_end());
        let Block { host, device_use, .. } = &mut self.blocks[block];
        *device_use = DeviceUse::Queued;
        let (arrays, rows) = host.split_at_mut(rows_at);
        let (header, words) = arrays.split_at_mut(HEADER);
        words[..batch.ids.len()].copy_from_slice(batch.ids);
        let mut page = 0;
        for (i, span) in batch.spans.iter().enumerate() {
            for (place, token) in span.tokens.clone().enumerate() {
                words[at.positions + token] = (span.past_tokens + place) as u32;
                words[at.span_of + token] = i as u32;
                if shape.has_positions {
                    words[at.rope_rows + token] = ropes.row_of(span.position(place), token);
                }
            }
            for &group in groups {
                let record = params::Span {
                    first_token: span.tokens.start as u32,
                    num_tokens: span.tokens.len() as u32,
                    past_tokens: span.past_tokens as u32,
                    first_page: page as u32,
                };
                let spans = &mut words[at.spans(group, batch.spans.len()) + 4 * i..][..4];
                spans.copy_from_slice(bytemuck::cast_slice(&[record]));
                for id in span.pages_of(group) {
                    words[at.pages + page] = id.raw();
                    page += 1;
                }
            }
        }
        for (slot, row) in words[at.output_rows..].iter_mut().zip(batch.output_rows) {
            *slot = *row as u32;
        }
        let len = (at.pages + page).next_multiple_of(2);
        let mut bytes = (HEADER + len) * size_of::<u32>();
        let mut first = 0;
        for width in widths {
            let (values, rest) = input.split_at(width * shape.tokens);
            rows[first..first + values.len()].copy_from_slice(bytemuck::cast_slice(values));
            first += values.len().next_multiple_of(2);
            bytes += size_of_val(values);
            input = rest;
        }
        header.copy_from_slice(&[stamp, (len / 2) as u32]);
        // The runtime publishes the launch after these writes.
        fence(Ordering::Release);
        (stamp, bytes)
    }

    /// The launch that copies the arrays of a block.
    pub(super) fn load(&self, block: usize) -> LoadStepParams {
        LoadStepParams {
            block: self.blocks[block].host.device_address(),
            step: self.device.address() + (4 * STAMPS) as Address,
            stamp: self.stamp(0),
            groups: LoadStepParams::GROUPS,
            reserved: 0,
        }
    }

    /// The address of the rows of input of a block.
    pub(super) fn rows(&self, block: usize) -> Address {
        self.blocks[block].host.device_address() + (4 * self.sizes.arrays_end()) as Address
    }

    /// The launches that copy rows of input from host memory: of each op the number of elements and
    /// the place.
    pub(super) fn load_rows(
        mut from: Address,
        inputs: impl Iterator<Item = (usize, Address)>,
    ) -> Vec<LoadRowsParams> {
        let inputs = inputs.map(|(floats, to)| {
            // Rows have room for one more element.
            let pairs = floats.div_ceil(2);
            let params = LoadRowsParams { from, to, pairs: pairs as u32, reserved: 0 };
            from += (8 * pairs) as Address;
            params
        });
        inputs.collect()
    }

    /// The stamp of the step after this many parts of a graph.
    pub(super) fn stamp(&self, parts: usize) -> Address {
        self.device.address() + (4 * parts) as Address
    }

    /// The rows of the tables of RoPE of a batch, by token.
    pub(super) fn rope_rows(&self, shape: &StepShape) -> Address {
        self.array(self.layout(shape).rope_rows)
    }

    fn array(&self, index: usize) -> Address {
        self.device.address() + (4 * (STAMPS + index)) as Address
    }

    /// The kernel parameters of a batch: addresses and lengths of its arrays, with the pages of a
    /// group. Without that group they are those of [`PageGroup::Full`].
    pub(super) fn params(&self, shape: &StepShape, group: PageGroup) -> params::Batch {
        let at = self.layout(shape);
        params::Batch {
            ids: self.array(0),
            positions: self.array(at.positions),
            span_of: self.array(at.span_of),
            spans: self.array(at.spans(group, shape.spans)),
            pages: self.array(at.pages),
            output_rows: self.array(at.output_rows),
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
    /// Rows of the tables of RoPE, which are the positions where these are places in the cache.
    rope_rows: usize,
    /// The records of spans of all groups, one group after the other.
    spans: usize,
    output_rows: usize,
    pages: usize,
}

impl Layout {
    fn of(shape: &StepShape, groups: &'static [PageGroup]) -> Self {
        let positions = shape.tokens;
        let span_of = positions + shape.tokens;
        let rope_rows = if shape.has_positions { span_of + shape.tokens } else { positions };
        let end = span_of + shape.tokens * if shape.has_positions { 2 } else { 1 };
        // A span is a record of 16 bytes.
        let spans = end.next_multiple_of(4);
        let output_rows = spans + 4 * groups.len() * shape.spans;
        let pages = output_rows + shape.outputs;
        Self { groups, positions, span_of, rope_rows, spans, output_rows, pages }
    }

    /// The records of `count` spans with the pages of a group. Without that group they are those of
    /// [`PageGroup::Full`].
    fn spans(&self, group: PageGroup, count: usize) -> usize {
        let place = self.groups.iter().position(|each| *each == group).unwrap_or(0);
        self.spans + 4 * place * count
    }
}
