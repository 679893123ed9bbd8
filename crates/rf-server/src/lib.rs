//! Serves language models over HTTP: the APIs of `OpenAI`, Anthropic, Ollama and llama.cpp.
//!
//! [`Server`] listens on its own socket. [`routes`] gives the same routes to an application of
//! axum.
//!
//! The only crate that knows HTTP or the JSON types of an API. It tokenizes prompts, passes them to
//! their [model](rocmforge::Model), and turns its updates into responses. It is above rocmforge in
//! the layering, and knows neither files nor devices. Its source starts at `router` (the routes)
//! and `generation` (the path of every request that generates); each API is one file.
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
mod adapters;
mod anthropic;
mod api;
mod attachments;
mod auth;
mod body;
mod catalog;
mod entry;
mod error;
mod fields;
#[doc(hidden)]
pub mod fuzzing;
mod generation;
mod generation_defaults;
mod generator;
mod grammar;
mod guard;
mod image_urls;
mod infill;
mod keep_alive;
mod keys;
mod known_fields;
mod kv_events;
mod llama_cpp;
mod longest_token;
mod lora;
mod managed_models;
mod mcp;
mod metrics;
mod model_events;
mod multipart;
mod ollama;
mod openai;
mod openapi;
mod options;
mod os;
mod page;
mod path;
mod prompt;
mod record;
mod reload;
mod request_id;
mod rerank;
mod router;
mod sampling;
mod server;
mod setters;
mod settings;
mod sleep_clock;
mod state;
mod step_timeout;
mod stream;
mod tls;
mod token_rules;
mod tokenizer_info;
mod traces;
mod watchdog;

/// The crate of the router that [`routes`] returns.
pub use axum;
pub use entry::{ModelEntry, ModelKind, ModelLoader};
pub use error::{Error, LoadError};
pub use generation_defaults::GenerationDefaults;
pub use image_urls::ImageFetcher;
pub use keep_alive::{InvalidDuration, KeepAlive};
pub use keys::{ApiKeys, KeyFileError};
pub use kv_events::KvEvents;
pub use managed_models::{ManageError, Manager, ModelChange, ModelManager};
pub use mcp::{InvalidMcpUrl, McpServer};
pub use options::ServerOptions;
pub use reload::Reloader;
/// The crate of the models that are served.
pub use rocmforge;
/// The crate of the parameters in a [`ModelChange`].
pub use serde_json;
pub use server::{Control, Server, routes};
pub use settings::{ModelSettings, SettingsSource};
pub use step_timeout::StepTimeout;
pub use tls::{Tls, TlsError};
