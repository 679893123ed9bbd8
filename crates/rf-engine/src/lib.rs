//! Sequences, scheduling, sampling: from a model and a backend to text.
//!
//! [`Model`] is a file understood (configuration, tokenizer, template), [`Engine`] a model loaded on a
//! backend, [`Session`] one sequence with its part of the KV cache. [`Engine::forward`] is the one
//! place where tokens meet the backend; [`Engine::generate`] samples, streams and stops.
//!
//! Start reading at [`Engine`]. In the layering this crate stands above rf-model and rf-tokenizer; it
//! names no backend, prints nothing and knows no protocol.
//!
//! ```no_run
//! # fn backend() -> Box<dyn rf_graph::Backend> { Box::new(rf_graph::ReferenceBackend) }
//! use std::ops::ControlFlow;
//! use rf_engine::{Engine, EngineOptions, GenerateOptions, Model};
//! use rf_tokenizer::EncodeOptions;
//!
//! let model = Model::open("model.gguf")?;
//! let mut engine = Engine::load(model, &*backend(), EngineOptions::default(), &mut |_| ())?;
//! let prompt = engine.model().tokenizer().encode("Once upon a time", EncodeOptions::PROMPT);
//! let mut session = engine.session();
//! let outcome = engine.generate(&mut session, &prompt, &GenerateOptions::default(), &mut |text| {
//!     print!("{text}");
//!     ControlFlow::Continue(())
//! })?;
//! println!("\n{} tokens", outcome.ids.len());
//! # Ok::<(), rf_engine::Error>(())
//! ```

mod engine;
mod error;
mod generate;
pub mod hybrid;
mod model;
pub mod sampling;
mod session;
mod stop;
mod timeline;
mod vocabulary;

pub use engine::{Engine, EngineOptions, Feed, Outputs};
pub use error::Error;
pub use generate::{GenerateOptions, Outcome, StopReason, Timings};
pub use model::{MemoryPlan, Model};
pub use session::Session;
pub use timeline::time_of_events;
pub use vocabulary::tokenizer_from_gguf;
