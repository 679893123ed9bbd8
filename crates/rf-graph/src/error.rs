//! The error type of backends.

use crate::memory::MemoryNeed;
use crate::weight::NonFiniteWeight;

/// A failure of a backend.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// The program needs an op, a format or a shape that the backend does not support.
    #[error("{backend} cannot run {what}")]
    Unsupported {
        /// Name of the backend.
        backend: &'static str,
        /// The unsupported op, format or shape.
        what: String,
    },
    /// The batch violates a limit of the program.
    #[error("invalid batch: {0}")]
    InvalidBatch(String),
    /// The program needs more memory than is available.
    #[error(
        "the model needs {} of memory on the {backend} (weights {}, KV cache {}{}, buffers {}) and {} are \
         available: use a smaller context or a smaller quantisation",
        mib(need.total_bytes()),
        mib(need.held.weights_bytes),
        mib(need.held.kv_bytes),
        states(need.held.states_bytes),
        mib(need.held.buffers_bytes.saturating_add(need.reserve_bytes)),
        mib(*available_bytes)
    )]
    DoesNotFit {
        /// Name of the backend.
        backend: &'static str,
        /// Memory that the program needs.
        need: MemoryNeed,
        /// Memory that is available.
        available_bytes: u64,
    },
    /// A weight has a value that is NaN or infinite.
    #[error(transparent)]
    NonFiniteWeight(#[from] NonFiniteWeight),
    /// An allocation failed.
    #[error("out of memory: {what}{}", size(*bytes))]
    OutOfMemory {
        /// The purpose of the allocation.
        what: &'static str,
        /// Size of the allocation in bytes; 0 if unknown.
        bytes: u64,
    },
    /// The device or its runtime failed.
    #[error("{0}")]
    Device(String),
    /// The device returned the results of another step, so those of this one are lost.
    #[error(
        "the device returned the results of an earlier step: load the model again without captured \
         graphs"
    )]
    StaleResults,
}

impl BackendError {
    /// Returns true if the device or its runtime failed, not the program or the batch.
    pub fn is_of_device(&self) -> bool {
        matches!(self, Self::Device(_) | Self::StaleResults)
    }
}

/// A size in parentheses for an error message; empty if unknown.
fn size(bytes: u64) -> String {
    if bytes == 0 { String::new() } else { format!(" ({})", mib(bytes)) }
}

/// The recurrent states in the list of parts; empty for a model without.
fn states(bytes: u64) -> String {
    if bytes == 0 { String::new() } else { format!(", recurrent states {}", mib(bytes)) }
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryUse;

    #[test]
    fn an_error_of_memory_names_the_parts_and_the_cure() {
        let (weights_bytes, kv_bytes, buffers_bytes) = (4 << 20, 2 << 20, 1 << 20);
        let held = MemoryUse { weights_bytes, kv_bytes, states_bytes: 0, buffers_bytes };
        let need = MemoryNeed { held, reserve_bytes: 1 << 20 };
        let error = BackendError::DoesNotFit { backend: "GPU", need, available_bytes: 7 << 20 };
        assert_eq!((need + need).total_bytes(), 16 << 20);
        assert_eq!(
            error.to_string(),
            "the model needs 8 MiB of memory on the GPU (weights 4 MiB, KV cache 2 MiB, buffers \
             2 MiB) and 7 MiB are available: use a smaller context or a smaller quantisation"
        );
        let held = MemoryUse { states_bytes: 3 << 20, ..held };
        let need = MemoryNeed { held, reserve_bytes: 0 };
        let error = BackendError::DoesNotFit { backend: "CPU", need, available_bytes: 0 };
        let parts = "(weights 4 MiB, KV cache 2 MiB, recurrent states 3 MiB, buffers 1 MiB)";
        assert!(error.to_string().contains(parts), "{error}");
    }
}
