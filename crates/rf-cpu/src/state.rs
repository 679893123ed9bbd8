//! Recurrent states: f32 matrices, one page per sequence.
//!
//! Rows are padded to whole tiles of [`TILE`] columns. The system allocates memory on first use, so
//! unused states take none.

use memmap2::MmapMut;
use rf_graph::{BackendError, KvLayout, StateShape};
use rf_kv::CopyPage;

use crate::simd::LANES;

/// Columns of a tile: two vectors, whose sums hide each other's latency.
pub(crate) const TILE: usize = 2 * LANES;

/// The recurrent states of all sequences.
pub(crate) struct StateStore {
    num_pages: usize,
    pub(crate) states: Vec<StoredState>,
}

/// One recurrent state of all sequences.
pub(crate) struct StoredState {
    /// f32 elements of a sequence.
    pub(crate) page_len: usize,
    /// `[page]` of [`page_len`](Self::page_len).
    pub(crate) map: MmapMut,
}

/// Elements of a row.
pub(crate) const fn stride(columns: usize) -> usize {
    columns.next_multiple_of(TILE)
}

/// f32 elements of a state of one sequence.
fn page_len(shape: StateShape) -> usize {
    shape.rows.saturating_mul(stride(shape.columns))
}

impl StateStore {
    pub(crate) fn new(layout: &KvLayout) -> Result<Self, BackendError> {
        let num_pages = layout.num_pages.states;
        let state = |shape: &StateShape| {
            let page_len = page_len(*shape);
            let bytes = page_len.saturating_mul(num_pages).saturating_mul(size_of::<f32>());
            let out_of_memory =
                |_| BackendError::OutOfMemory { what: "recurrent states", bytes: bytes as u64 };
            let map = MmapMut::map_anon(bytes.max(size_of::<f32>())).map_err(out_of_memory)?;
            Ok(StoredState { page_len, map })
        };
        let states = layout.states.iter().map(state).collect::<Result<_, BackendError>>()?;
        Ok(Self { num_pages, states })
    }

    /// Bytes of a store without creating one.
    pub(crate) fn bytes_of(layout: &KvLayout) -> u64 {
        let len = layout.states.iter().map(|shape| page_len(*shape)).fold(0, usize::saturating_add);
        len.saturating_mul(layout.num_pages.states).saturating_mul(size_of::<f32>()) as u64
    }

    /// Bytes of all states.
    pub(crate) fn bytes(&self) -> u64 {
        let len: usize = self.states.iter().map(|state| state.page_len).sum();
        (len * self.num_pages * size_of::<f32>()) as u64
    }

    /// Copies the states of one page to another.
    pub(crate) fn copy_page(&mut self, copy: CopyPage) -> Result<(), BackendError> {
        let CopyPage { from, to, .. } = copy;
        if let Some(page) = [from, to].iter().find(|page| page.index() >= self.num_pages) {
            let what = format!("state {} of {}", page.index(), self.num_pages);
            return Err(BackendError::InvalidBatch(what));
        }
        for StoredState { page_len, map } in &mut self.states {
            let bytes = *page_len * size_of::<f32>();
            map.copy_within(from.index() * bytes..(from.index() + 1) * bytes, to.index() * bytes);
        }
        Ok(())
    }
}
