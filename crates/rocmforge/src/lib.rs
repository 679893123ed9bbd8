//! Runs GGUF language models on AMD GPUs and on any CPU: load a model, chat with it, stream its
//! answers, embed texts.
//!
//! ```
//! # fn main() -> Result<(), rocmforge::Error> {
//! use rocmforge::{Delta, Model};
//!
//! let model = Model::demo()?; // or Model::load("Qwen/Qwen3-8B-GGUF:Q4_K_M"), or a path
//! for delta in model.chat().user("Tell me a story about a fox.").stream()? {
//!     if let Delta::Content(text) = delta? {
//!         print!("{text}");
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! | task | start at |
//! |---|---|
//! | load a model with options, or in async code | [`Model::loader`], [`Loader`] |
//! | answer a conversation, with tools or as JSON | [`Model::chat`], [`Chat`] |
//! | ask about a picture | [`Chat::image`], [`Loader::mmproj`] |
//! | continue a text | [`Model::complete`], [`Completion`] |
//! | read an answer piece by piece | [`AnswerStream`]: an [`Iterator`] and an async stream |
//! | get a value of a Rust type | [`Chat::generate`] |
//! | embed and rerank texts | [`Loader::embeddings`], [`Model::embed`], [`Model::rerank`] |
//! | turn text into tokens and back | [`Model::tokenize`], [`Model::detokenize`] |
//! | see the prompt that the chat template makes | [`Chat::prompt`] |
//! | measure perplexity | [`Model::perplexity`] |
//! | use prompts of token ids, several answers, log probabilities, sessions | [`Model::submit`], [`Job`] |
//! | use logits, your own sampler, sessions on disk | [`OpenModel::load_on`], [`engine`] |
//!
//! Clone a [`Model`] to share it. Any number of threads and tasks may use the clones, and their
//! requests share batches. Blocking calls need no async runtime; async calls work with any. The
//! folder `examples` has a program for each task, numbered in reading order.
//!
//! # Place in the layering
//!
//! Programs depend on this crate; `rf-cli` and `rf-server` do so too. It is the only crate that
//! joins `rf-engine`, `rf-device`, `rf-chat`, `rf-grammar` and `rf-hub`. The modules [`engine`],
//! [`device`], [`messages`], [`grammar`], [`hub`], [`vision`] and [`gguf`] re-export items of the
//! crates below.
//! Start reading at [`Loader`], then `sizing` (the memory policy) and `generation` (the path of
//! every request).
//!
//! # Invariants
//!
//! - Only the module `sizing` computes the options of an engine.
//! - An answer does not depend on the other requests that are computed with it.
//! - Dropping a stream cancels its request. Dropping the last clone of a model ends its thread.
//! - No input makes a call panic.
//! - Nothing is printed. Progress and warnings are [`LoadEvent`]s.
//! - New fields of options break no program: options are built by `with_` methods, as in
//!   `GenerateOptions::default().with_max_tokens(8)`.

/// Compiles the program of the repository's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

mod adapters;
mod answer;
mod answers;
mod block_on;
mod chat;
mod details;
mod drafts;
mod embedder;
mod embedding;
mod error;
mod events;
mod generation;
mod load_event;
mod loaded_model;
mod loader;
mod loading;
mod media;
mod model;
mod sampling_defaults;
mod sizing;
mod source;
mod speed;

pub use answer::{Answer, AnswerStream, Delta};
pub use answers::{Answers, Choice, End};
pub use chat::{Chat, Completion};
pub use details::ModelDetails;
pub use drafts::{Drafts, memory_bytes};
pub use embedding::Ranked;
pub use error::Error;
/// The trait by which async code reads an [`AnswerStream`].
pub use futures_core::Stream;
pub use generation::{GeneratedToken, Generation, Job, Observer, PromptLogprobs, Update, Usage};
pub use load_event::LoadEvent;
pub use loaded_model::LoadedModel;
pub use loader::{Loader, OpenModel};
pub use media::{
    Media, MediaEncoders, MediaKind, Projectors, marked_text, media_marker, mixed_prompt,
};
pub use model::{DEMO_TEMPERATURE, Model};
pub use rf_chat::{Message, Tool, ToolChoice};
pub use rf_engine::sampling::SamplerConfig;
pub use rf_engine::{
    Adapter, AdapterScales, DiskCacheOptions, GenerateOptions, Pooling, StopReason, Timings,
};
pub use rf_grammar::Grammar;
/// Errors of projectors.
pub use rf_vision::Error as VisionError;
pub use sampling_defaults::SamplingDefaults;
/// The crate whose derive describes the types that [`Chat::generate`] returns. A program whose
/// types have `#[schemars(crate = "rocmforge::schemars")]` needs no dependency on it.
#[cfg(feature = "schema")]
pub use schemars;
/// The crate of the values in templates, tools and schemas.
pub use serde_json;
pub use sizing::Purpose;
pub use source::Source;
pub use speed::{DecodeSpeed, Expectation};

/// The engine: sequences, logits, sampling, the scheduler, drafts, perplexity.
pub mod engine {
    pub use rf_engine::*;
    pub use rf_graph::{DType, OpCost};
    pub use rf_tokenizer::{StreamDecoder, VocabConfig};
}

/// Devices of this machine: selection, placement of layers, diagnosis of GPUs.
pub mod device {
    pub use rf_device::*;
}

/// Conversations: messages, tools, chat templates, the parser of answers.
pub mod messages {
    pub use rf_chat::*;
}

/// Structured output: schemas and grammars.
pub mod grammar {
    pub use rf_engine::scheduler::{Constraint, ConstraintError, TokenMask};
    pub use rf_grammar::*;
}

/// Model files of the Hugging Face hub.
pub mod hub {
    pub use rf_hub::*;
}

/// Pictures and sounds: the encoders of projector files, decoding, errors.
pub mod vision {
    pub use rf_vision::*;
}

/// The container of model files.
pub mod gguf {
    pub use rf_gguf::*;
}
