//! Tables of cos and sin for RoPE, computed in f64 on the host and extended as sequences grow.

use rayon::prelude::*;
use rf_graph::{Batch, Graph, Op, Position, Rope, text_position};
use rf_hip::{Context, DeviceBuffer, Stream};

use crate::error::Error;
use crate::params::Address;

/// Positions that a table has from the start. The copy that extends it waits for the device, and
/// the chunks of a prompt should not.
const FIRST_POSITIONS: usize = 8192;

/// Returns true if two RoPE have the same table.
fn is_same(a: &Rope, b: &Rope) -> bool {
    a.inv_freq == b.inv_freq && a.magnitude.to_bits() == b.magnitude.to_bits() && a.axes == b.axes
}

/// One table for each distinct RoPE of the graph. Its first rows are the positions of text. Further
/// rows, one per token of a batch, are the positions of pictures in this batch.
pub(super) struct RopeTables {
    tables: Vec<Table>,
    max_positions: usize,
    own_positions: OwnPositions,
}

/// The treatment of positions that are not places in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnPositions {
    /// They are rows of the tables, because every op takes the first coordinate.
    Rows,
    /// Positions that are not those of text have separate rows. The field is the number of these
    /// rows.
    Tokens(usize),
    /// They are refused, because there is no kernel for them.
    Refused,
}

impl OwnPositions {
    pub(super) fn of(graph: &Graph, max_batch_tokens: usize) -> Self {
        let mut ropes = graph.ops().iter().filter_map(rope_of);
        let reads_position =
            |op: &Op| matches!(op, Op::EmbedPosition { .. } | Op::ScaleByPosition { .. });
        match (ropes.any(|rope| rope.axes.is_some()), graph.ops().iter().any(reads_position)) {
            (false, _) => Self::Rows,
            (true, false) => Self::Tokens(max_batch_tokens),
            (true, true) => Self::Refused,
        }
    }

    fn tokens(self) -> usize {
        match self {
            Self::Tokens(tokens) => tokens,
            Self::Rows | Self::Refused => 0,
        }
    }
}

struct Table {
    rope: Rope,
    /// `[max_positions + own rows][dims / 2][2]`.
    memory: DeviceBuffer<f32>,
    filled_positions: usize,
}

impl RopeTables {
    pub(super) fn new(max_positions: usize, own_positions: OwnPositions) -> Self {
        Self { tables: Vec::new(), max_positions, own_positions }
    }

    /// Returns false if no kernel takes positions that are not places in the cache.
    pub(super) fn take_positions(&self) -> bool {
        self.own_positions != OwnPositions::Refused
    }

    fn rows(&self) -> usize {
        self.max_positions + self.own_positions.tokens()
    }

    /// The row of a token of the batch, after [`Self::place`].
    pub(super) fn row_of(&self, position: Position, token: usize) -> u32 {
        if self.has_own_row(position) {
            (self.max_positions + token) as u32
        } else {
            position[0].min(self.max_positions.saturating_sub(1) as u32)
        }
    }

    fn has_own_row(&self, position: Position) -> bool {
        let is_of_text = position == text_position(position[0] as usize);
        matches!(self.own_positions, OwnPositions::Tokens(_)) && !is_of_text
    }

    /// Writes the rows of tokens whose positions are not those of text. Waits for the device.
    /// Returns true if there are any.
    pub(super) fn place(&mut self, stream: &Stream, batch: &Batch<'_>) -> Result<bool, Error> {
        let positions = batch
            .spans
            .iter()
            .flat_map(|span| (0..span.tokens.len()).map(|place| span.position(place)));
        let positions: Vec<Position> = positions.collect();
        if !positions.iter().any(|position| self.has_own_row(*position)) {
            return Ok(false);
        }
        for table in &mut self.tables {
            let (rope, dims) = (&table.rope, table.rope.dims());
            let rows = positions.par_iter().flat_map_iter(|position| row(rope, *position));
            let values: Vec<f32> = rows.collect();
            table.memory.copy_from_slice(stream, self.max_positions * dims, &values)?;
        }
        Ok(true)
    }

    /// The address of the table of a RoPE. Equal ones share a table.
    pub(super) fn address(&mut self, context: &Context, rope: &Rope) -> Result<Address, Error> {
        let same = |table: &&Table| is_same(&table.rope, rope);
        if let Some(table) = self.tables.iter().find(same) {
            return Ok(table.memory.address());
        }
        let memory = DeviceBuffer::new(context, self.rows() * rope.dims())?;
        let address = memory.address();
        self.tables.push(Table { rope: rope.clone(), memory, filled_positions: 0 });
        Ok(address)
    }

    /// Bytes of the tables of all RoPE variants of a program.
    pub(super) fn bytes_for<'a>(&self, ropes: impl Iterator<Item = &'a Rope>) -> usize {
        let mut kinds: Vec<&Rope> = Vec::new();
        for rope in ropes {
            if !kinds.iter().any(|other| is_same(other, rope)) {
                kinds.push(rope);
            }
        }
        kinds.iter().map(|rope| rope.dims() * self.rows() * size_of::<f32>()).sum()
    }

    /// Extends all tables to positions `..positions` or more. Returns true if that took a copy.
    pub(super) fn extend_to(&mut self, stream: &Stream, positions: usize) -> Result<bool, Error> {
        let mut is_copied = false;
        for table in &mut self.tables {
            if positions <= table.filled_positions {
                continue;
            }
            let end = positions.next_power_of_two().max(FIRST_POSITIONS).min(self.max_positions);
            let (rope, dims) = (&table.rope, table.rope.dims());
            let rows = (table.filled_positions..end).into_par_iter();
            let rows = rows.flat_map_iter(|position| row(rope, text_position(position)));
            let values: Vec<f32> = rows.collect();
            table.memory.copy_from_slice(stream, table.filled_positions * dims, &values)?;
            table.filled_positions = end;
            is_copied = true;
        }
        Ok(is_copied)
    }

    pub(super) fn bytes(&self) -> usize {
        self.tables.iter().map(|table| table.memory.size_bytes()).sum()
    }
}

/// The row of a table: cos and sin of each pair.
fn row(rope: &Rope, position: Position) -> impl Iterator<Item = f32> {
    (0..rope.dims() / 2).flat_map(move |pair| {
        let coordinate = rope.coordinate(position, pair);
        <[f32; 2]>::from(rope.cos_sin(coordinate, pair))
    })
}

/// The RoPE attributes of an op; `None` for ops without RoPE.
pub(super) fn rope_of(op: &Op) -> Option<&Rope> {
    match op {
        Op::Rope { rope, .. } => Some(rope),
        Op::RopeAppend { heads, .. } | Op::Attention { append: Some(heads), .. } => {
            Some(&heads.rope)
        }
        _ => None,
    }
}
