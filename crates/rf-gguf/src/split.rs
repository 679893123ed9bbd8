//! Models in several files: the index of a part, the paths of the others, and their consistency.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::metadata::Metadata;

const INDEX_KEY: &str = "split.no";
const COUNT_KEY: &str = "split.count";
const TENSOR_COUNT_KEY: &str = "split.tensors.count";

/// The index of a file among the parts of a model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartIndex {
    /// Counted from 0, as in the metadata. File names count from 1.
    pub(crate) index: u32,
    /// At least 2.
    pub(crate) count: u32,
}

/// The part with these metadata. `None` for a model in one file.
pub(crate) fn part(metadata: &Metadata) -> Result<Option<PartIndex>, Error> {
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
    Ok(Some(PartIndex { index, count }))
}

impl PartIndex {
    /// The paths of all parts in order. `path` is the path of this part.
    pub(crate) fn all_paths(self, path: &Path) -> Result<Vec<PathBuf>, Error> {
        let suffix = |index: u32| format!("-{:05}-of-{:05}.gguf", index + 1, self.count);
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let stem = name
            .strip_suffix(&*suffix(self.index))
            .ok_or(Error::PartName { part: self.index + 1, count: self.count })?;
        let sibling = |index| path.with_file_name(format!("{stem}{}", suffix(index)));
        Ok((0..self.count).map(sibling).collect())
    }

    /// Checks that `metadata` belong to this part.
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

/// Checks the number of tensors in all parts against the metadata of the first part, if present.
pub(crate) fn check_tensor_count(first: &Metadata, found: usize) -> Result<(), Error> {
    match first.u64(TENSOR_COUNT_KEY)? {
        Some(expected) if expected != found as u64 => {
            Err(Error::PartTensors { key: TENSOR_COUNT_KEY, stated: expected, found })
        }
        _ => Ok(()),
    }
}

const fn mismatch(what: &'static str, found: u64, expected: u64) -> Error {
    Error::PartMismatch { what, found, expected }
}
