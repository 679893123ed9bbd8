//! Serves language models over HTTP: the APIs of `OpenAI`, Anthropic, Ollama and llama.cpp.
//!
//! The only crate that knows HTTP or the JSON types of an API. It tokenizes prompts, passes them to
//! their [model](rocmforge::Model), and turns its updates into responses.
//!
//! Start reading at `router` (the routes), then `generation` (the path of every request that
//! generates) and one file per API. In the layering this crate is above rocmforge, and it knows
//! neither files nor devices.
//!
//! Invariants:
//!
//! - With keys set, nothing of a request without a key is read, on any route that reads or
//!   generates.
//! - No input of a user is answered with a status of 500.
//! - Nothing waits for a slow client: its tokens wait in a bounded buffer, past which its request
//!   ends.
//! - A request for a model that is not loaded waits for it, and no other request does.
//! - A client that is gone frees its sequences before the next step of the engine.
//! - No key and no text of a request is in the log.
//! - Each request ends with one line of the log, when its response has been written.
//! - Without a key, a server on a loopback address answers no foreign web page.
//!
//! ```no_run
//! use rf_server::{ModelEntry, Server, ServerOptions};
//! use rocmforge::Model;
//!
//! let models = [ModelEntry::loaded("demo", Model::load("model.gguf")?)];
//! let server = Server::bind(("127.0.0.1", 8080), models, ServerOptions::default())?;
//! println!("listening on http://{}", server.local_addr()?);
//! server.run_until_signal()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod access;
mod answer;
mod anthropic;
mod api;
mod auth;
mod body;
mod catalog;
mod entry;
mod error;
mod fields;
#[cfg(test)]
mod fuzzed;
mod generation;
mod generator;
mod grammar;
mod guard;
mod infill;
mod keep_alive;
mod keys;
mod llama_cpp;
mod metrics;
mod ollama;
mod openai;
mod openapi;
mod options;
mod page;
mod prompt;
mod record;
mod router;
mod sampling;
mod server;
mod state;
mod stream;
mod tls;

pub use entry::{LoadError, ModelEntry, ModelKind, ModelLoader};
pub use error::Error;
pub use keep_alive::{InvalidDuration, KeepAlive};
pub use keys::{ApiKeys, KeyFileError};
pub use options::ServerOptions;
pub use server::{Control, Server};
pub use tls::{Tls, TlsError};
