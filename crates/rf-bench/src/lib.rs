//! Benchmarks: workloads, rounds, comparisons and reports.
//!
//! A [`Workload`] is a named [`Task`]. [`Workload::prepare`] allocates its operands on a [`Target`]
//! (weights, caches, pools); [`Prepared::run`] runs it once and returns the time. Dropping it frees
//! everything.
//!
//! [`plan`] selects benchmarks. [`session`] measures them in rounds; [`baselines`] saves, records
//! and compares its results. [`paired`] compares two builds, [`peer`] two engines, and [`serve`]
//! two servers under load; the measurements of both sides alternate.
//! [`table`] and [`html`] format reports. Nothing is printed here: the binary of this crate, which
//! `cargo xtask bench` starts, translates options into calls and prints their results.
//!
//! **Place in the layering.** A program as rf-cli is: models are loaded and answer through
//! `rocmforge`. Benchmarks of one op, of pages and of formats use rf-graph, rf-kv and rf-quant.
//!
//! **Where to start.** [`Suite`] lists the groups of workloads; each has a module. One-op programs,
//! their shapes and their costs are cases of [`rf_oracle::case`], the table that conformance tests
//! check too.
//!
//! **Clocks.** A workload of one op is timed by the executor's own profile ([`Clock::Op`]): between
//! device events on a GPU, between barriers on the CPU. Other workloads are timed by the host's
//! clock. In decode a model reads its weights and caches from memory once per token. Such workloads
//! therefore have enough copies of the operand to exceed every cache. A run covers all copies, and
//! reports the time per copy.
//!
//! ```
//! use rf_bench::{Suite, Target, workloads};
//!
//! let target = Target::cpu(Some(1), None)?;
//! let matmuls = workloads(Suite::Matmul);
//! let matmul = matmuls.iter().find(|w| w.name == "matmul/f32/32x768/rows=32").unwrap();
//! // A multiply-add is two operations.
//! assert_eq!(matmul.cost.operations(), 2 * 32 * 768 * 32);
//! let mut prepared = matmul.prepare(&target)?;
//! assert!(prepared.run()?.as_nanos() > 0);
//! # Ok::<(), rf_bench::Error>(())
//! ```

mod attention;
pub mod baselines;
mod catalog;
mod contention;
mod dequant;
mod error;
pub mod html;
mod interrupt;
mod launch;
pub mod limits;
pub mod machine;
mod matmul;
mod memory;
pub mod model;
pub mod model_metric;
mod op_task;
pub mod paired;
pub mod peer;
pub mod plan;
mod progress;
pub mod results;
pub mod serve;
pub mod session;
mod standard;
mod suite;
pub mod table;
mod target;
pub mod targets;
mod task;
pub mod timers;
mod workload;

pub use catalog::workloads;
pub use error::Error;
pub use interrupt::Interrupt;
pub use progress::MeasurementProgress;
/// The crate of the ops, whose costs are in the types of this one.
pub use rf_oracle::rf_graph;
pub use suite::{Suite, UnknownSuite};
pub use target::Target;
pub use task::{Clock, Prepared, Task};
pub use workload::Workload;
