//! What can go wrong between a file and its text.

/// What can go wrong between a file and its text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file is damaged or holds something else.
    #[error(transparent)]
    Gguf(#[from] rf_gguf::Error),
    /// The model is not one that can be run.
    #[error(transparent)]
    Model(#[from] rf_model::Error),
    /// The vocabulary or the chat template cannot be used.
    #[error(transparent)]
    Tokenizer(#[from] rf_tokenizer::Error),
    /// The backend failed.
    #[error(transparent)]
    Backend(#[from] rf_graph::BackendError),
    /// A sampling parameter is out of range, or there is nothing to choose from.
    #[error(transparent)]
    Sampling(#[from] crate::sampling::Error),
    /// The model does not fit.
    #[error(
        "the model needs {} of memory and {} can be had; use a smaller context or a smaller quantisation",
        mib(*needed_bytes),
        mib(*available_bytes)
    )]
    DoesNotFit {
        /// Weights, KV cache and buffers.
        needed_bytes: u64,
        /// What the backend has.
        available_bytes: u64,
    },
    /// The prompt is longer than the context.
    #[error(
        "the prompt has {prompt_tokens} tokens and the context has room for {context_tokens}; use a larger context or a shorter prompt"
    )]
    PromptTooLong {
        /// Tokens of the prompt.
        prompt_tokens: usize,
        /// Tokens of the context.
        context_tokens: usize,
    },
    /// There is nothing to continue.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// A token id is not in the vocabulary.
    #[error("token id {id} is not in the vocabulary of {vocab_size}")]
    UnknownToken {
        /// The id.
        id: u32,
        /// Size of the vocabulary.
        vocab_size: usize,
    },
    /// The KV cache has no page left for another sequence.
    #[error(transparent)]
    OutOfPages(#[from] rf_kv::OutOfPages),
    /// A page size that does not exist.
    #[error(transparent)]
    PageSize(#[from] rf_kv::InvalidPageSize),
    /// An option that makes no sense.
    #[error("{name} = {value} is invalid: {reason}")]
    InvalidOption {
        /// Name of the option.
        name: &'static str,
        /// Its value.
        value: usize,
        /// Which values are valid.
        reason: &'static str,
    },
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}
