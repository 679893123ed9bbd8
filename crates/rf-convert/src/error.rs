//! The error type.

use std::path::PathBuf;

use rf_quant::DType;

/// Why a model could not be converted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No mix has the given name or number.
    #[error("unknown type '{name}': take one of {known}")]
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
        /// Its format in the input.
        dtype: DType,
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
