//! Memory of the program.

use std::slice;

use crate::Status;

/// Memory of the program that queued work accesses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostRange {
    start: usize,
    bytes: usize,
}

impl HostRange {
    /// # Safety
    ///
    /// Until the work is done, the bytes are valid for the accesses of the work, and nobody else
    /// accesses them in a conflicting way.
    pub(super) unsafe fn new<T>(start: *const T, bytes: usize) -> Result<Self, Status> {
        let start = start.cast::<u8>().expose_provenance();
        if start == 0 && bytes > 0 { Err(Status::INVALID_VALUE) } else { Ok(Self { start, bytes }) }
    }

    /// The bytes, for reading.
    pub(crate) fn bytes(&self) -> &[u8] {
        if self.bytes == 0 {
            return &[];
        }
        let start = std::ptr::with_exposed_provenance(self.start);
        // SAFETY: valid by the contract of `new`.
        unsafe { slice::from_raw_parts(start, self.bytes) }
    }

    /// Passes the bytes for writing.
    pub(crate) fn with_bytes<R>(&self, write: impl FnOnce(&mut [u8]) -> R) -> R {
        if self.bytes == 0 {
            return write(&mut []);
        }
        let start = std::ptr::with_exposed_provenance_mut(self.start);
        // SAFETY: valid by the contract of `new`; the lock of the state excludes other calls.
        write(unsafe { slice::from_raw_parts_mut(start, self.bytes) })
    }
}
