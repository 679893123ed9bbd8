//! Level 1: the foreign functions, their numbers, and the library they come from. Nothing here
//! checks anything.

#![expect(unsafe_code, reason = "foreign functions are typed and resolved here")]

#[macro_use]
mod functions;

pub(crate) mod constants;
mod handles;
pub(crate) mod library;
mod table;

pub(crate) use constants::Status;
pub(crate) use handles::{
    ContextHandle, EventHandle, FunctionHandle, GraphExecHandle, GraphHandle, GraphUpdateInfo,
    ModuleHandle, NodeHandle, PoolHandle, ProgramHandle, StreamHandle,
};
pub(crate) use table::{CompilerFunctions, Entry, Functions};
