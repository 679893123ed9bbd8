//! Why a file cannot be run.

/// Why a file cannot be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The architecture is not one of ours.
    #[error(
        "architecture '{name}' is not supported; supported are {}",
        crate::SUPPORTED_ARCHITECTURES.join(", ")
    )]
    UnsupportedArchitecture {
        /// `general.architecture`.
        name: String,
    },
    /// The architecture is ours, but not with this setting.
    #[error("{key} = {value} is not supported: {reason}")]
    UnsupportedSetting {
        /// Metadata key.
        key: String,
        /// Its value.
        value: String,
        /// What is supported.
        reason: String,
    },
    /// A value that makes no sense.
    #[error("{key} = {value} is invalid: {reason}")]
    InvalidSetting {
        /// Metadata key.
        key: String,
        /// Its value.
        value: String,
        /// Which values are valid.
        reason: String,
    },
    /// A tensor has not the shape that the metadata asks for.
    #[error("tensor '{name}' has shape {found:?}, expected {expected:?}")]
    Shape {
        /// Name of the tensor.
        name: String,
        /// Its shape, contiguous axis first.
        found: Vec<u64>,
        /// The shape that follows from the metadata.
        expected: Vec<u64>,
    },
    /// The file holds a vocabulary and no model.
    #[error("the file has no tensors: it is a vocabulary, not a model")]
    VocabularyOnly,
    /// The container is damaged or lacks something.
    #[error(transparent)]
    Gguf(#[from] rf_gguf::Error),
}
