//! Benchmark of servers: `cargo xtask bench serve`.
//!
//! [`compare`] starts this engine's server and optionally llama.cpp's, sends both the same requests
//! alternately (A B A B), and returns the times of every request. A [`Load`] states how many
//! requests there are, how they arrive and what they share. Prompts are random ids, so that neither
//! tokenizers nor texts differ; answers are greedy and as long as asked, because `ignore_eos` is
//! set.
//!
//! **Metrics.** Throughput is the number of generated tokens over the time from the first request
//! to the last token. The time to the first token (TTFT) of an open-loop load starts when the
//! request was due, not when it was sent: a slow server cannot delay the measurement of its own
//! queue. The inter-token latency (ITL) is the time between two events of a stream.

mod client;
mod load;
mod measure;
mod report;
mod request;
mod server;

pub use load::{Arrivals, Load, ParseArrivalsError};
pub use measure::{LoadRun, ServeComparison, compare};
pub(crate) use report::{SideResults, shared_prefix};
pub use report::{csv, json, table};
pub use request::RequestTimes;
pub use server::{Programs, ServerOptions};
