//! Stands in for `gpus` in a program that was built without them.

use anyhow::{Result, bail};

use rf_profile::memory::MemoryTracker;
use rf_profile::roofline::Limits;

use super::OpenGpu;
use crate::terminal;

const WITHOUT: &str = "this program was built without GPU support: build it with the feature gpu, or take --device cpu";

/// There is none to open.
pub(super) fn open(_number: Option<usize>) -> Result<OpenGpu> {
    bail!(WITHOUT)
}

/// There is none to measure.
pub(crate) fn limits(_number: usize) -> Result<Limits> {
    bail!(WITHOUT)
}

/// There is none to sample.
pub(crate) fn sample_memory(_number: usize, _tracker: &mut MemoryTracker) -> Result<()> {
    bail!(WITHOUT)
}

/// There is none to open; `wanted` is whether the user asked for layers on one.
pub(super) fn open_if_usable(wanted: bool) -> Option<OpenGpu> {
    if wanted {
        terminal::warn(format_args!("everything runs on the CPU: {WITHOUT}"));
    }
    None
}
