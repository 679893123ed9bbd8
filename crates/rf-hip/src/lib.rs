//! A safe GPU runtime: HIP on AMD or the CUDA driver on NVIDIA, loaded at run time.

mod error;
mod image;
mod result;
mod safe;
mod sys;

pub use error::{Attempt, Error};
pub use safe::{
    Context, Device, DeviceBuffer, DeviceInfo, Event, Function, FunctionInfo, LaunchConfig,
    MappedBuffer, Module, PinnedBuffer, Platform, Runtime, Stream, SyncMode, Version, Versions,
};
