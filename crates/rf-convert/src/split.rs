//! Models in several files: split and merged as by llama-gguf-split.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use rf_gguf::{Gguf, GgufWriter, TensorInfo, TensorPlan};

use crate::copying::{self, check_is_new};
use crate::error::Error;

/// The prefix of the keys that only parts of a model have.
pub(crate) const SPLIT_KEYS: &str = "split.";
const ALIGNMENT_KEY: &str = "general.alignment";

/// The most that a part of a split model has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// A number of tensors per part.
    Tensors(usize),
    /// Bytes of tensor data, with the padding of each tensor. A larger tensor is alone in its part.
    Bytes(u64),
}

/// A planned split of a model: the tensors of each part are chosen, nothing is written.
#[derive(Debug)]
pub struct Split<'a> {
    gguf: &'a Gguf,
    files: Vec<(PathBuf, GgufWriter)>,
}

/// A part of a split model.
#[derive(Clone, Copy, Debug)]
pub struct SplitPart<'a> {
    /// The file, `STEM-00001-of-0000N.gguf`.
    pub path: &'a Path,
    /// The number of its tensors.
    pub tensors: usize,
    /// The bytes of its tensor data, without padding.
    pub bytes: u64,
}

impl<'a> Split<'a> {
    /// Chooses the tensors of each part, in the order of `gguf`. The first part has the metadata
    /// of the model. With `metadata_alone` it has no tensors.
    ///
    /// # Errors
    ///
    /// If a file of the split model exists, the model would have too many files, or a tensor has an
    /// unsupported type.
    pub fn plan(
        gguf: &'a Gguf,
        stem: &Path,
        limit: Limit,
        metadata_alone: bool,
    ) -> Result<Self, Error> {
        let mut parts = tensors_of_parts(gguf, limit);
        if metadata_alone {
            parts.insert(0, &[]);
        }
        let too_many = || Error::TooManyParts { parts: parts.len() };
        let count = u16::try_from(parts.len()).map_err(|_| too_many())?;
        let mut files = Vec::new();
        for (index, tensors) in (0..count).zip(&parts) {
            let mut name = stem.as_os_str().to_owned();
            name.push(format!("-{:05}-of-{count:05}.gguf", index + 1));
            let path = PathBuf::from(name);
            check_is_new(&path)?;
            let mut writer = GgufWriter::new();
            for (key, value) in gguf.metadata().iter() {
                // A reader takes the alignment of a part from the metadata of that part.
                let is_kept = !key.starts_with(SPLIT_KEYS) && (index == 0 || key == ALIGNMENT_KEY);
                if is_kept {
                    writer.add(key, value.clone())?;
                }
            }
            writer.add("split.no", index)?.add("split.count", count)?;
            writer.add("split.tensors.count", gguf.tensors().len() as i32)?;
            copying::declare(&mut writer, *tensors)?;
            files.push((path, writer));
        }
        Ok(Self { gguf, files })
    }

    /// The parts in order.
    pub fn parts(&self) -> impl Iterator<Item = SplitPart<'_>> {
        self.files.iter().map(|(path, writer)| SplitPart {
            path,
            tensors: writer.tensors().len(),
            bytes: writer.tensors().iter().map(TensorPlan::size_bytes).sum(),
        })
    }

    /// Writes the parts.
    ///
    /// `progress` receives the bytes of tensor data that were copied since its last call. When it
    /// breaks, the parts written so far are removed.
    ///
    /// # Errors
    ///
    /// [`Error::Cancelled`] when `progress` breaks, and [`Error::Gguf`] when a part cannot be
    /// written. No part is left then.
    pub fn write(&self, mut progress: impl FnMut(u64) -> ControlFlow<()>) -> Result<(), Error> {
        for (index, (path, writer)) in self.files.iter().enumerate() {
            let written = copying::write(self.gguf, writer, path, &mut progress);
            if written.is_err() {
                // The error of the part is the one to report.
                self.files[..index].iter().for_each(|(path, _)| drop(fs::remove_file(path)));
                return written;
            }
        }
        Ok(())
    }
}

/// Writes a model of several files as one file.
///
/// `progress` receives the bytes of tensor data that were copied since its last call. When it
/// breaks, the work stops and leaves no file.
///
/// # Errors
///
/// If the model is one file, `output` exists or cannot be written, a tensor has an unsupported
/// type, or `progress` breaks.
pub fn merge(
    gguf: &Gguf,
    output: &Path,
    mut progress: impl FnMut(u64) -> ControlFlow<()>,
) -> Result<(), Error> {
    if gguf.paths().len() < 2 {
        return Err(Error::OnePart);
    }
    check_is_new(output)?;
    let mut writer = GgufWriter::new();
    for (key, value) in gguf.metadata().iter().filter(|(key, _)| !key.starts_with(SPLIT_KEYS)) {
        writer.add(key, value.clone())?;
    }
    copying::declare(&mut writer, gguf.tensors())?;
    copying::write(gguf, &writer, output, &mut progress)
}

/// The tensors of each part. A part without tensors is left out, unless the model has none.
fn tensors_of_parts(gguf: &Gguf, limit: Limit) -> Vec<&[TensorInfo]> {
    let tensors = gguf.tensors();
    let (mut parts, mut first, mut bytes) = (Vec::new(), 0, 0_u64);
    for (index, tensor) in tensors.iter().enumerate() {
        let next = (tensor.size_bytes() as u64).next_multiple_of(gguf.alignment());
        let is_full = match limit {
            Limit::Tensors(most) => index - first >= most.max(1),
            Limit::Bytes(most) => index > first && bytes + next > most,
        };
        if is_full {
            parts.push(&tensors[first..index]);
            (first, bytes) = (index, 0);
        }
        bytes += next;
    }
    parts.push(&tensors[first..]);
    parts
}
