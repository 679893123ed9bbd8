//! Packed weights: panels of 16 rows, interleaved so that a vector lane is a row.
//!
//! A panel holds 16 consecutive rows of a matrix. The fields of a block format become *planes*: for
//! each block, each 32-bit word of the codes (or each scale) of row 0, then of row 1, … of row 15.
//! One vector load therefore reads the same word of 16 rows, no sum crosses lanes, and the order of
//! a sum does not depend on the number of tokens. Packing permutes bytes and keeps the size, except
//! for the formats that [`crate::stored`] converts, and the zero rows that pad the last panel.

use memmap2::MmapMut;
use rf_graph::{BackendError, DType, Weight};

use crate::simd::{LANES, Plane, planes};
use crate::stored;

/// A weight matrix in panels.
pub(crate) struct PackedMatrix {
    dtype: DType,
    rows: usize,
    columns: usize,
    panel_bytes: usize,
    data: MmapMut,
}

impl PackedMatrix {
    /// Allocates the panels of a matrix. Threads then fill them with [`fill_panel`].
    pub(crate) fn new(weight: &Weight) -> Result<Self, BackendError> {
        let panel_bytes = panel_bytes_of(weight);
        let (dtype, rows, columns) = (weight.dtype(), weight.rows(), weight.columns());
        let bytes = rows.div_ceil(LANES) * panel_bytes;
        let out_of_memory =
            |_| BackendError::OutOfMemory { what: "packed weights", bytes: bytes as u64 };
        let data = MmapMut::map_anon(bytes.max(MIN_BYTES)).map_err(out_of_memory)?;
        #[cfg(target_os = "linux")]
        if let Err(e) = data.advise(memmap2::Advice::HugePage) {
            tracing::debug!("no huge pages for {}: {e}", weight.name());
        }
        Ok(Self { dtype, rows, columns, panel_bytes, data })
    }

    /// Bytes of a weight in panels.
    pub(crate) fn bytes_of(weight: &Weight) -> usize {
        (weight.rows().div_ceil(LANES) * panel_bytes_of(weight)).max(MIN_BYTES)
    }

    /// The panels, as input of [`fill_panel`].
    pub(crate) fn panels_mut(&mut self) -> std::slice::ChunksExactMut<'_, u8> {
        let panels = self.rows.div_ceil(LANES);
        self.data[..panels * self.panel_bytes].chunks_exact_mut(self.panel_bytes)
    }

    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    pub(crate) fn blocks(&self) -> usize {
        self.columns / self.dtype.block_elements()
    }

    pub(crate) fn num_panels(&self) -> usize {
        self.rows.div_ceil(LANES)
    }

    pub(crate) fn panel(&self, index: usize) -> &[u8] {
        &self.data[index * self.panel_bytes..][..self.panel_bytes]
    }

    pub(crate) fn bytes(&self) -> usize {
        self.data.len()
    }

    /// Unpacks one row to f32. A tied output matrix is also the embedding table.
    pub(crate) fn row_f32(&self, row: usize, out: &mut [f32]) {
        let panel = self.panel(row / LANES);
        let (lane, blocks) = (row % LANES, self.blocks());
        let (elements, bytes) = (self.dtype.block_elements(), stored::block_bytes(self.dtype));
        let mut block = [0; MAX_BLOCK_BYTES];
        for (b, out) in out.chunks_exact_mut(elements).enumerate() {
            let mut base = 0;
            for plane in planes(self.dtype) {
                for (u, unit) in
                    block[plane.offset..][..plane.bytes].chunks_exact_mut(plane.unit).enumerate()
                {
                    let at = base + b * plane.bytes * LANES + (u * LANES + lane) * plane.unit;
                    unit.copy_from_slice(&panel[at..][..plane.unit]);
                }
                base += blocks * plane.bytes * LANES;
            }
            stored::dequantize(self.dtype, &mut block[..bytes], out);
        }
    }
}

/// Bytes of the largest block of any format. Stored blocks are not larger.
const MAX_BLOCK_BYTES: usize = {
    let (mut most, mut i) = (0, 0);
    while i < DType::COUNT {
        let bytes = DType::ALL[i].block_bytes();
        most = if bytes > most { bytes } else { most };
        i += 1;
    }
    most
};

/// The minimum size of a mapping, which cannot be empty.
const MIN_BYTES: usize = 64;

fn panel_bytes_of(weight: &Weight) -> usize {
    let dtype = weight.dtype();
    let blocks = weight.columns() / dtype.block_elements();
    // Vector loads of the last plane may reach past its end by less than a vector.
    (blocks * stored::block_bytes(dtype) * LANES).next_multiple_of(64) + 64
}

/// Packs rows `16·index..16·index + 16` of a weight into a panel.
pub(crate) fn fill_panel(weight: &Weight, index: usize, panel: &mut [u8]) {
    let dtype = weight.dtype();
    let block_bytes = stored::block_bytes(dtype);
    let blocks = weight.columns() / dtype.block_elements();
    let first = index * LANES;
    let rows = LANES.min(weight.rows() - first);
    let mut scratch = vec![0; if stored::differs(dtype) { blocks * block_bytes } else { 0 }];
    for lane in 0..rows {
        let mut source = weight.row(first + lane);
        if !scratch.is_empty() {
            let file_blocks = source.chunks_exact(dtype.block_bytes());
            for (block, stored) in file_blocks.zip(scratch.chunks_exact_mut(block_bytes)) {
                stored::pack(dtype, block, stored);
            }
            source = &scratch;
        }
        let mut base = 0;
        for plane in planes(dtype) {
            let target = &mut panel[base..][..blocks * plane.bytes * LANES];
            match plane.unit {
                4 => interleave::<4>(source, block_bytes, *plane, lane, target),
                2 => interleave::<2>(source, block_bytes, *plane, lane, target),
                _ => interleave::<1>(source, block_bytes, *plane, lane, target),
            }
            base += target.len();
        }
    }
}

/// Writes one field of every block of a row into the row's lane.
fn interleave<const UNIT: usize>(
    source: &[u8],
    block_bytes: usize,
    plane: Plane,
    lane: usize,
    target: &mut [u8],
) {
    let blocks = source.chunks_exact(block_bytes);
    for (block, target) in blocks.zip(target.chunks_exact_mut(plane.bytes * LANES)) {
        let units = block[plane.offset..][..plane.bytes].as_chunks::<UNIT>().0;
        let slots = target.as_chunks_mut::<UNIT>().0;
        for (unit, slots) in units.iter().zip(slots.as_chunks_mut::<LANES>().0) {
            slots[lane] = *unit;
        }
    }
}
