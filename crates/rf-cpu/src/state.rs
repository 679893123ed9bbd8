//! Recurrent states: f32 matrices, one page per sequence.
//!
//! Rows are padded to whole tiles of [`TILE`] columns. The system allocates memory on first use, so
//! unused states take none.

use std::ops::Range;

use memmap2::MmapMut;
use rf_graph::{BackendError, KvLayout, StateShape};
use rf_kv::{CopyPage, PageId};

use crate::kv::check_len;
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

    fn check_page(&self, page: PageId) -> Result<(), BackendError> {
        if page.index() < self.num_pages {
            return Ok(());
        }
        let what = format!("state {} of {}", page.index(), self.num_pages);
        Err(BackendError::InvalidBatch(what))
    }

    /// Appends the states of a page.
    pub(crate) fn read_page(&self, page: PageId, out: &mut Vec<u8>) -> Result<(), BackendError> {
        self.check_page(page)?;
        for state in &self.states {
            out.extend_from_slice(&state.map[state.page_bytes(page)]);
        }
        Ok(())
    }

    /// Replaces the states of a page.
    pub(crate) fn write_page(&mut self, page: PageId, bytes: &[u8]) -> Result<(), BackendError> {
        self.check_page(page)?;
        check_len(self.states.iter().map(|state| state.page_bytes(page).len()).sum(), bytes)?;
        let mut rest = bytes;
        for state in &mut self.states {
            let range = state.page_bytes(page);
            let part;
            (part, rest) = rest.split_at(range.len());
            state.map[range].copy_from_slice(part);
        }
        Ok(())
    }

    /// Copies the states of one page to another.
    pub(crate) fn copy_page(&mut self, copy: CopyPage) -> Result<(), BackendError> {
        let CopyPage { from, to, .. } = copy;
        self.check_page(from)?;
        self.check_page(to)?;
        for state in &mut self.states {
            let (from, to) = (state.page_bytes(from), state.page_bytes(to));
            state.map.copy_within(from, to.start);
        }
        Ok(())
    }
}

impl StoredState {
    /// The bytes of a page.
    fn page_bytes(&self, page: PageId) -> Range<usize> {
        let bytes = self.page_len * size_of::<f32>();
        page.index() * bytes..(page.index() + 1) * bytes
    }
}
