//! HIP kernels, their code objects, and the GPU backend that launches them.
//!
//! The crate implements the ops of rf-graph with the runtime of rf-hip. Kernel sources are in
//! `kernels/` at the top of the repository; `kernels` in this crate is a link to them, which puts them
//! into the package. Start reading at [`objects`], the choice of machine code for a device.
//!
//! A program needs no GPU to start. Without a runtime or a device, opening the backend is an error:
//!
//! ```
//! use rf_graph::Backend;
//! use rf_kernels::{GpuBackend, GpuOptions, objects};
//!
//! match GpuBackend::new(GpuOptions::default()) {
//!     Ok(backend) => println!("running on {}", backend.description()),
//!     Err(error) => println!("no GPU: {error}"),
//! }
//! // The choice of code needs no device either.
//! let unsupported = objects::choose("gfx803").unwrap_err();
//! assert!(matches!(unsupported, objects::Error::Unsupported { .. }));
//! ```

mod backend;
mod error;
mod exec;
mod launch;
mod pack;

pub mod objects;
pub mod params;
pub mod selftest;

pub use backend::{GpuBackend, GpuOptions};
pub use error::Error;
pub use exec::GraphMode;
