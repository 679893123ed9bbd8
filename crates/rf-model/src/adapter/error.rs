//! Errors of adapter files.

/// An adapter that is not supported, or does not fit the model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdapterError {
    /// The file is damaged or cannot be read.
    #[error("adapter '{file}': {error}")]
    File {
        /// The file.
        file: String,
        /// The reason.
        #[source]
        error: rf_gguf::Error,
    },
    /// The file is not a LoRA adapter.
    #[error(
        "'{file}' is not a LoRA adapter: {key} is '{}', expected '{expected}'; convert an adapter \
         with convert_lora_to_gguf.py of llama.cpp",
        found.escape_debug()
    )]
    NotAnAdapter {
        /// The file.
        file: String,
        /// The key that says so.
        key: &'static str,
        /// Its value.
        found: String,
        /// The value of LoRA adapters.
        expected: &'static str,
    },
    /// The adapter begins to apply at a sequence of tokens (aLoRA).
    #[error(
        "adapter '{file}' is an activated LoRA (aLoRA), which is not supported: use a plain LoRA \
         adapter"
    )]
    Activated {
        /// The file.
        file: String,
    },
    /// The file has no matrices.
    #[error("adapter '{file}' has no tensors: convert it again")]
    NoTensors {
        /// The file.
        file: String,
    },
    /// The factor of the adapter is not a number.
    #[error("adapter '{file}': adapter.lora.alpha = {alpha} is not a finite number")]
    Alpha {
        /// The file.
        file: String,
        /// The value in the file.
        alpha: f32,
    },
    /// The adapter was made for another architecture.
    #[error(
        "adapter '{file}' is for the architecture '{}', and the model has '{expected}': use the \
         model that it was trained on",
        found.escape_debug()
    )]
    OtherArchitecture {
        /// The file.
        file: String,
        /// The architecture of the adapter.
        found: String,
        /// The architecture of the model.
        expected: String,
    },
    /// The model has no such tensor.
    #[error(
        "adapter '{file}' changes the tensor '{}', which the model does not have: use the model \
         that it was trained on",
        tensor.escape_debug()
    )]
    UnknownTensor {
        /// The file.
        file: String,
        /// Name of the tensor.
        tensor: String,
    },
    /// The file is not a control vector.
    #[error(
        "'{file}' is not a control vector: tensor '{}' is not direction.N with a layer N of 1 or \
         more",
        tensor.escape_debug()
    )]
    NotADirection {
        /// The file.
        file: String,
        /// Name of the tensor.
        tensor: String,
    },
    /// The residual of the architecture is not one row per token.
    #[error("control vectors are not supported for the architecture '{architecture}'")]
    NoDirections {
        /// Architecture of the model.
        architecture: String,
    },
    /// One of the two matrices is missing.
    #[error(
        "adapter '{file}' has the tensor '{}' but not '{}': convert it again",
        tensor.escape_debug(),
        missing.escape_debug()
    )]
    Unpaired {
        /// The file.
        file: String,
        /// The tensor that is there.
        tensor: String,
        /// The other one.
        missing: String,
    },
    /// The shape of a matrix does not fit the tensor that it changes.
    #[error(
        "adapter '{file}': tensor '{}' has shape {found:?}, and this model needs {expected:?}: use \
         the model that it was trained on",
        tensor.escape_debug()
    )]
    Shape {
        /// The file.
        file: String,
        /// Name of the tensor.
        tensor: String,
        /// Its shape, contiguous axis first.
        found: Vec<u64>,
        /// The shape that fits the model.
        expected: Vec<u64>,
    },
    /// A matrix has a value that is not a number or is infinite.
    #[error(
        "adapter '{file}': tensor '{}' has a value that is not a number or infinite: convert it \
         again",
        tensor.escape_debug()
    )]
    NotFinite {
        /// The file.
        file: String,
        /// Name of the tensor.
        tensor: String,
    },
    /// The tensor is none of those that adapters can change.
    #[error(
        "adapter '{file}' changes the tensor '{}', which is not supported for the architecture \
         '{architecture}': merge the adapter into the model",
        tensor.escape_debug()
    )]
    UnsupportedTensor {
        /// The file.
        file: String,
        /// Name of the tensor.
        tensor: String,
        /// Architecture of the model.
        architecture: String,
    },
    /// The model drafts with a block that adapters do not change.
    #[error(
        "adapters are not supported with the model's own head for drafts (MTP): turn these drafts \
         off"
    )]
    WithMtp,
}
