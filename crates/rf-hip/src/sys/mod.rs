//! Level 1: the foreign functions, their numbers, and the library they come from. Nothing here
//! checks anything.

#![expect(unsafe_code, reason = "foreign functions are typed and resolved here")]

#[macro_use]
mod functions;

pub(crate) mod constants;
pub(crate) mod library;
mod table;

pub(crate) use constants::Status;
pub(crate) use table::{
    ContextHandle, Entry, EventHandle, FunctionHandle, Functions, GraphExecHandle, GraphHandle,
    GraphUpdateInfo, ModuleHandle, NodeHandle, PoolHandle, StreamHandle,
};
