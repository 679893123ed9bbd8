//! A safe GPU runtime: HIP on AMD, the CUDA driver on NVIDIA, found and loaded at run time.
//!
//! **Place in the layering.** At the bottom: no other crate of ours is below it. `rf-kernels` launches
//! through it, `rf-profile` measures with it. It knows devices, memory and queues, and nothing of
//! tensors or models. No GPU runtime is needed to build it, and a process without one gets an
//! [`Error`] from [`Runtime::load`].
//!
//! **Where to start.** [`Runtime::load`] → [`Runtime::device`] → [`Device::context`]; from the
//! [`Context`] come a [`Stream`], [`DeviceBuffer`]s and a [`Module`], whose [`Function`]s go into
//! [`Stream::launch`]. The numbered examples show each step.
//!
//! # Levels
//!
//! | level | folder | what it is | who guards lifetimes |
//! |---|---|---|---|
//! | 1 | `sys` | one table of foreign functions with both platforms' symbols; constants; the search for the library | nobody |
//! | 2 | `result` | the same calls returning [`Result`], the platforms' differences settled | the caller |
//! | 3 | `safe` | owned objects: everything public | the types |
//!
//! `abi-check`, a crate outside the workspace, compares level 1 with the public bindings of HIP 5, HIP 7
//! and CUDA 12.
//!
//! # Concepts
//!
//! | here | HIP | CUDA | on the CPU it would be |
//! |---|---|---|---|
//! | [`Runtime`] | libamdhip64 | libcuda | the operating system |
//! | [`Device`] | device | device | a machine |
//! | [`Context`] | current device | primary context | a process on it |
//! | [`Stream`] | `hipStream_t` | `CUstream` | a thread with a queue of jobs |
//! | [`Event`] | `hipEvent_t` | `CUevent` | a condition variable with a clock |
//! | [`DeviceBuffer`] | `hipMalloc` | `cuMemAlloc` | `Box<[T]>` on that machine |
//! | [`DeviceBuffer::on_stream`] | `hipMallocAsync` | `cuMemAllocAsync` | an arena's allocation |
//! | [`PinnedBuffer`] | `hipHostMalloc` | `cuMemHostAlloc` | a network buffer |
//! | [`MappedBuffer`] | mapped host memory | mapped host memory | shared memory |
//! | [`Module`], [`Function`] | code object, kernel | cubin or PTX, kernel | a shared library, its functions |
//! | [`LaunchConfig`] | grid, block, LDS | grid, block, shared memory | the ranges of a parallel loop |
//! | [`Graph`], [`GraphExec`] | `hipGraph_t`, `hipGraphExec_t` | `CUgraph`, `CUgraphExec` | a recorded macro |
//! | [`Compiler`] | libhiprtc | (the driver compiles PTX) | a compiler as a library |
//!
//! Words are AMD's: a *wave* is a warp, a *workgroup* a block, *LDS* shared memory.
//!
//! # Environment
//!
//! | variable | meaning |
//! |---|---|
//! | `ROCFORGE_GPU_PLATFORM` | `amd` or `nvidia`: only this one |
//! | `ROCFORGE_HIP_LIBRARY` | the libamdhip64 to load, and no other |
//! | `ROCFORGE_CUDA_LIBRARY` | the libcuda to load, and no other |
//! | `ROCM_PATH` | a ROCm installation whose `lib` folder is looked into first |
//!
//! # Invariants
//!
//! - Nothing panics, in drops neither: a drop that fails logs through `tracing`.
//! - An object keeps all it stands on alive: a function its module, a buffer its context, a context
//!   its library. The library stays loaded until the process ends.
//! - A captured graph keeps the modules and buffers that it uses through safe calls.
//! - Safe calls never let the device write host memory that Rust code could be looking at, nor read
//!   what it could be changing: blocking copies wait, [`PinnedBuffer`] knows of its copies, and
//!   everything else is `unsafe`.
//! - A thread that waits sleeps, unless [`SyncMode::Spin`] was asked for.
//! - A function that the library lacks is an error of the call that needs it
//!   ([`Error::MissingSymbol`]), so old libraries and stand-ins serve as far as they go; only the few
//!   without which nothing runs are demanded at loading.
//!
//! **A kernel that faults.** On NVIDIA the context is lost and every call returns an error for which
//! [`Error::is_device_lost`] holds. ROCm's runtime ends the process instead ("Memory access fault by
//! GPU"): there is no call to return an error from. A caller that has to survive it runs what it does
//! not trust in a child process.
//!
//! # Example
//!
//! ```
//! use rf_hip::{DeviceBuffer, Error, Runtime, Stream};
//!
//! fn there_and_back() -> Result<Vec<f32>, Error> {
//!     let context = Runtime::load()?.device(0)?.context()?;
//!     let stream = Stream::new(&context)?;
//!     let buffer = DeviceBuffer::from_slice(&stream, &[1.0, 2.0, 3.0])?;
//!     buffer.to_vec(&stream)
//! }
//!
//! match there_and_back() {
//!     Ok(values) => assert_eq!(values, [1.0, 2.0, 3.0]),
//!     Err(error) => println!("skipped: {error}"),
//! }
//! ```

mod error;
mod image;
mod result;
mod safe;
mod sys;

pub use error::{Attempt, Error};
pub use safe::{
    Capture, Compiler, Context, Device, DeviceBuffer, DeviceInfo, Event, Function, FunctionInfo,
    Graph, GraphExec, LaunchConfig, MappedBuffer, Module, PinnedBuffer, Platform, Runtime, Source,
    Stream, SyncMode, Version, Versions,
};
