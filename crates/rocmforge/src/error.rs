//! Errors.

use std::path::PathBuf;
use std::sync::Arc;

use rf_engine::scheduler::{RequestError, SubmitError};

use crate::media::file::MediaKind;

/// An error of loading a model or of a request.
///
/// Messages speak of parameters of this crate. They are fragments without a full stop, so that they
/// fit after "cannot load the model: ".
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The hub has no such model, or it cannot be downloaded.
    #[error(transparent)]
    Hub(#[from] rf_hub::Error),
    /// The file cannot be read, or is damaged.
    #[error(transparent)]
    Gguf(#[from] rf_gguf::Error),
    /// The model is not supported, or does not fit.
    #[error(transparent)]
    Engine(#[from] rf_engine::Error),
    /// A device cannot be used, or a model cannot be loaded on it.
    #[error(transparent)]
    Device(#[from] rf_device::Error),
    /// The conversation is invalid, or the chat template refuses it.
    #[error(transparent)]
    Chat(#[from] rf_chat::Error),
    /// A schema or a grammar is not supported.
    #[error(transparent)]
    Grammar(#[from] rf_grammar::Error),
    /// The projector is not supported, or the backend failed to encode a picture or a sound.
    #[error(transparent)]
    Vision(#[from] rf_vision::Error),
    /// A picture cannot be decoded.
    #[error(transparent)]
    Image(#[from] rf_vision::ImageError),
    /// A sound cannot be decoded.
    #[error(transparent)]
    Sound(#[from] rf_vision::SoundError),
    /// The projector belongs to another model.
    #[error(
        "{} is a projector ({projector}) for models that read rows of {found} values, and this model \
         ({architecture}) reads rows of {expected}: name the projector (mmproj) of this model",
        path.display()
    )]
    WrongProjector {
        /// The file of the projector.
        path: PathBuf,
        /// The type of the projector.
        projector: &'static str,
        /// The architecture of the model.
        architecture: String,
        /// Elements of a row of the projector.
        found: usize,
        /// Elements of a row that the model reads.
        expected: usize,
    },
    /// A picture was sent to a model without an encoder of pictures.
    #[error(
        "the model reads no pictures: load a model that does, with its projector (mmproj file) in \
         the same folder or named"
    )]
    NoProjector,
    /// A sound was sent to a model without an audio encoder.
    #[error(
        "the model does not hear: load a model that does, with its projector (mmproj file with an \
         audio encoder) in the same folder or named"
    )]
    NoAudioProjector,
    /// A text contains the mark that stands for a picture or a sound, or a template left it out.
    #[error(
        "the prompt has {found} marks of pictures and sounds, and {files} of them: the chat template \
         leaves some out, or a text contains the mark"
    )]
    MediaMarkers {
        /// The marks in the prompt.
        found: usize,
        /// The pictures and sounds.
        files: usize,
    },
    /// A prompt has too many pictures and sounds.
    #[error("the prompt has {files} pictures and sounds, the maximum is {most}")]
    TooManyFiles {
        /// The pictures and sounds of the prompt.
        files: usize,
        /// The largest number.
        most: usize,
    },
    /// A request was refused.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// A request failed while it ran.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The demo model was requested of a program that was built without it.
    #[error("this program was built without the demo model")]
    WithoutDemoModel,
    /// The head that predicts further tokens was requested of a model without one.
    #[error("{}", no_mtp(*heads_in_metadata))]
    NoMtp {
        /// Heads that the metadata of the file name. Their tensors are missing.
        heads_in_metadata: i128,
    },
    /// The lengths of drafts contradict each other.
    #[error(
        "drafts of {min} to {max} tokens are not possible: the maximum must be at least 1 and not \
         below the minimum"
    )]
    DraftLengths {
        /// The shortest draft, in tokens.
        min: usize,
        /// The longest draft, in tokens.
        max: usize,
    },
    /// A text to embed has more tokens than the context.
    #[error("text {} has {tokens} tokens and there is room for {most}: split it", index + 1)]
    TextTooLong {
        /// Index of the text.
        index: usize,
        /// Tokens of the text.
        tokens: usize,
        /// The largest number of tokens.
        most: usize,
    },
    /// A text to embed has no tokens.
    #[error("text {} has no tokens: leave out empty texts", index + 1)]
    EmptyText {
        /// Index of the text.
        index: usize,
    },
    /// The model makes embeddings and generates no text.
    #[error("the model was loaded to embed texts, not to generate: load it without embeddings")]
    LoadedToEmbed,
    /// The model generates text and makes no embeddings.
    #[error("the model was loaded to generate text, not to embed it: load it for embeddings")]
    LoadedToGenerate,
    /// The model is an embedder and no reranker.
    #[error("the model is not a reranker, because its pooling is not rank: load a reranker")]
    NoReranker,
    /// Too many texts wait to be embedded.
    #[error("the queue is full: {most} requests wait; try again later")]
    QueueFull {
        /// The largest number of waiting requests.
        most: usize,
    },
    /// The thread of the model has ended.
    #[error("the model is shutting down")]
    ShuttingDown,
    /// The events of an answer were read too slowly.
    #[error("the answer was cancelled, because it was read too slowly: over {most} tokens waited")]
    TooSlow {
        /// Events that may wait.
        most: usize,
    },
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(Arc<std::io::Error>),
    /// A generated text is not the value that was requested: it is cut off, or breaks a rule that
    /// the schema does not state.
    #[error("the answer is not the requested value: {source}")]
    NotTheValue {
        /// The text.
        text: String,
        /// The first difference.
        source: serde_json::Error,
    },
}

impl Error {
    /// A file of this kind was sent to a model without an encoder for it.
    pub(crate) fn no_encoder(kind: MediaKind) -> Self {
        match kind {
            MediaKind::Image => Self::NoProjector,
            MediaKind::Audio => Self::NoAudioProjector,
        }
    }
}

fn no_mtp(heads: i128) -> &'static str {
    if heads > 0 {
        "the file lacks the tensors of its MTP heads: convert the model again with them"
    } else {
        "the model has no heads that predict several tokens (MTP)"
    }
}
