//! HIP's run-time library without a GPU: programs load it instead of libamdhip64, and
//! [`rf_emu`] executes their kernels.
//!
//! **Place in the layering.** Above `rf-emu`. Nothing is built on it; programs load it at run time.
//!
//! **Where to start.** `ffi` has the exported functions and all unsafe code. Each of them calls a
//! method of `runtime::Runtime`, which knows devices, streams, modules and graphs. `cargo xtask
//! emulate` builds the library and runs a program with it; docs/emulator.md is the guide.
//!
//! # Behaviour
//!
//! - Work runs to its end in the call that queues it. Its failure is reported as by a GPU: by the
//!   next call that waits, and by all later calls.
//! - Handles are numbers that are never reused, so the use of a destroyed object is an error.
//! - The failure of a kernel is printed to standard error.
//!
//! # Environment
//!
//! | variable | meaning |
//! |---|---|
//! | `ROCFORGE_EMU_ARCH` | the architecture of each device, separated by commas; `gfx1100` by default |
//! | `ROCFORGE_EMU_MEMORY_MIB` | the memory of each device; that of a retail card by default |
//! | `ROCFORGE_EMU_CHECK` | `all` (the default), `none`, or a list of [`rf_emu::Checks`] |
//! | `ROCFORGE_EMU_SEED` | workgroups and waves run in a random order that this number determines |
//! | `ROCFORGE_EMU_THREADS` | the threads that run workgroups; one per processor by default |
//! | `ROCFORGE_EMU_FAIL` | faults to inject, or `@FILE` to read them from a file; see [`FaultPlan`] |
//! | `ROCFORGE_EMU_COUNTERS` | a folder for the costs of kernels, written when the program ends; see below |
//! | `ROCFORGE_EMU_LOG` | a file to which a line per call is appended |
//!
//! The files of the folder: `costs.toml` ([`rf_emu::cost::Costs`] of each kernel and shape),
//! `listing.txt` (annotated instructions), `stacks.txt` (for tools that draw flame graphs),
//! `costs.html` (all of it for people).
//!
//! # Example
//!
//! The exported functions call plain Rust code, such as this plan of faults:
//!
//! ```
//! use rf_emu_hip::FaultPlan;
//!
//! let mut plan: FaultPlan = "hipMalloc:2:hipErrorOutOfMemory".parse()?;
//! assert_eq!(plan.next("hipMalloc"), None);
//! assert_eq!(plan.next("hipMalloc").map(|status| status.number()), Some(2));
//! # Ok::<(), rf_emu_hip::PlanError>(())
//! ```

mod device;
mod faults;
mod ffi;
mod journal;
mod runtime;
mod settings;
mod status;
mod symbols;

pub use faults::{FaultPlan, PlanError};
pub use status::Status;
pub use symbols::{SymbolError, without_devices, without_symbols};
