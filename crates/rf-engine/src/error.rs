//! Errors of loading and generation.

use std::sync::Arc;

use crate::adapters::AdapterScalesError;
use crate::media::MediaError;
use crate::scheduler::SubmitError;

/// Errors of loading and generation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file is damaged or is no GGUF file.
    #[error(transparent)]
    Gguf(#[from] rf_gguf::Error),
    /// The model is not supported.
    #[error(transparent)]
    Model(#[from] rf_model::Error),
    /// The vocabulary is not supported.
    #[error(transparent)]
    Tokenizer(#[from] rf_tokenizer::Error),
    /// The chat template is malformed, or it refused a conversation or failed.
    #[error(transparent)]
    Chat(#[from] rf_chat::Error),
    /// The backend failed.
    #[error(transparent)]
    Backend(#[from] rf_graph::BackendError),
    /// A sampling parameter is out of range, or there are no candidates.
    #[error(transparent)]
    Sampling(#[from] crate::sampling::Error),
    /// The constraint on the output failed.
    #[error(transparent)]
    Constraint(#[from] crate::scheduler::ConstraintError),
    /// A sequence cannot be saved or restored.
    #[error(transparent)]
    Saved(#[from] SavedError),
    /// The prompt is longer than the context.
    #[error(
        "the prompt has {prompt_tokens} tokens, but the context has room for {context_tokens}: use a larger context or a shorter prompt"
    )]
    PromptTooLong {
        /// Tokens of the prompt.
        prompt_tokens: usize,
        /// Tokens of the context.
        context_tokens: usize,
    },
    /// Logits were requested of an engine that embeds.
    #[error("the engine was loaded to embed texts, not to generate")]
    LoadedToEmbed,
    /// An embedding was requested of an engine that generates.
    #[error("the engine was loaded to generate text, not to embed it")]
    LoadedToGenerate,
    /// A conversation needs a chat template, and the model has none.
    #[error("the model has no chat template{}{reason}", if reason.is_empty() { "" } else { ": " })]
    NoChatTemplate {
        /// Why the template of the file is not used; empty if the file has none.
        reason: String,
    },
    /// The model computed a value that is not a number.
    #[error(
        "the result contains NaN, so the weights are damaged: download or convert the model again"
    )]
    NotANumber,
    /// Speculative decoding needs a cache that drops the newest tokens.
    #[error(
        "speculative decoding is not supported for this model, because its cache cannot drop \
         tokens: turn it off"
    )]
    CannotDropTokens,
    /// Drafts were requested of an engine whose sequences have recurrent states.
    #[error(
        "the model was loaded without the recurrent states that drafts need: load it for drafts"
    )]
    NoDraftStates,
    /// Drafts of the model's own block were requested of an engine without it.
    #[error(
        "the model's own head for drafts (MTP) is not loaded: load the model with it, or take \
         drafts from the text"
    )]
    NoMtp,
    /// The draft model has another vocabulary.
    #[error(
        "the draft model has another vocabulary, first at token {id}: use a smaller model of the \
         same family"
    )]
    DraftVocabulary {
        /// The first token id that differs.
        id: usize,
    },
    /// The prompt has no tokens.
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
    /// The page size is not supported.
    #[error(transparent)]
    PageSize(#[from] rf_kv::InvalidPageSize),
    /// A scheduler refused the request.
    #[error(transparent)]
    Refused(SubmitError),
    /// The model or its backend does not compute the media of a prompt.
    #[error(transparent)]
    Media(#[from] MediaError),
    /// The scales of adapters do not fit the model.
    #[error(transparent)]
    Adapters(#[from] AdapterScalesError),
    /// A failure of a batch, which several requests share.
    #[error(transparent)]
    Shared(Arc<Self>),
    /// Code that serves a request panicked.
    #[error("the request failed because of an internal error: {0}")]
    Panicked(String),
    /// The thread of the scheduler cannot be started.
    #[error("cannot start the thread of the scheduler: {0}")]
    Thread(std::io::Error),
    /// The folder for pages of the prefix cache cannot be used.
    #[error("cannot use {} for the prefix cache: {source}", folder.display())]
    DiskCache {
        /// The folder.
        folder: std::path::PathBuf,
        /// The failure.
        source: std::io::Error,
    },
    /// An option is invalid.
    #[error("{name} = {value} is invalid: {reason}")]
    InvalidOption {
        /// Name of the option.
        name: &'static str,
        /// Value of the option.
        value: usize,
        /// The valid values.
        reason: &'static str,
    },
    /// An activation is NaN or infinite.
    #[error(
        "an activation that '{}' multiplies is not finite, so the model is damaged: download or \
         convert it again",
        tensor.escape_debug()
    )]
    NotFinite {
        /// The tensor that it multiplies.
        tensor: String,
    },
    /// The model cannot be computed with so long a context.
    #[error(
        "a context of {context_tokens} tokens is not supported: the maximum for this model is \
         {most}"
    )]
    ContextTooLong {
        /// Requested tokens per sequence.
        context_tokens: usize,
        /// The largest number of tokens.
        most: usize,
    },
}

impl From<SubmitError> for Error {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::EmptyPrompt => Self::EmptyPrompt,
            SubmitError::PromptTooLong { prompt_tokens, most_tokens } => {
                Self::PromptTooLong { prompt_tokens, context_tokens: most_tokens }
            }
            SubmitError::UnknownToken { id, vocab_size } => Self::UnknownToken { id, vocab_size },
            SubmitError::Sampling(error) => Self::Sampling(error),
            SubmitError::Adapters(error) => Self::Adapters(error),
            error => Self::Refused(error),
        }
    }
}

/// A sequence cannot be saved or restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SavedError {
    /// The bytes do not begin like a saved sequence.
    #[error("the file is not a prompt cache: give another name")]
    OtherFile,
    /// Another version of the program wrote the file.
    #[error("the prompt cache has version {found}, but version {supported} is needed: delete it")]
    Version {
        /// The version of the file.
        found: u32,
        /// The version that this program writes.
        supported: u32,
    },
    /// The bytes end early or have changed.
    #[error("the prompt cache is truncated or damaged: delete it")]
    Damaged,
    /// The sequence is one of another model, another kind of cache or another backend.
    #[error(
        "the prompt cache belongs to another model, device or kind of KV cache: delete it, or give \
         another name"
    )]
    OtherModel,
    /// The sequence has pictures or sound, whose rows are not in the file.
    #[error("a prompt with pictures is not saved: ask without the prompt cache")]
    HasMedia,
    /// The output cannot be written.
    #[error("cannot write the prompt cache: {0}")]
    Write(#[from] std::io::Error),
}
