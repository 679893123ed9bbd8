//! Sequences, scheduling, sampling: from a model and a backend to text.
//!
//! Most programs use the crate `rocmforge` instead. It chooses devices and sizes, and runs this
//! crate on a thread. Use this crate directly for logits, your own scheduler, or another backend.
//!
//! | item | content |
//! |---|---|
//! | [`Model`] | a parsed file: configuration, tokenizer, chat template |
//! | [`Engine`] | a model that is loaded on a backend |
//! | [`Session`] | one sequence, with its pages of the KV cache |
//! | [`Engine::forward`] | computes the logits of tokens |
//! | [`MixedPrompt`] | tokens, and rows of pictures among them |
//! | [`Engine::generate`] | samples, streams and stops |
//! | [`Engine::embed`] | computes embeddings and scores |
//! | [`Speculation`] | drafts tokens, which one batch checks |
//! | [`scheduler`] | serves many requests; its step is the only loop that generates |
//! | [`Perplexity`] | scores a text |
//! | [`Activations`] | sums the squares of matmul operands, for importance matrices |
//! | [`SyntheticFeeder`] | feeds random tokens, for benchmarks |
//!
//! Start reading at [`Engine`]. In the layering this crate is above rf-model and rf-chat. It
//! names no backend, prints nothing and knows no protocol.
//!
//! Invariants:
//!
//! - The answer to a request does not depend on the other requests of its batches. On a CPU it does
//!   not depend on threads, chunks or page sizes either.
//! - Drafts change neither the text on a CPU nor the distribution on a GPU.
//! - An engine holds as much memory as its plan states.
//! - A panic in the sampler, constraint or sink of a request fails only this request.
//!
//! This program continues a text on the CPU. The example `chat` answers a conversation.
//!
//! ```
//! use std::ops::ControlFlow;
//!
//! use rf_cpu::{CpuBackend, CpuOptions};
//! use rf_engine::{Engine, EngineOptions, GenerateOptions, Model};
//!
//! // A tiny model with random weights; any GGUF file works.
//! let model = Model::open("../../golden/arch/smollm3.gguf")?;
//! let backend = CpuBackend::new(CpuOptions::default())?;
//! let mut engine = Engine::load(model, &backend, EngineOptions::default(), &mut |_| ())?;
//! let mut session = engine.session();
//!
//! let prompt = engine.model().text_ids("Once upon a time");
//! let options = GenerateOptions::default().with_max_tokens(8);
//! let outcome = engine.generate(&mut session, &prompt, &options, &mut |text| {
//!     print!("{text}");
//!     ControlFlow::Continue(())
//! })?;
//! assert!(outcome.ids.len() <= 8);
//! # Ok::<(), rf_engine::Error>(())
//! ```

mod activations;
mod adapters;
mod checkpoints;
mod embed;
mod engine;
mod error;
mod generate;
mod generation;
mod identity;
mod kv_layout;
mod media;
mod model;
mod options;
mod perplexity;
mod prompt;
mod rank;
pub mod sampling;
pub mod scheduler;
mod session;
mod setters;
mod speculation;
mod stop;
mod synthetic;
mod timeline;
mod timings;
mod token_states;
mod vocabulary;

pub use activations::{ActivationSums, Activations};
pub use adapters::{AdapterScales, AdapterScalesError};
pub use embed::Normalization;
pub use engine::{DiskCacheOptions, Engine, Outputs, PrefixCacheStats, SequenceInput, TierStats};
pub use error::{Error, SavedError};
pub use generate::{GenerateExtras, GenerationOutcome, PromptProgress};
pub use generation::{GenerateOptions, StopReason};
pub use media::{MediaError, MediaRows, MixedPrompt};
pub use model::Model;
pub use options::EngineOptions;
pub use perplexity::{Perplexity, PerplexityScore};
pub use rf_chat::{
    Answer, ChatPrompt, ChatTemplate, Conversation, Delta, Error as ChatError, Message, Prompt,
    RenderOptions,
};
pub use rf_gguf::{Error as GgufError, Gguf};
pub use rf_graph::{
    Backend, BackendError, BackendExecutionSummary, Candidate, KvType, MemoryNeed, MemoryUse,
    Program, Progress, Timeline, TrackKind,
};
pub use rf_kv::{
    CacheEvent, CacheObserver, InvalidPageSize, NotCut, OutOfPages, PageGroup, PoolStats,
};
pub use rf_model::{
    Adapter, AdapterError, AdapterSet, ControlVector, Error as ModelError, ModelConfig, Pooling,
};
pub use rf_tokenizer::{DecodeOptions, EncodeOptions, Error as TokenizerError, Tokenizer};
/// The crate of the values in chat templates.
pub use serde_json;
pub use session::Session;
pub use speculation::{Speculation, SpeculationOptions};
pub use synthetic::SyntheticFeeder;
pub use timeline::time_of_events;
pub use timings::Timings;
pub use vocabulary::tokenizer_from_gguf;
