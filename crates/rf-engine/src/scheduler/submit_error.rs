//! The reasons for refusing a request.

use crate::adapters::AdapterScalesError;
use crate::media::MediaError;
use crate::sampling;

/// The reason for refusing a request.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// Too many requests wait. Try again later.
    #[error("the queue is full: {max_queued} requests wait; try again later")]
    QueueFull {
        /// The largest number of waiting requests.
        max_queued: usize,
    },
    /// The scheduler has ended.
    #[error("the scheduler is shutting down")]
    ShuttingDown,
    /// The prompt has no tokens.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// The prompt fits neither now nor later.
    #[error(
        "the prompt has {prompt_tokens} tokens, but there is room for {most_tokens}: use a shorter \
         prompt, or a larger context and KV cache"
    )]
    PromptTooLong {
        /// Tokens of the prompt.
        prompt_tokens: usize,
        /// Tokens of the context, or of the KV cache if they are fewer.
        most_tokens: usize,
    },
    /// A token id is not in the vocabulary.
    #[error("token id {id} is not in the vocabulary of {vocab_size}")]
    UnknownToken {
        /// The id.
        id: u32,
        /// Size of the vocabulary.
        vocab_size: usize,
    },
    /// A sampling parameter is out of range.
    #[error(transparent)]
    Sampling(#[from] sampling::Error),
    /// The model or its backend does not compute the media of the prompt.
    #[error(transparent)]
    Media(#[from] MediaError),
    /// The scales of adapters do not fit the model.
    #[error(transparent)]
    Adapters(#[from] AdapterScalesError),
    /// The number of choices is out of range.
    #[error("the number of choices is {num_choices}, expected 1 to {most}")]
    NumChoices {
        /// The number.
        num_choices: usize,
        /// The largest number.
        most: usize,
    },
}
