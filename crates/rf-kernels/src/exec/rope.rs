//! Tables of cos and sin for RoPE, computed in f64 on the host and extended as sequences grow.

use rayon::prelude::*;
use rf_graph::{Rope, text_position};
use rf_hip::{Context, DeviceBuffer, Stream};

use crate::error::Error;
use crate::params::Address;

/// Positions that a table has from the start. The copy that extends it waits for the device, and
/// the chunks of a prompt should not.
const FIRST_POSITIONS: usize = 8192;

/// Returns true if two RoPE have the same table. All positions are those of text.
fn is_same(a: &Rope, b: &Rope) -> bool {
    a.inv_freq == b.inv_freq && a.magnitude.to_bits() == b.magnitude.to_bits() && a.axes == b.axes
}

/// One table for each distinct RoPE of the graph.
pub(super) struct RopeTables {
    tables: Vec<Table>,
    max_positions: usize,
}

struct Table {
    rope: Rope,
    /// `[max_positions][dims / 2][2]`.
    memory: DeviceBuffer<f32>,
    filled_positions: usize,
}

impl RopeTables {
    pub(super) fn new(max_positions: usize) -> Self {
        Self { tables: Vec::new(), max_positions }
    }

    /// The address of the table of a RoPE. Equal ones share a table.
    pub(super) fn address(&mut self, context: &Context, rope: &Rope) -> Result<Address, Error> {
        let same = |table: &&Table| is_same(&table.rope, rope);
        if let Some(table) = self.tables.iter().find(same) {
            return Ok(table.memory.address());
        }
        let memory = DeviceBuffer::new(context, self.max_positions * rope.dims())?;
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
        kinds.iter().map(|rope| rope.dims() * self.max_positions * size_of::<f32>()).sum()
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
            let row = |position| {
                (0..dims / 2).flat_map(move |pair| {
                    let coordinate = rope.coordinate(text_position(position), pair);
                    <[f32; 2]>::from(rope.cos_sin(coordinate, pair))
                })
            };
            let rows = (table.filled_positions..end).into_par_iter();
            let values: Vec<f32> = rows.flat_map_iter(row).collect();
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
