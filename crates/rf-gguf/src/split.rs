//! Models in several files: which part a file is, where the others are, whether they fit together.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::metadata::Metadata;

const INDEX_KEY: &str = "split.no";
const COUNT_KEY: &str = "split.count";
const TENSOR_COUNT_KEY: &str = "split.tensors.count";

/// The place of a file among the parts of a model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// From 0, as in the metadata; file names count from 1.
    pub(crate) index: u32,
    /// More than 1.
    pub(crate) count: u32,
}

/// Which part the file with these metadata is; `None` where it is a whole model.
pub(crate) fn part(metadata: &Metadata) -> Result<Option<Part>, Error> {
    let count = metadata.u32(COUNT_KEY)?.unwrap_or(1);
    if count <= 1 {
        return Ok(None);
    }
    let index = metadata.required_u32(INDEX_KEY)?;
    // The format keeps both in 16 bits, and the file names have five digits.
    if count > u32::from(u16::MAX) {
        return Err(mismatch(COUNT_KEY, count.into(), u16::MAX.into()));
    }
    if index >= count {
        return Err(mismatch(INDEX_KEY, index.into(), u64::from(count) - 1));
    }
    Ok(Some(Part { index, count }))
}

impl Part {
    /// The paths of all parts, in order, when `path` is that of this one.
    pub(crate) fn all_paths(self, path: &Path) -> Result<Vec<PathBuf>, Error> {
        let suffix = |index: u32| format!("-{:05}-of-{:05}.gguf", index + 1, self.count);
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let stem = name
            .strip_suffix(&*suffix(self.index))
            .ok_or(Error::PartName { part: self.index + 1, count: self.count })?;
        let sibling = |index| path.with_file_name(format!("{stem}{}", suffix(index)));
        Ok((0..self.count).map(sibling).collect())
    }

    /// Checks that the metadata of the file in this place say so.
    pub(crate) fn check(self, metadata: &Metadata) -> Result<(), Error> {
        let count = metadata.required_u32(COUNT_KEY)?;
        if count != self.count {
            return Err(mismatch(COUNT_KEY, count.into(), self.count.into()));
        }
        let index = metadata.required_u32(INDEX_KEY)?;
        if index != self.index {
            return Err(mismatch(INDEX_KEY, index.into(), self.index.into()));
        }
        Ok(())
    }
}

/// Checks that the parts together have as many tensors as the first one says, where it does.
pub(crate) fn check_tensor_count(first: &Metadata, found: usize) -> Result<(), Error> {
    match first.u64(TENSOR_COUNT_KEY)? {
        Some(expected) if expected != found as u64 => {
            Err(mismatch(TENSOR_COUNT_KEY, found as u64, expected))
        }
        _ => Ok(()),
    }
}

const fn mismatch(what: &'static str, found: u64, expected: u64) -> Error {
    Error::PartMismatch { what, found, expected }
}
