//! HIP kernels, their code objects, and the GPU backend that launches them.
//!
//! The crate implements the ops of rf-graph with the runtime of rf-hip. Kernel sources are in
//! `kernels/` at the top of the repository; the link `kernels` in this crate makes them part of the
//! package. `kernels/README.md` describes them. They use a prelude over compiler builtins, so clang
//! alone compiles them to AMD code objects and to PTX, and the host sees one runtime. Every kernel
//! of an AMD card can therefore run without one: on an NVIDIA GPU, and as machine code in an
//! emulator.
//!
//! Start reading at `exec` (a step), then `exec::record` (the launches of an op) and [`objects`]
//! (the choice of machine code for a device).
//!
//! | module | content |
//! |---|---|
//! | `pack` | blocks of a file → planes, of which a lane reads 16 bytes at a time |
//! | `params` | kernel parameters: one struct by value, from one table for Rust and C |
//! | `exec/analysis`, `exec/program` | operand forms; addresses in the arena |
//! | `exec/record` | ops of a batch → launches, without a device |
//! | `exec/step`, `exec/results`, `exec/hand_over` | inputs and results in host memory; rows for another device |
//! | `exec/launches`, `exec/run`, `exec/replay`, `exec/padding` | the launches of a step, plain runs, replays and their checks, dummy tokens |
//! | `launch` | functions by name, recordings; addresses become memory accesses only here |
//! | `tuning`, `tune` | choices that a table of the card replaces, and their measurement |
//! | `objects` | machine code: exact gfx, else generic of the family, else compiled by the ROCm of the machine; PTX. Code that the driver refuses is replaced by the next kind |
//!
//! Invariants:
//!
//! - A *wave* is 32 lanes. On hardware with 64 lanes (gfx9) it is one half, and no exchange crosses
//!   halves.
//! - No result of a replay with inputs of another step is used.
//! - The memory plan of a program is the memory that it takes.
//! - Without clang at build time the crate builds; `rf-cli doctor` reports the missing kernels.
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
