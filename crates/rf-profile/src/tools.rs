//! External profilers: finds them, runs them and reads their output.
//!
//! [`available_tools`] lists the installed tools. A [`Session`] runs a program under one of AMD's
//! profilers for a [`ProfileRequest`] and returns a [`Profile`] of typed rows. [`perf`] does the
//! same for the CPU. Before a run, every option of the command line is looked up in the tool's own
//! `--help`: an option that the tool lacks is never passed.
//!
//! Names, options and formats are those of ROCm 5 to 7.

mod command;
mod counters;
pub mod perf;
mod process;
mod request;
mod session;
mod tool;

pub use command::{Invocation, ToolOutput};
pub use counters::{CounterGroup, GpuGeneration, passes};
pub use process::{ProcessOutput, Runner};
pub use request::ProfileRequest;
pub use session::{Profile, Session};
pub use tool::{Availability, InstalledTool, Tool, Toolbox, available_tools};
