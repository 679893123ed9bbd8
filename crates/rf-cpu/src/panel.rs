//! Packed weights: panels of 16 rows, interleaved so that a vector lane is a row.
//!
//! A panel holds 16 consecutive rows of a matrix. The fields of a block format become *planes*: for
//! each block, each 32-bit word of the codes (or each scale) of row 0, then of row 1, … of row 15.
//! One vector load therefore reads the same word of 16 rows, no sum crosses lanes, and the order of
//! a sum does not depend on the number of tokens. Packing permutes bytes and keeps the size, except
//! for the formats that [`crate::stored`] converts, and the zero rows that pad the last panel.

use std::sync::Arc;

use memmap2::MmapMut;
use rf_graph::{BackendError, DType, Weight};

use crate::simd::{LANES, Plane, planes};
use crate::stored;

/// The sizes of a weight matrix in panels.
#[derive(Clone, Copy)]
pub(crate) struct PanelLayout {
    dtype: DType,
    rows: usize,
    columns: usize,
    panel_bytes: usize,
}

impl PanelLayout {
    pub(crate) fn new(weight: &Weight) -> Self {
        let (dtype, rows, columns) = (weight.dtype(), weight.rows(), weight.columns());
        let blocks = columns / dtype.block_elements();
        // Vector loads of the last plane may reach past its end by less than a vector.
        let panel_bytes = (blocks * stored::block_bytes(dtype) * LANES).next_multiple_of(64) + 64;
        Self { dtype, rows, columns, panel_bytes }
    }

    pub(crate) fn num_panels(&self) -> usize {
        self.rows.div_ceil(LANES)
    }

    /// Bytes of all panels.
    pub(crate) fn bytes(&self) -> usize {
        self.num_panels() * self.panel_bytes
    }

    /// The panels of a matrix, as input of [`fill_panel`]. `data` has [`bytes`](Self::bytes) bytes.
    pub(crate) fn panels_mut<'a>(&self, data: &'a mut [u8]) -> std::slice::ChunksExactMut<'a, u8> {
        data.chunks_exact_mut(self.panel_bytes)
    }
}

/// Allocates the memory of the matrices of a model.
///
/// They share one mapping. The kernel backs only whole, aligned ranges of 2 MiB with huge pages,
/// and most matrices are smaller than that, or begin in the middle of one.
pub(crate) fn allocate(bytes: usize) -> Result<MmapMut, BackendError> {
    let out_of_memory =
        |_| BackendError::OutOfMemory { what: "packed weights", bytes: bytes as u64 };
    // A mapping cannot be empty.
    let memory = MmapMut::map_anon(bytes.max(1)).map_err(out_of_memory)?;
    #[cfg(target_os = "linux")]
    if let Err(e) = memory.advise(memmap2::Advice::HugePage) {
        tracing::debug!("no huge pages for weights: {e}");
    }
    Ok(memory)
}

/// A weight matrix in panels.
pub(crate) struct PackedMatrix {
    layout: PanelLayout,
    /// The memory of all matrices.
    memory: Arc<MmapMut>,
    /// Where the panels of this matrix begin in `memory`.
    first_byte: usize,
}

impl PackedMatrix {
    /// The matrix whose panels begin at `first_byte` of `memory`.
    pub(crate) fn new(layout: PanelLayout, memory: Arc<MmapMut>, first_byte: usize) -> Self {
        Self { layout, memory, first_byte }
    }

    pub(crate) fn dtype(&self) -> DType {
        self.layout.dtype
    }

    pub(crate) fn rows(&self) -> usize {
        self.layout.rows
    }

    pub(crate) fn columns(&self) -> usize {
        self.layout.columns
    }

    pub(crate) fn blocks(&self) -> usize {
        self.columns() / self.dtype().block_elements()
    }

    pub(crate) fn num_panels(&self) -> usize {
        self.layout.num_panels()
    }

    pub(crate) fn panel(&self, index: usize) -> &[u8] {
        let bytes = self.layout.panel_bytes;
        &self.memory[self.first_byte + index * bytes..][..bytes]
    }

    pub(crate) fn bytes(&self) -> usize {
        self.layout.bytes()
    }

    /// Unpacks one row to f32. A tied output matrix is also the embedding table.
    pub(crate) fn row_f32(&self, row: usize, out: &mut [f32]) {
        let panel = self.panel(row / LANES);
        let (lane, blocks) = (row % LANES, self.blocks());
        let dtype = self.dtype();
        let (elements, bytes) = (dtype.block_elements(), stored::block_bytes(dtype));
        let mut block = [0; MAX_BLOCK_BYTES];
        for (b, out) in out.chunks_exact_mut(elements).enumerate() {
            let mut base = 0;
            for plane in planes(dtype) {
                for (u, unit) in
                    block[plane.offset..][..plane.bytes].chunks_exact_mut(plane.unit).enumerate()
                {
                    let at = base + b * plane.bytes * LANES + (u * LANES + lane) * plane.unit;
                    unit.copy_from_slice(&panel[at..][..plane.unit]);
                }
                base += blocks * plane.bytes * LANES;
            }
            stored::dequantize(dtype, &mut block[..bytes], out);
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
