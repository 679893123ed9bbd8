//! The bytes of a model, and handles to ranges of them.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::mmap::MappedFile;

/// The bytes of one file.
#[derive(Debug)]
pub(crate) enum FileBytes {
    Mapped(MappedFile),
    Static(&'static [u8]),
    Owned(Vec<u8>),
}

impl Deref for FileBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Static(bytes) => bytes,
            Self::Owned(bytes) => bytes,
        }
    }
}

/// The stored bytes of a tensor: a cheap handle that keeps the file mapped.
///
/// Reading a mapped tensor may read the disk; see [`prefetch`](Self::prefetch) and
/// [`release`](Self::release). While the file is mapped, another program must not truncate it: the
/// operating system kills this process when it touches a missing page.
#[derive(Clone)]
pub struct TensorData {
    source: Arc<FileBytes>,
    // Always a valid range of `source`.
    start: usize,
    length_bytes: usize,
}

impl TensorData {
    /// `range` must be inside the source. Callers check it when they open the file.
    pub(crate) fn new(source: Arc<FileBytes>, range: Range<usize>) -> Self {
        debug_assert!(range.start <= range.end && range.end <= source.len());
        Self { source, start: range.start, length_bytes: range.len() }
    }

    /// Bytes in memory, such as those of a generated tensor.
    pub fn from_vec(bytes: Vec<u8>) -> Self {
        let range = 0..bytes.len();
        Self::new(Arc::new(FileBytes::Owned(bytes)), range)
    }

    /// A part of these bytes, such as one expert of a stack. `None` when it is out of range.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Option<Self> {
        if range.start > range.end || range.end > self.length_bytes {
            return None;
        }
        let start = self.start + range.start;
        Some(Self { source: Arc::clone(&self.source), start, length_bytes: range.len() })
    }

    /// Returns true if the bytes belong to a mapped file, so that [`release`](Self::release) has an
    /// effect.
    pub fn is_mapped(&self) -> bool {
        matches!(*self.source, FileBytes::Mapped(_))
    }

    /// Hints that the bytes will be read soon. Does nothing for bytes in memory.
    pub fn prefetch(&self) {
        if let FileBytes::Mapped(map) = &*self.source {
            map.prefetch(self.start, self.length_bytes);
        }
    }

    /// Hints that the bytes are no longer needed, for instance because the weight was packed. The
    /// whole pages inside the range leave this process's memory.
    ///
    /// The handle stays valid and reads the file again. Does nothing for bytes in memory.
    pub fn release(&self) {
        if let FileBytes::Mapped(map) = &*self.source {
            map.release(self.start, self.length_bytes);
        }
    }
}

impl Deref for TensorData {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.source[self.start..self.start + self.length_bytes]
    }
}

impl AsRef<[u8]> for TensorData {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for TensorData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TensorData")
            .field("start", &self.start)
            .field("length_bytes", &self.length_bytes)
            .field("mapped", &self.is_mapped())
            .finish_non_exhaustive()
    }
}
