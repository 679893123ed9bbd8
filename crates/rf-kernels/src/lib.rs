//! HIP kernels, their code objects, and the GPU backend that launches them.
//!
//! The crate implements the ops of rf-graph with the runtime of rf-hip. Kernel sources are in
//! `kernels/` at the top of the repository; the link `kernels` in this crate makes them part of the
//! package. Start reading at [`objects`], the choice of machine code for a device.
//!
//! A program starts without a GPU. If the runtime or the device is missing, opening the backend
//! returns an error:
//!
//! ```
//! use rf_graph::Backend;
//! use rf_kernels::{GpuBackend, GpuOptions, objects};
//!
//! match GpuBackend::new(GpuOptions::default()) {
//!     Ok(backend) => println!("running on {}", backend.description()),
//!     Err(error) => println!("no GPU: {error}"),
//! }
//! // The choice of code does not need a device.
//! let unsupported = objects::choose("gfx803").unwrap_err();
//! assert!(matches!(unsupported, objects::Error::Unsupported { .. }));
//! ```

mod backend;
mod error;
mod exec;
mod graphs;
mod launch;
mod pack;
mod system;

#[macro_use]
mod params;

pub mod counted;
pub mod objects;
pub mod selftest;
pub mod tune;
pub mod tuning;

pub use backend::{GpuBackend, GpuOptions};
pub use error::Error;
pub use graphs::{GraphMode, graph_problem};
