//! Level 1: the foreign functions, their constants, and the library that contains them. This level
//! performs no checks.

#![expect(unsafe_code, reason = "types and resolves foreign functions")]

#[macro_use]
mod functions;

pub(crate) mod constants;
mod handles;
pub(crate) mod library;
mod table;

pub(crate) use constants::Status;
pub(crate) use handles::{
    AttributedLaunch, ContextHandle, EventHandle, FunctionHandle, GraphExecHandle, GraphHandle,
    GraphUpdateInfo, LaunchAttribute, ModuleHandle, NodeHandle, PoolHandle, ProgramHandle,
    StreamHandle,
};
pub(crate) use table::{CompilerFunctions, ForeignFunction, Functions};
