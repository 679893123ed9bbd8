//! Device memory in several allocations.
//!
//! A runtime may refuse a large allocation although as much memory is free: HIP has a limit per
//! allocation, which is far below the free memory on integrated GPUs. Therefore large memory is
//! several allocations, of at most [`MAX_ALLOCATION_BYTES`] each. Where one is refused, the next
//! attempt has half its size.

use std::ops::Range;

use rf_hip::{Context, DeviceBuffer, PinnedBuffer, Stream};

use crate::error::Error;
use crate::params::Address;

/// Largest allocation, unless a single piece is larger. No runtime is known to refuse this size
/// while as much memory is free.
const MAX_ALLOCATION_BYTES: usize = 4 << 30;

/// Device memory whose bytes are numbered as if it were one allocation. Each piece between two cuts
/// is within one allocation.
pub(super) struct SplitMemory {
    parts: Vec<Part>,
    bytes: usize,
}

/// An allocation.
struct Part {
    /// Number of its first byte.
    start: usize,
    memory: DeviceBuffer<u8>,
}

impl SplitMemory {
    /// Allocates memory that may be divided at `cuts`, which are in ascending order.
    pub(super) fn new(context: &Context, bytes: usize, cuts: &[usize]) -> Result<Self, Error> {
        let allocate = |bytes| DeviceBuffer::new(context, bytes);
        let parts = divided(bytes, cuts, allocate, rf_hip::Error::is_out_of_memory)?;
        let parts: Vec<_> =
            parts.into_iter().map(|(start, memory)| Part { start, memory }).collect();
        if parts.len() > 1 {
            tracing::debug!("{bytes} bytes of device memory are {} allocations", parts.len());
        }
        Ok(Self { parts, bytes })
    }

    /// The size in bytes.
    pub(super) fn size_bytes(&self) -> usize {
        self.bytes
    }

    /// The address of a byte.
    pub(super) fn address(&self, offset: usize) -> Address {
        self.part(offset).map_or(0, |(memory, offset)| memory.address() + offset as Address)
    }

    /// Fills everything with zero bytes.
    pub(super) fn fill_zero(&self, stream: &Stream) -> Result<(), rf_hip::Error> {
        self.parts.iter().try_for_each(|part| part.memory.fill_zero(stream))
    }

    /// Fills the bytes from `offset`, which is at a cut, with zero.
    pub(super) fn fill_zero_from(
        &self,
        stream: &Stream,
        offset: usize,
    ) -> Result<(), rf_hip::Error> {
        self.parts.iter().try_for_each(|part| {
            let len = part.memory.len();
            let first = offset.saturating_sub(part.start).min(len);
            part.memory.fill_bytes(stream, first..len, 0)
        })
    }

    /// Copies to the bytes from `offset`, within a piece. Returns when the copy is done.
    pub(super) fn copy_from_slice(
        &self,
        stream: &Stream,
        offset: usize,
        data: &[u8],
    ) -> Result<(), rf_hip::Error> {
        match self.part(offset) {
            Some((memory, offset)) => memory.copy_from_slice(stream, offset, data),
            None => Ok(()),
        }
    }

    /// Queues a copy of `source[range]` to the bytes from `offset`, within a piece.
    pub(super) fn copy_from_pinned(
        &self,
        stream: &Stream,
        offset: usize,
        source: &PinnedBuffer<u8>,
        range: Range<usize>,
    ) -> Result<(), rf_hip::Error> {
        match self.part(offset) {
            Some((memory, offset)) => memory.copy_from_pinned(stream, offset, source, range),
            None => Ok(()),
        }
    }

    /// Copies the bytes from `offset`, within a piece, to the host.
    pub(super) fn copy_to_slice(
        &self,
        stream: &Stream,
        offset: usize,
        out: &mut [u8],
    ) -> Result<(), rf_hip::Error> {
        match self.part(offset) {
            Some((memory, offset)) => memory.copy_to_slice(stream, offset, out),
            None => Ok(()),
        }
    }

    /// The allocation of a byte, and its number there. `None` if there is no memory at all.
    fn part(&self, offset: usize) -> Option<(&DeviceBuffer<u8>, usize)> {
        let after = self.parts.partition_point(|part| part.start <= offset);
        let part = self.parts.get(after.checked_sub(1)?)?;
        Some((&part.memory, offset - part.start))
    }
}

/// Allocates `bytes` in parts that end at cuts. Returns the start of each.
fn divided<M, E>(
    bytes: usize,
    cuts: &[usize],
    mut allocate: impl FnMut(usize) -> Result<M, E>,
    is_out_of_memory: impl Fn(&E) -> bool,
) -> Result<Vec<(usize, M)>, E> {
    let (mut parts, mut start, mut limit) = (Vec::new(), 0, MAX_ALLOCATION_BYTES);
    while start < bytes {
        let mut end = end_of_part(start, bytes, cuts, limit);
        let memory = loop {
            match allocate(end - start) {
                Ok(memory) => break memory,
                Err(error) if is_out_of_memory(&error) => {
                    limit = (end - start) / 2;
                    let nearer = end_of_part(start, bytes, cuts, limit);
                    if nearer == end {
                        return Err(error);
                    }
                    end = nearer;
                }
                Err(error) => return Err(error),
            }
        };
        parts.push((start, memory));
        start = end;
    }
    Ok(parts)
}

/// The last cut within `limit` bytes after `start`, or else the next one.
fn end_of_part(start: usize, bytes: usize, cuts: &[usize], limit: usize) -> usize {
    let last = start.saturating_add(limit);
    if bytes <= last {
        return bytes;
    }
    let within = cuts[..cuts.partition_point(|cut| *cut <= last)].last();
    let next = || cuts.get(cuts.partition_point(|cut| *cut <= start));
    let end = within.filter(|cut| **cut > start).or_else(next);
    end.map_or(bytes, |end| bytes.min(*end))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes of the parts on a device that refuses an allocation above a limit, and all above
    /// its memory.
    fn sizes(bytes: usize, cuts: &[usize], limit: usize, free: usize) -> Option<Vec<usize>> {
        let mut used = 0;
        let allocate = |bytes| {
            let fits = bytes <= limit && used + bytes <= free;
            used += if fits { bytes } else { 0 };
            if fits { Ok(bytes) } else { Err(()) }
        };
        let parts = divided(bytes, cuts, allocate, |()| true).ok()?;
        let starts: usize = parts.iter().map(|(_, bytes)| bytes).sum();
        assert_eq!(starts, bytes);
        Some(parts.into_iter().map(|(_, bytes)| bytes).collect())
    }

    #[test]
    fn memory_is_one_allocation_up_to_the_largest_size() {
        let (gib, all) = (1 << 30, usize::MAX);
        assert_eq!(sizes(3 * gib, &[gib, 2 * gib], all, all), Some(vec![3 * gib]));
        let cuts: Vec<_> = (1..20).map(|i| i * gib / 2).collect();
        assert_eq!(sizes(10 * gib, &cuts, all, all), Some(vec![4 * gib, 4 * gib, 2 * gib]));
        assert_eq!(sizes(0, &[], all, all), Some(vec![]));
        // A piece is never divided.
        assert_eq!(sizes(10 * gib, &[9 * gib], all, all), Some(vec![9 * gib, gib]));
    }

    #[test]
    fn an_allocation_that_is_refused_is_halved() {
        let cuts: Vec<_> = (1..16).collect();
        assert_eq!(sizes(16, &cuts, 5, 16), Some(vec![4; 4]));
        assert_eq!(sizes(16, &[6, 9], 7, 16), Some(vec![6, 3, 7]));
        // Without memory the error remains, and a piece above the limit is one, too.
        assert_eq!(sizes(16, &cuts, 16, 15), None);
        assert_eq!(sizes(16, &[2, 12], 7, 16), None);
    }
}
