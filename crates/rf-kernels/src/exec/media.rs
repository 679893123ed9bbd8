//! Rows of pictures, which take the place of token embeddings, in device memory.

use rf_graph::{Batch, Graph, Op};
use rf_hip::{Context, DeviceBuffer, Stream};

use crate::error::Error;
use crate::params::{Address, AttentionParams};

/// Elements that a lane of the kernels reads at once.
const VECTOR: usize = 4;

/// The rows of the pictures of a batch. Few programs get pictures, so the memory is allocated with
/// the first one.
pub(super) struct MediaMemory {
    /// Elements of an embedding.
    width: usize,
    /// The parts of a row, each of which is added to another layer. The first one is the embedding.
    parts: usize,
    /// `[parts, rows, width]`.
    memory: Option<DeviceBuffer<f32>>,
    /// The pictures of the current batch.
    spans: Vec<MediaSpan>,
    rows: usize,
}

/// A span of a batch that has rows instead of tokens.
pub(super) struct MediaSpan {
    /// The index of the span in the batch.
    pub(super) index: usize,
    /// Number of rows.
    pub(super) rows: usize,
    first_token: usize,
    first_row: usize,
    is_non_causal: bool,
}

/// The rows of pictures by address.
#[derive(Clone, Copy, Default)]
pub(super) struct MediaPlaces<'a> {
    memory: Option<&'a MediaMemory>,
}

/// Consecutive rows of one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MediaRows {
    /// The address of the first row.
    pub(super) from: Address,
    /// The row of the value to which they belong.
    pub(super) first_token: usize,
    /// Number of elements.
    pub(super) floats: usize,
}

impl MediaMemory {
    /// `None` if no kernel reads the rows of the program, or computes its attention in which they
    /// see each other both ways.
    pub(super) fn of(graph: &Graph) -> Option<Self> {
        let (mut width, mut parts) = (VECTOR, 0);
        let mut embeds = false;
        for op in graph.ops() {
            match op {
                Op::Embed { takes_media, out, .. } => {
                    embeds = true;
                    if *takes_media {
                        (width, parts) = (graph.value(*out).width, parts.max(1));
                    }
                }
                Op::AddMedia { part, out, .. } => {
                    (width, parts) = (graph.value(*out).width, parts.max(part + 1));
                }
                Op::Attention { attention, .. }
                    if attention.non_causal_media
                        && !AttentionParams::has_prefill(attention.head_dim) =>
                {
                    return None;
                }
                _ => {}
            }
        }
        // A later part of a divided program need not read the rows.
        let takes_media = parts > 0 || !embeds;
        (takes_media && width.is_multiple_of(VECTOR)).then(|| Self {
            width,
            parts,
            memory: None,
            spans: Vec::new(),
            rows: 0,
        })
    }

    /// Allocated bytes.
    pub(super) fn bytes(&self) -> usize {
        self.memory.as_ref().map_or(0, DeviceBuffer::size_bytes)
    }

    /// Returns true if there is memory for the rows of a batch. For more the device has to be idle.
    pub(super) fn has_room(&self, batch: &Batch<'_>) -> bool {
        self.floats(rows_of(batch)) <= self.memory.as_ref().map_or(0, DeviceBuffer::len)
    }

    fn floats(&self, rows: usize) -> usize {
        self.parts * rows * self.width
    }

    /// Copies the rows of the pictures of a batch, if there are any, and waits for the copy.
    /// Returns true if there are any.
    pub(super) fn load(
        &mut self,
        context: &Context,
        stream: &Stream,
        batch: &Batch<'_>,
    ) -> Result<bool, Error> {
        self.spans.clear();
        self.rows = rows_of(batch);
        let mut first_row = 0;
        for (index, span) in batch.spans.iter().enumerate() {
            if span.media.is_none() {
                continue;
            }
            let (first_token, rows) = (span.tokens.start, span.tokens.len());
            let is_non_causal = span.is_non_causal();
            self.spans.push(MediaSpan { index, rows, first_token, first_row, is_non_causal });
            first_row += rows;
        }
        let floats = self.floats(self.rows);
        if floats == 0 {
            return Ok(false);
        }
        let mut values = Vec::with_capacity(floats);
        for part in 0..self.parts {
            for span in batch.spans {
                let rows = (0..span.tokens.len()).filter_map(|index| span.media_row(index));
                rows.for_each(|row| values.extend(&row[part * self.width..][..self.width]));
            }
        }
        let memory = match self.memory.take().filter(|memory| memory.len() >= floats) {
            Some(memory) => memory,
            None => DeviceBuffer::new(context, floats)?,
        };
        memory.copy_from_slice(stream, 0, &values)?;
        self.memory = Some(memory);
        Ok(true)
    }
}

/// The rows of all pictures of a batch.
fn rows_of(batch: &Batch<'_>) -> usize {
    let spans = batch.spans.iter().filter(|span| span.media.is_some());
    spans.map(|span| span.tokens.len()).sum()
}

impl<'a> MediaPlaces<'a> {
    pub(super) fn new(memory: Option<&'a MediaMemory>) -> Self {
        Self { memory: memory.filter(|memory| !memory.spans.is_empty()) }
    }

    /// Returns true if the batch has no pictures.
    pub(super) fn is_empty(self) -> bool {
        self.memory.is_none()
    }

    /// The spans whose rows see each other both ways.
    pub(super) fn non_causal(self) -> impl Iterator<Item = &'a MediaSpan> {
        let spans = self.memory.into_iter().flat_map(|media| &media.spans);
        spans.filter(|span| span.is_non_causal)
    }

    /// The rows of one part of all pictures.
    pub(super) fn part(self, part: usize) -> impl Iterator<Item = MediaRows> + use<'a> {
        let memories = self.memory.into_iter();
        memories.flat_map(move |media| {
            let start = media.memory.as_ref().map_or(0, DeviceBuffer::address);
            media.spans.iter().map(move |span| {
                let row = part * media.rows + span.first_row;
                let from = start + (4 * row * media.width) as Address;
                let floats = span.rows * media.width;
                MediaRows { from, first_token: span.first_token, floats }
            })
        })
    }
}
