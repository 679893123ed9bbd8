//! Execution of kernels.

pub(crate) mod atomic;
mod control;
mod data_share;
mod dispatch;
mod float;
mod memory;
mod options;
mod program;
mod scalar;
pub(crate) mod share;
mod vector;
pub(crate) mod wave;
mod workgroup;

pub use dispatch::{Launch, dispatch};
pub use options::{Counters, Options};
pub use program::Program;
