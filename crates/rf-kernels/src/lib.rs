//! HIP kernels, their code objects, and the GPU backend that launches them.
//!
//! Stands on `rf-graph`, whose operations it computes, and `rf-hip`, which talks to the driver. Kernel sources
//! are in `kernels/` at the top of the repository; `kernels` in this crate is a link to them, which puts them into
//! the package. Start reading at [`objects`]: which machine code a device gets.

mod backend;
mod error;
mod exec;
mod launch;
mod pack;

pub mod objects;
pub mod params;
pub mod selftest;

pub use backend::{GpuBackend, GpuOptions, GraphMode};
pub use error::Error;
