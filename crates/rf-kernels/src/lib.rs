//! HIP kernels, their code objects, and the GPU backend that launches them.
//!
//! The crate implements the ops of rf-graph with the runtime of rf-hip. Kernel sources are in
//! `kernels/` at the top of the repository; the link `kernels` in this crate makes them part of the
//! package. `kernels/README.md` describes them.
//!
//! The sources use only a prelude over compiler builtins. clang alone therefore compiles them, to
//! AMD code objects and to PTX, and rf-hip runs both. So every kernel can be tested without an AMD
//! card: as PTX on an NVIDIA GPU, and as AMD machine code in an emulator.
//!
//! Start reading at `exec` (a step), then `exec::record` (the launches of an op) and [`objects`]
//! (the choice of machine code for a device).
//!
//! | module | content |
//! |---|---|
//! | `pack` | blocks of a file → planes, from which a lane loads 16 bytes at a time |
//! | `params` | kernel parameters: one struct by value, from one table for Rust and C |
//! | `exec/analysis`, `exec/program` | the form of each operand; its address in the arena |
//! | `exec/record` | ops of a batch → launches, without a device |
//! | `exec/step`, `exec/results`, `exec/hand_over` | inputs and results in host memory; rows for another device |
//! | `exec/launches`, `exec/run`, `exec/replay`, `exec/padding` | the launches of a step, plain runs, replays and their checks, dummy tokens |
//! | `launch` | kernel functions by name, recorded launches; the only module that turns addresses into memory accesses |
//! | `tuning`, `tune` | launch parameters that the tuning table of a card replaces; their measurement |
//! | `objects` | machine code for a device: of its exact gfx target, else of the generic target of its family, else compiled by ROCm on the machine; PTX on NVIDIA. If the driver refuses one kind, the next is used |
//!
//! Invariants:
//!
//! - A *wave* is 32 lanes. On gfx9, whose hardware waves have 64 lanes, it is one half of such a
//!   wave, and no exchange crosses the halves.
//! - The result of a graph replay that read the inputs of another step is discarded.
//! - A program takes as much memory as its plan states.
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
/// The crates of the programs, the runtime, the cases and the formats in the types of this one.
pub use {rf_graph, rf_hip, rf_oracle, rf_quant};
