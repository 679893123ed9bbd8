//! Errors of model files.

use crate::adapter::AdapterError;

/// A model file that is not supported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The architecture is not supported.
    #[error(
        "architecture '{name}' is not supported; supported are {}",
        .supported.join(", ")
    )]
    UnsupportedArchitecture {
        /// `general.architecture`.
        name: String,
        /// The supported ones.
        supported: Vec<&'static str>,
    },
    /// The architecture is supported, but not with this setting.
    #[error("{key} = {value} is not supported: {reason}")]
    UnsupportedSetting {
        /// Metadata key.
        key: String,
        /// The value in the file.
        value: String,
        /// The supported values.
        reason: String,
    },
    /// A value is invalid.
    #[error("{key} = {value} is invalid: {reason}")]
    InvalidSetting {
        /// Metadata key.
        key: String,
        /// The value in the file.
        value: String,
        /// The valid values.
        reason: String,
    },
    /// The shape of a tensor contradicts the metadata.
    #[error("tensor '{name}' has shape {found:?}, expected {expected:?}")]
    Shape {
        /// Name of the tensor.
        name: String,
        /// Shape of the tensor, contiguous axis first.
        found: Vec<u64>,
        /// The shape that follows from the metadata.
        expected: Vec<u64>,
    },
    /// The file has tensors that the architecture does not use, so its results would be wrong.
    #[error("architecture '{architecture}' is not supported with these tensors: {}", names(.tensors))]
    UnknownTensors {
        /// `general.architecture`.
        architecture: String,
        /// Names of the tensors.
        tensors: Vec<String>,
    },
    /// A norm, bias or factor has a value that is not a number or is infinite.
    #[error(
        "tensor '{name}' has the value {value} at element {index}: the file is damaged, so download \
         or convert it again"
    )]
    NotFinite {
        /// Name of the tensor.
        name: String,
        /// The element.
        index: usize,
        /// The value in the file.
        value: f32,
    },
    /// A divisor of the frequencies of RoPE is 0 or negative.
    #[error(
        "tensor '{name}' must have positive values, and element {index} is not: the file is \
         damaged, so download or convert it again"
    )]
    NotPositive {
        /// Name of the tensor.
        name: String,
        /// The element.
        index: usize,
    },
    /// Logits were requested of a model that embeds or ranks texts.
    #[error(
        "architecture '{architecture}' with pooling '{pooling}' does not generate text: it computes \
         embeddings or scores"
    )]
    NoLogits {
        /// `general.architecture`.
        architecture: String,
        /// Name of the pooling of the file, or `none`.
        pooling: &'static str,
    },
    /// The model was to guess further tokens with a block that the file lacks.
    #[error(
        "the file of architecture '{architecture}' has no block that predicts further tokens (MTP)"
    )]
    NoMtpBlock {
        /// `general.architecture`.
        architecture: String,
    },
    /// The file is an adapter (LoRA) without a model.
    #[error("the file is an adapter, not a model: load it with the model that it changes")]
    IsAdapter,
    /// The file is a vocabulary without a model.
    #[error("the file has no tensors: it is a vocabulary, not a model")]
    VocabularyOnly,
    /// An adapter is not supported, or does not fit the model.
    #[error(transparent)]
    Adapter(Box<AdapterError>),
    /// The container is damaged or incomplete.
    #[error(transparent)]
    Gguf(#[from] rf_gguf::Error),
}

impl From<AdapterError> for Error {
    fn from(error: AdapterError) -> Self {
        Self::Adapter(Box::new(error))
    }
}

/// The first names of a list.
fn names(tensors: &[String]) -> String {
    const SHOWN: usize = 4;
    let shown = tensors[..tensors.len().min(SHOWN)].join(", ");
    match tensors.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
