//! The error type.

use std::path::PathBuf;

use rf_quant::DType;

/// Why a model could not be converted.
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
    /// The threads of the conversion could not be started.
    #[error("cannot start {threads} threads: use fewer")]
    Threads {
        /// The requested number.
        threads: usize,
        /// The error of the thread pool.
        source: rayon::ThreadPoolBuildError,
    },
    /// The progress callback stopped the conversion.
    #[error("the conversion was cancelled")]
    Cancelled,
    /// The input could not be read or the output could not be written.
    #[error(transparent)]
    Gguf(#[from] rf_gguf::Error),
}
