//! Finds the devices of this machine, chooses those of a model, and places its layers on them.
//!
//! Programs use the crate `rocmforge`, which loads models through this crate. This crate is for
//! those that run an [`Engine`](rf_engine::Engine) themselves, as the example `placement` does, or
//! diagnose GPUs.
//!
//! [`DeviceOptions`] say which device a model may use and how many layers the GPU gets;
//! [`Placement::open`] opens the backends, [`Placement::memory_need`] computes the memory plan, and
//! [`Placement::load`] loads a model. If the choice is automatic and a GPU fails, the CPU takes
//! over, and the caller gets a [`Warning`]. Nothing is printed here. A model on several devices
//! runs on a [`HybridBackend`].
//!
//! In the layering this crate is above rf-engine and both backends, and it is the only library that
//! names both. Start reading at [`Placement`]. With the feature `gpu`, the modules `gpu` and
//! `probe` list the GPUs.
//!
//! Invariants:
//!
//! - The memory plan is compared with the free memory before a weight is loaded.
//! - No choice is silent: a GPU that was found but is not used is a [`Warning`] with the reason.
//! - A model on several devices computes what it computes on one, up to rounding of the backends,
//!   and of sums where the devices compute layers together.
//!
//! ```
//! use rf_device::{Device, DeviceOptions, GpuLayers, Placement};
//!
//! let options = DeviceOptions::default().with_device(Device::Cpu);
//! let placement = Placement::open(options)?;
//! assert!(placement.gpu().is_none() && placement.warnings().is_empty());
//! println!("models run on {}", placement.cpu()?.threads());
//!
//! // Both options have the names that llama.cpp's users know.
//! assert_eq!("auto".parse(), Ok(Device::Auto));
//! assert_eq!("-1".parse(), Ok(GpuLayers::Auto));
//! assert_eq!("20".parse(), Ok(GpuLayers::Last(20)));
//! # Ok::<(), rf_device::Error>(())
//! ```

mod cpu_parts;
mod error;
#[cfg(feature = "gpu")]
pub mod gpu;
#[cfg(not(feature = "gpu"))]
#[path = "no_gpu.rs"]
mod gpu;
mod hybrid;
mod kv_size;
mod layers;
#[cfg(feature = "gpu")]
mod lines;
mod loading;
mod open_gpu;
mod options;
mod outlook;
mod placement;
#[cfg(feature = "gpu")]
pub mod probe;
#[cfg(feature = "gpu")]
pub mod selftest;
#[cfg(feature = "gpu")]
pub mod tuning;

pub use error::{Error, Warning};
#[cfg(not(feature = "gpu"))]
pub use gpu::Prober;
pub use hybrid::HybridBackend;
pub use loading::{LoadEvent, LoadedModel};
pub use open_gpu::OpenGpu;
pub use options::{Device, GpuLayers, GpuNumbers, Graphs, Shares, SplitMode};
pub use outlook::{Outlook, StepWork};
pub use placement::{DeviceOptions, LayerPlacement, Placement};
#[cfg(feature = "gpu")]
pub use probe::Prober;
pub use rf_cpu::{CpuBackend, CpuOptions, Isa};
/// The engine, which a placement loads models into.
pub use rf_engine;
/// The crate of programs and of what they cost.
pub use rf_graph;
pub use rf_graph::{Backend, BackendError, MemoryNeed, Progress};
/// The crate of the errors of messages between processes.
#[cfg(feature = "gpu")]
pub use serde_json;
