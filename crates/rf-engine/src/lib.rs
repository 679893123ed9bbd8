//! Sequences, scheduling, sampling: from a model and a backend to text.
//!
//! [`Model`] is a parsed file (configuration, tokenizer, template), [`Engine`] a model loaded on a
//! backend, [`Session`] one sequence with its part of the KV cache. [`Engine::forward`] computes
//! tokens on the backend; [`Engine::generate`] samples, streams and stops, and [`Engine::embed`]
//! computes embeddings and scores. [`scheduler`] serves many requests at once. [`Perplexity`]
//! scores a text, [`Activations`] sums up what its matmuls multiply, and [`SyntheticFeeder`] feeds
//! random tokens for benchmarks.
//!
//! Start reading at [`Engine`]. In the layering this crate is above rf-model and rf-tokenizer. It
//! names no backend, prints nothing and knows no protocol.
//!
//! ```
//! use std::ops::ControlFlow;
//!
//! use rf_engine::sampling::SamplerConfig;
//! use rf_engine::{Engine, EngineOptions, GenerateOptions, Model};
//! use rf_graph::ReferenceBackend;
//! use rf_tokenizer::EncodeOptions;
//!
//! // A tiny model with random weights; any GGUF file works.
//! let model = Model::open(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/qwen3.gguf"))?;
//! let options = EngineOptions { context_tokens: Some(64), ..EngineOptions::default() };
//! let mut engine = Engine::load(model, &ReferenceBackend, options, &mut |_| ())?;
//!
//! let prompt = engine.model().tokenizer().encode("Once upon a time", EncodeOptions::PROMPT);
//! let options = GenerateOptions {
//!     sampler: SamplerConfig::greedy(),
//!     max_tokens: Some(4),
//!     ignore_eos: true,
//!     ..GenerateOptions::default()
//! };
//! let mut session = engine.session();
//! let outcome = engine.generate(&mut session, &prompt, &options, &mut |text| {
//!     print!("{text}");
//!     ControlFlow::Continue(())
//! })?;
//! assert_eq!(outcome.ids.len(), 4);
//! # Ok::<(), rf_engine::Error>(())
//! ```

mod activations;
mod embed;
mod engine;
mod error;
mod generate;
mod generation;
pub mod hybrid;
mod model;
mod options;
mod perplexity;
mod prompt;
mod rank;
pub mod sampling;
pub mod scheduler;
mod session;
mod stop;
mod synthetic;
mod timeline;
mod timings;
mod vocabulary;

pub use activations::{ActivationSums, Activations};
pub use embed::Normalization;
pub use engine::{Engine, Feed, Outputs};
pub use error::Error;
pub use generate::Outcome;
pub use generation::{GenerateOptions, StopReason};
pub use model::Model;
pub use options::EngineOptions;
pub use perplexity::{Perplexity, PerplexityScore};
pub use rf_model::Pooling;
pub use session::Session;
pub use synthetic::SyntheticFeeder;
pub use timeline::time_of_events;
pub use timings::Timings;
pub use vocabulary::tokenizer_from_gguf;
