//! Measures programs, GPU and CPU, and keeps what was measured.
//!
//! **Place in the layering.** Above `rf-hip` alone: it knows nothing of tensors or models, so any program can use it.
//! `rf-cli` and `xtask` put the two together. A crate below it is measured through `tracing` spans, without
//! depending on it.
//!
//! # Invariants
//!
//! - Every figure was measured. What could not be is an [`Error`] that says why, never an estimate or zero.
//! - A file is replaced whole or left as it was.
//! - No input panics: tables, JSON and baselines are read as if somebody had tampered with them.

mod atomic;
pub mod baseline;
mod error;
pub mod stats;
pub mod tables;
pub mod timer;
pub mod tools;

pub use error::Error;
pub use timer::{KernelTimer, ScopedTimer, Timings};
