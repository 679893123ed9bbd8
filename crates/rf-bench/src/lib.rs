//! The workloads that are measured: which there are, what each of them moves and computes, and how it is run once.
//!
//! A [`Workload`] is a name and a size. [`Workload::prepare`] makes what it needs on a [`Target`] (weights, caches,
//! pools), [`Prepared::run`] runs it once and says how long that took; dropping it frees everything. Repeating,
//! statistics and comparison belong to who asks: `cargo xtask bench` and the criterion benches of this crate.
//!
//! **Place in the layering.** Above the backends, rf-engine and rf-profile; `cargo xtask bench` starts its binary.
//!
//! **Where to start.** [`Suite`] lists what is measured; each has a module with its workloads.
//!
//! **What is timed.** Programs of one op on any backend, as the executor's own profile has them ([`Clock::Op`]): on
//! the GPU that is the time between events on the device, on the CPU the time between two barriers. Everything
//! else by the host's clock. Weights and caches that a model would read from memory once per token are present
//! as often as it takes to be larger than caches: a run goes over all of them, and its time is that of one.
//!
//! ```
//! use rf_bench::{Suite, Target, workloads};
//!
//! let target = Target::cpu(Some(1), None)?;
//! let step = workloads(Suite::Launch).into_iter().find(|w| w.name == "launch/step/ops=1").unwrap();
//! let mut prepared = step.prepare(&target)?;
//! assert!(prepared.run()?.as_nanos() > 0);
//! # Ok::<(), rf_bench::Error>(())
//! ```

mod attention;
mod catalog;
mod dequant;
mod error;
pub mod html;
mod launch;
mod matmul;
mod memory;
mod program;
pub mod results;
mod standard;
mod suite;
pub mod table;
mod target;
pub mod targets;
mod task;
mod workload;

pub use catalog::workloads;
pub use error::Error;
pub use matmul::compute_bound;
pub use suite::{Suite, UnknownSuite};
pub use target::Target;
pub use task::{Clock, Prepared, Task};
pub use workload::Workload;
