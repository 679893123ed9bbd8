//! Execution of kernels.

mod admission;
pub(crate) mod atomic;
mod control;
pub(crate) mod data_share;
mod dispatch;
mod float;
mod lanes;
mod memory;
mod options;
mod program;
mod residency;
mod rounding;
pub(crate) mod run;
mod scalar;
pub(crate) mod share;
pub(crate) mod slot;
mod spin;
pub(crate) mod vector;
pub(crate) mod wave;
mod workgroup;

pub use dispatch::{Launch, dispatch};
pub use options::{Counters, Options};
pub use program::Program;
