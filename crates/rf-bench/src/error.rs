//! Why a workload could not be measured.

use rf_graph::BackendError;

/// Why a workload could not be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The target cannot do it, or there is no such target here.
    #[error("{0}")]
    Unsupported(String),
    /// It does not fit.
    #[error("out of memory: {what} ({} MiB)", bytes.div_ceil(1 << 20))]
    OutOfMemory {
        /// What was to be allocated.
        what: &'static str,
        /// Its size; 0 if that is not known.
        bytes: u64,
    },
    /// The backend failed.
    #[error(transparent)]
    Backend(BackendError),
    /// The conversion failed.
    #[error(transparent)]
    Conversion(#[from] rf_quant::Error),
    /// The pool of pages is too small.
    #[error(transparent)]
    Pages(#[from] rf_kv::OutOfPages),
}

impl From<BackendError> for Error {
    fn from(error: BackendError) -> Self {
        match error {
            BackendError::Unsupported { .. } => Self::Unsupported(error.to_string()),
            BackendError::OutOfMemory { what, bytes } => Self::OutOfMemory { what, bytes },
            other => Self::Backend(other),
        }
    }
}
