//! The error type.

use std::path::PathBuf;

use rf_quant::DType;

use crate::edit_problem::EditProblem;

/// An error of a conversion, split, merge, edit or comparison of models.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No mix has the given name or number.
    #[error("unknown type '{name}': use one of {known}")]
    UnknownMix {
        /// The name as given.
        name: String,
        /// The names of all mixes.
        known: String,
    },
    /// The model has a vocabulary and no tensors.
    #[error("the file has no tensors, only a vocabulary: give a model")]
    NoTensors,
    /// The output path names a file of the input model.
    #[error("'{}' is the model that is read: write to another file", path.display())]
    OutputIsInput {
        /// The output path as given.
        path: PathBuf,
    },
    /// A tensor of the input is quantised, and [`Options`](crate::Options) do not allow to quantise
    /// it again.
    #[error(
        "tensor '{}' is already quantised ({dtype}), and quantising it again loses quality: start \
         from an F16, BF16 or F32 file",
        name.escape_debug()
    )]
    AlreadyQuantized {
        /// The tensor.
        name: String,
        /// Format of the tensor in the input.
        dtype: DType,
    },
    /// A tensor would be quantised so coarsely that the importance of its columns is needed, and
    /// there is none.
    #[error(
        "tensor '{}' cannot become {dtype} without an importance matrix{}",
        name.escape_debug(),
        if *is_missing { ", and the one given does not have it" } else { "" }
    )]
    NeedsImatrix {
        /// The tensor.
        name: String,
        /// The coarse format.
        dtype: DType,
        /// True if there is an importance matrix, and it does not have the tensor.
        is_missing: bool,
    },
    /// The file is no importance matrix.
    #[error("'{}' is not an importance matrix: {problem}", path.display())]
    NotImatrix {
        /// The file.
        path: PathBuf,
        /// The defect.
        problem: String,
    },
    /// An importance matrix of another model.
    #[error(
        "the importance matrix has {actual} values for '{}', but {expected} are needed: use the \
         importance matrix of this model",
        name.escape_debug()
    )]
    ImatrixShape {
        /// The tensor.
        name: String,
        /// Values that the tensor needs.
        expected: usize,
        /// Values of the importance matrix.
        actual: usize,
    },
    /// The output exists, and is written only where nothing is.
    #[error("'{}' exists already: give another output", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A model in one file cannot be merged.
    #[error("the model is one file, so there is nothing to merge")]
    OnePart,
    /// A model in several files cannot be edited.
    #[error("the model has {parts} parts: merge them first")]
    SeveralParts {
        /// The number of files.
        parts: usize,
    },
    /// A model would be split into more files than their format counts.
    #[error(
        "the model would have {parts} parts, but at most 65535 are possible: allow larger ones"
    )]
    TooManyParts {
        /// The number of files.
        parts: usize,
    },
    /// A key of the metadata cannot be changed as requested.
    #[error("cannot change the key '{}': {problem}", key.escape_debug())]
    Edit {
        /// The key.
        key: String,
        /// The reason.
        problem: EditProblem,
    },
    /// The backup of a file that is edited could not be made.
    #[error("cannot write the backup '{}'", path.display())]
    Backup {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// Data that are compared could not be dequantised.
    #[error("cannot dequantise a tensor")]
    Data {
        /// The error of the format.
        source: rf_quant::Error,
    },
    /// The threads of the conversion could not be started.
    #[error("cannot start {threads} threads: use fewer")]
    Threads {
        /// The requested number.
        threads: usize,
        /// The error of the thread pool.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The progress callback stopped the work.
    #[error("the work was cancelled")]
    Cancelled,
    /// The input could not be read or the output could not be written.
    #[error(transparent)]
    Gguf(#[from] rf_gguf::Error),
}
