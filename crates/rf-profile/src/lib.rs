//! Measures programs, GPU and CPU, and keeps what was measured.
//!
//! **Place in the layering.** Above `rf-hip` alone: it knows nothing of tensors or models, so any program can use it.
//! `rf-cli` and `xtask` put the two together. A crate below it is measured through `tracing` spans, without
//! depending on it.
//!
//! # Where to start
//!
//! | question | answer |
//! |---|---|
//! | did it get slower? | [`baseline`] |
//! | did the machine get slower? | [`control`] |
//! | how long does this take? | [`Timings`], [`KernelTimer`], [`time_kernel!`] |
//! | what ran when? | [`SpanRecorder`], [`Trace`] |
//! | what does the first token wait for? | [`ttft`] |
//! | what do kernels and counters say? | [`tools`], [`tables`] |
//! | do launches cost too much? | [`launch`] |
//! | where does memory go? | [`memory`] |
//! | was the GPU busy, hot, held back? | [`monitor`] |
//! | what is the limit, and how far is it? | [`roofline`] |
//!
//! The numbered examples show each; they run without a GPU and say what they skip.
//!
//! # Invariants
//!
//! - Every figure was measured. What could not be is an [`Error`] that says why, never an estimate or zero.
//! - A file is replaced whole or left as it was.
//! - A program that is run ends in time: what hangs is ended with all that it started.
//! - No input panics: tables, JSON and baselines are read as if somebody had tampered with them.
//!
//! # Features
//!
//! `flamegraph` (off): flame graphs of call stacks (`tools::perf::Stacks::flamegraph`), by the inferno crate, whose licence is the CDDL.

mod atomic;
pub mod baseline;
pub mod control;
mod error;
pub mod launch;
pub mod memory;
pub mod monitor;
pub mod roofline;
mod spans;
pub mod stats;
pub mod tables;
pub mod timer;
pub mod tools;
mod trace;
pub mod ttft;

pub use error::Error;
pub use spans::{SpanEvent, SpanLog, SpanRecorder};
pub use timer::{KernelTimer, ScopedTimer, Timings};
pub use trace::{Group, Trace, Track};
