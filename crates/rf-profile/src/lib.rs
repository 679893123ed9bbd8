//! Measures GPU and CPU programs and stores the results.
//!
//! **Place in the layering.** Depends only on `rf-hip` and knows nothing of tensors or models, so
//! any program can use it. `rf-cli` and `rf-bench` combine it with the engine. Crates below it are
//! measured through `tracing` spans and do not depend on it.
//!
//! # Where to start
//!
//! | question | answer |
//! |---|---|
//! | Is it slower than before? | [`baseline`] |
//! | How long does this take? | [`Timings`], [`KernelTimer`], [`time_kernel!`] |
//! | When does each part run? | [`SpanRecorder`], [`Trace`] |
//! | What determines the time to first token? | [`ttft`] |
//! | What do profilers and hardware counters report? | [`tools`], [`tables`] |
//! | Is launch overhead too high? | [`launch`] |
//! | What uses the memory? | [`memory`] |
//! | Was the GPU busy, hot or throttled? | [`monitor`] |
//! | Which hardware limit applies, and how close is it? | [`roofline`] |
//! | How does a measurement look as a picture? | [`plot`] |
//!
//! The numbered examples demonstrate each module. They run without a GPU and print what they skip.
//!
//! # Example
//!
//! Record the spans of a program, compute the time to first token, and write a timeline:
//!
//! ```
//! use rf_profile::ttft::{Phase, TtftBreakdown};
//! use rf_profile::{SpanRecorder, Trace};
//! use tracing_subscriber::layer::SubscriberExt;
//!
//! let (recorder, log) = SpanRecorder::new();
//! tracing::subscriber::with_default(tracing_subscriber::registry().with(recorder), || {
//!     tracing::info_span!("prefill", tokens = 12).in_scope(|| { /* the prompt */ });
//!     tracing::info_span!("sample").in_scope(|| { /* the first token */ });
//! });
//! let ttft = TtftBreakdown::from_spans(&log.spans());
//! assert!(ttft.total() >= ttft.time(Phase::Prefill));
//! println!("{}", ttft.format_table());
//!
//! let mut trace = Trace::new();
//! trace.add_spans("CPU", &log.spans());
//! assert!(trace.to_json().contains("prefill"));
//! ```
//!
//! # Invariants
//!
//! - Every value is a measurement. A missing one is an [`Error`] with the reason, never an estimate
//!   or zero.
//! - A file is replaced as a whole or left unchanged.
//! - A program that hangs is killed after a time limit, with all the processes that it started.
//! - No input causes a panic: tables, JSON and baselines are parsed as untrusted data.

mod atomic;
pub mod baseline;
mod error;
pub mod launch;
pub mod memory;
pub mod monitor;
pub mod plot;
pub mod roofline;
mod spans;
pub mod stats;
pub mod tables;
pub mod timer;
pub mod tools;
mod trace;
pub mod ttft;

pub use atomic::replace_file;
pub use error::Error;
pub use spans::{SpanEvent, SpanLog, SpanRecorder};
pub use timer::{KernelTimer, ScopedTimer, Timings};
pub use trace::{Trace, Track, TrackGroup};
/// The crates of the GPU runtime, of JSON and of spans in the types of this one.
pub use {rf_hip, serde_json, tracing_subscriber};
