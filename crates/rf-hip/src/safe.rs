//! Level 3: owned objects that keep the objects they depend on alive.
//!
//! Every object holds its [`Context`], so none outlives it. Every call makes that context current
//! on the calling thread, so objects may be used from any thread.

#![expect(unsafe_code, reason = "upholds the contracts of the result level")]

use std::any::Any;
use std::sync::Arc;

use crate::Error;
use crate::result::{Api, context as raw_context};

mod compiler;
mod context;
mod device;
mod device_info;
mod event;
mod graph;
mod memory;
mod module;
mod runtime;
mod stream;

pub use compiler::{Compiler, Source};
pub use context::{Context, SyncMode};
pub use device::Device;
pub use device_info::DeviceInfo;
pub use event::Event;
pub use graph::{Capture, Graph, GraphExec};
pub use memory::{DeviceBuffer, MappedBuffer, PinnedBuffer};
pub use module::{Function, FunctionInfo, Module};
pub use runtime::{Runtime, Version, Versions};
pub use stream::Stream;

/// An object that a captured graph uses and keeps alive.
type Kept = Arc<dyn Any + Send + Sync>;

/// Waits for the current context before an object is released that its work may use. On a lost
/// device nothing runs, and the object is released nevertheless.
fn wait_before_release(api: &Api) -> Result<(), Error> {
    match raw_context::synchronize(api) {
        Err(error) if error.is_device_lost() => Ok(()),
        outcome => outcome,
    }
}

/// Logs a failure in a drop. On a lost device every drop fails, and the caller already has the
/// error.
fn report_drop(what: &str, outcome: Result<(), Error>) {
    match outcome {
        Ok(()) => {}
        Err(error) if error.is_device_lost() => tracing::debug!("dropping {what}: {error}"),
        Err(error) => tracing::warn!("dropping {what}: {error}"),
    }
}
