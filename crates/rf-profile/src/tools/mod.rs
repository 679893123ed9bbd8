//! External profilers: finding them, running them, reading what they wrote.
//!
//! [`available_tools`] says what is installed. A [`Session`] runs a program under one of AMD's profilers for a
//! [`Request`] and gives a [`Profile`] of typed rows; [`perf`] does the same for the CPU. Before anything is
//! run, every option of the command line is looked up in the tool's own `--help`: what it has not got is never
//! passed.
//!
//! Names, options and formats are those of ROCm 5 to 7; `rocperf`, which older texts name, is none of them.

mod command;
mod counters;
pub mod perf;
mod process;
mod request;
mod session;
mod tool;

pub use command::{Invocation, Output};
pub use counters::{CounterGroup, Generation, passes};
pub use process::{Finished, Runner};
pub use request::Request;
pub use session::{Profile, Session};
pub use tool::{Availability, Installed, Tool, Toolbox, available_tools};
