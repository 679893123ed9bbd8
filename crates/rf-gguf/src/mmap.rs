//! Mapping a file into memory: the only unsafe code of the crate.
//!
//! A mapping shows the current contents of the file. If another program truncates the file while it
//! is mapped, touching a missing page ends this process with `SIGBUS` (on Windows a mapped file
//! cannot be truncated). [`report_bus_errors`] lets a program say so. Reading with `pread` would
//! turn this into an error, but it would copy every weight once more, and an embedding table that
//! stays mapped could not. If another program overwrites the file in place, the values of tensors
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

/// Makes a bus error end this process with exit code 1 and a message on stderr, instead of
/// silently: its cause is nearly always a model file that became shorter while it was mapped. For
/// programs; the effect is on the whole process.
#[cfg(unix)]
pub fn report_bus_errors() {
    // SAFETY: all bytes zero are a valid `sigaction`: no flags and an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_bus_error as extern "C" fn(libc::c_int) as libc::sighandler_t;
    // SAFETY: the handler calls only functions that are safe in signal handlers, and never returns;
    // both pointers are valid or null.
    unsafe { libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) };
}

/// Does nothing: other systems do not let a mapped file become shorter.
#[cfg(not(unix))]
pub fn report_bus_errors() {}

#[cfg(unix)]
extern "C" fn on_bus_error(_signal: libc::c_int) {
    const MESSAGE: &[u8] =
        b"\nerror: a file became shorter while it was read: replace a model that \
        is in use by renaming a new file over it, not by writing into it\n";
    // SAFETY: `write` is safe in a signal handler, and the bytes are constant.
    unsafe { libc::write(2, MESSAGE.as_ptr().cast(), MESSAGE.len()) };
    // SAFETY: `_exit` is safe in a signal handler.
    unsafe { libc::_exit(1) }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}
