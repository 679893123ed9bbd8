//! Buffers of which the team writes disjoint parts.

use std::marker::PhantomData;
use std::ops::Range;

/// A slice of which the team writes disjoint parts.
pub(crate) struct DisjointSlice<'a, T> {
    start: *mut T,
    len: usize,
    owner: PhantomData<&'a mut [T]>,
}

// SAFETY: a slice of T, whose parts are accessed under the contract of its methods.
unsafe impl<T: Send> Send for DisjointSlice<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for DisjointSlice<'_, T> {}

impl<T> Clone for DisjointSlice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for DisjointSlice<'_, T> {}

impl<'a, T> DisjointSlice<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), owner: PhantomData }
    }

    pub(crate) fn len(self) -> usize {
        self.len
    }

    /// The part `range` of the slice.
    pub(crate) fn part(self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: the range is inside the slice.
        let start = unsafe { self.start.add(range.start) };
        Self { start, len: range.len(), owner: PhantomData }
    }

    /// Elements `range`, to read.
    ///
    /// # Safety
    ///
    /// No thread writes these elements while the result lives: the last writes were in an earlier
    /// phase.
    pub(crate) unsafe fn get(self, range: Range<usize>) -> &'a [T] {
        let part = self.part(range);
        // SAFETY: inside the slice, and not written concurrently by contract.
        unsafe { std::slice::from_raw_parts(part.start, part.len) }
    }

    /// Elements `range`, to write.
    ///
    /// # Safety
    ///
    /// No other thread reads or writes these elements while the result lives.
    pub(crate) unsafe fn get_mut(self, range: Range<usize>) -> &'a mut [T] {
        let part = self.part(range);
        // SAFETY: inside the slice, and exclusive by contract.
        unsafe { std::slice::from_raw_parts_mut(part.start, part.len) }
    }
}

/// A matrix `[rows, width]` of f32 that the team shares.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    pub(crate) data: DisjointSlice<'a, f32>,
    pub(crate) width: usize,
}

impl<'a> Rows<'a> {
    /// One row, to read.
    ///
    /// # Safety
    ///
    /// The contract of [`DisjointSlice::get`].
    pub(crate) unsafe fn row(self, row: usize) -> &'a [f32] {
        // SAFETY: by contract.
        unsafe { self.data.get(row * self.width..(row + 1) * self.width) }
    }

    /// Part of a row, to write.
    ///
    /// # Safety
    ///
    /// The contract of [`DisjointSlice::get_mut`].
    pub(crate) unsafe fn row_mut(self, row: usize, columns: Range<usize>) -> &'a mut [f32] {
        let first = row * self.width;
        // SAFETY: by contract.
        unsafe { self.data.get_mut(first + columns.start..first + columns.end) }
    }
}
