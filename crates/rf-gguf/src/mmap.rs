//! Mapping a file into memory: the only unsafe code of the crate.
//!
//! A mapping shows the current contents of the file. If another program truncates the file while it
//! is mapped, touching a missing page ends this process with `SIGBUS` (on Windows a mapped file
//! cannot be truncated). If another program overwrites the file in place, the values of tensors
//! change. Names, strings and sizes do not, because they are copied out of the map when the file is
//! opened. Replacing a model by writing a new file and renaming it over the old one, as
//! [`GgufWriter`](crate::GgufWriter) does, is safe: the mapping keeps the old file.
#![expect(unsafe_code, reason = "memory maps: the contract is the operating system's")]

use std::fs::File;
use std::io;
use std::ops::Deref;

use memmap2::Mmap;

/// A whole file, mapped read-only.
#[derive(Debug)]
pub(crate) struct MappedFile {
    map: Mmap,
}

impl MappedFile {
    /// Maps all of `file`, which must not be empty.
    pub(crate) fn new(file: &File) -> io::Result<Self> {
        // SAFETY: the map is read-only and only ever read as bytes, for which every value is valid;
        // a truncation by another program is the documented limit of the module.
        let map = unsafe { Mmap::map(file)? };
        Ok(Self { map })
    }

    /// Reads the pages of the range ahead.
    #[cfg(unix)]
    pub(crate) fn prefetch(&self, start: usize, length_bytes: usize) {
        // A hint: the bytes are the same when the kernel declines.
        drop(self.map.advise_range(memmap2::Advice::WillNeed, start, length_bytes));
    }

    /// Removes the whole pages inside the range from this process. A later access reads them from
    /// the file again.
    #[cfg(unix)]
    pub(crate) fn release(&self, start: usize, length_bytes: usize) {
        // Pages at the edges are shared with the neighbouring tensors. Where pages are larger than
        // this, the kernel drops such a page too, and the neighbour faults it in again.
        const PAGE_BYTES: usize = 4096;
        let first = start.next_multiple_of(PAGE_BYTES);
        let end = (start + length_bytes) / PAGE_BYTES * PAGE_BYTES;
        if first >= end {
            return;
        }
        // SAFETY: the mapping is file-backed and never written through, so that a dropped page
        // comes back with the contents of the file: no reference sees other bytes than before.
        drop(unsafe {
            self.map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, first, end - first)
        });
    }

    #[cfg(not(unix))]
    pub(crate) fn prefetch(&self, _start: usize, _length_bytes: usize) {}

    #[cfg(not(unix))]
    pub(crate) fn release(&self, _start: usize, _length_bytes: usize) {}
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}
