//! The length of a module image, which HIP's interface passes as an address only.

use std::ffi::c_void;
use std::slice;

use crate::Status;

const BUNDLE_MAGIC: &[u8] = b"__CLANG_OFFLOAD_BUNDLE__";
/// Longer images are refused as damaged.
const MAX_BYTES: u64 = 4 << 30;

/// The bytes of an ELF file or a bundle.
///
/// # Safety
///
/// `image` is null or the start of a file that has at least the length that its headers state, and
/// lives as long as the result is used.
pub(super) unsafe fn bytes<'a>(image: *const c_void) -> Result<&'a [u8], Status> {
    if image.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    let start = image.cast::<u8>();
    // SAFETY: every file of these kinds is longer than its magic number, and any other has at least
    // the four bytes that are read first.
    let prefix = |len: usize| unsafe { slice::from_raw_parts(start, len) };
    let len = if prefix(4) == b"\x7fELF" {
        elf_bytes(prefix(64), &prefix)
    } else if prefix(2) == b"__" && prefix(BUNDLE_MAGIC.len()) == BUNDLE_MAGIC {
        bundle_bytes(&prefix)
    } else {
        None
    };
    let len = len.filter(|&len| len <= MAX_BYTES).ok_or(Status::INVALID_IMAGE)?;
    Ok(prefix(len as usize))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from(u16::from_le_bytes(*bytes)))
}

/// The end of the last table or segment of an ELF file.
fn elf_bytes<'a>(header: &[u8], prefix: &impl Fn(usize) -> &'a [u8]) -> Option<u64> {
    let table = |start, entry, count| {
        Some((u64_at(header, start)?, u16_at(header, entry)?, u16_at(header, count)?))
    };
    let end_of = |(start, entry, count): (u64, u64, u64)| {
        start.checked_add(entry * count).filter(|&end| end <= MAX_BYTES)
    };
    let segments = table(32, 54, 56)?;
    let sections = table(40, 58, 60)?;
    let mut end = 64.max(end_of(segments)?).max(end_of(sections)?);
    // The sections of a code object are within its segments or before the section table, but both
    // orders are valid, so all are visited.
    let entries = |(start, entry, count): (u64, u64, u64), at: u64| {
        let file = prefix((start + entry * count) as usize);
        (0..count).map(move |index| &file[(start + index * entry + at) as usize..])
    };
    for place in entries(segments, 8).zip(entries(segments, 32)) {
        end = end.max(u64_at(place.0, 0)?.checked_add(u64_at(place.1, 0)?)?);
    }
    Some(end)
}

/// The end of the last code object of a bundle.
fn bundle_bytes<'a>(prefix: &impl Fn(usize) -> &'a [u8]) -> Option<u64> {
    const MAX_TARGETS: u64 = 1024;

    let mut at = BUNDLE_MAGIC.len() + 8;
    let count = u64_at(prefix(at), BUNDLE_MAGIC.len()).filter(|&count| count <= MAX_TARGETS)?;
    let mut end = at as u64;
    for _ in 0..count {
        let entry = prefix(at + 24);
        end = end.max(u64_at(entry, at)?.checked_add(u64_at(entry, at + 8)?)?);
        let name_bytes = u64_at(entry, at + 16).filter(|&bytes| bytes <= 4096)?;
        at += 24 + name_bytes as usize;
    }
    Some(end.max(at as u64))
}
