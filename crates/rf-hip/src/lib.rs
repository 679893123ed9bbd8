//! A safe GPU runtime over HIP (AMD) or the CUDA driver (NVIDIA), loaded at run time.
//!
//! **Place in the layering.** The lowest layer: this crate depends on no other crate of the
//! workspace. `rf-kernels` launches kernels through it, `rf-profile` measures with it. It manages
//! devices, memory and streams; tensors and models are unknown to it. It builds without a GPU
//! runtime, and on a machine without one [`Runtime::load`] returns an [`Error`].
//!
//! **Where to start.** [`Runtime::load`] → [`Runtime::device`] → [`Device::context`]; with a
//! [`Context`] create a [`Stream`], [`DeviceBuffer`]s and a [`Module`], and pass its [`Function`]s
//! to [`Stream::launch`]. The numbered examples show each step.
//!
//! # Levels
//!
//! | level | folder | contents | lifetimes guaranteed by |
//! |---|---|---|---|
//! | 1 | `sys` | one table of foreign functions with the symbols of both platforms; constants; library search | nothing |
//! | 2 | `result` | the same calls returning [`Result`], with one signature for both platforms | the caller |
//! | 3 | `safe` | owned objects: the public API | the types |
//!
//! `abi-check`, a crate outside the workspace, compares level 1 with the published bindings of HIP
//! 5, HIP 7 and CUDA 12.
//!
//! # Concepts
//!
//! | type | HIP | CUDA | CPU analogy |
//! |---|---|---|---|
//! | [`Runtime`] | libamdhip64 | libcuda | the operating system |
//! | [`Device`] | device | device | a machine |
//! | [`Context`] | current device | primary context | a process on that machine |
//! | [`Stream`] | `hipStream_t` | `CUstream` | a thread with a job queue |
//! | [`Event`] | `hipEvent_t` | `CUevent` | a condition variable with a clock |
//! | [`DeviceBuffer`] | `hipMalloc` | `cuMemAlloc` | `Box<[T]>` on that machine |
//! | [`DeviceBuffer::on_stream`] | `hipMallocAsync` | `cuMemAllocAsync` | an arena allocation |
//! | [`PinnedBuffer`] | `hipHostMalloc` | `cuMemHostAlloc` | a network buffer |
//! | [`MappedBuffer`] | mapped host memory | mapped host memory | shared memory |
//! | [`Module`], [`Function`] | code object, kernel | cubin or PTX, kernel | a shared library, a function |
//! | [`LaunchConfig`] | grid, block, LDS | grid, block, shared memory | the ranges of a parallel loop |
//! | [`Graph`], [`GraphExec`] | `hipGraph_t`, `hipGraphExec_t` | `CUgraph`, `CUgraphExec` | a recorded macro |
//! | [`Compiler`] | libhiprtc | (the driver compiles PTX) | a compiler as a library |
//!
//! The terms are AMD's: a *wave* is CUDA's warp, a *workgroup* its block, *LDS* its shared memory.
//!
//! # Environment
//!
//! | variable | meaning |
//! |---|---|
//! | `ROCFORGE_GPU_PLATFORM` | `amd` or `nvidia`: load only this platform |
//! | `ROCFORGE_HIP_LIBRARY` | path of the only libamdhip64 to try |
//! | `ROCFORGE_CUDA_LIBRARY` | path of the only libcuda to try |
//! | `ROCFORGE_HIP_MEMORY_POOLS` | `1`: trust ROCm's stream-ordered memory pools |
//! | `ROCM_PATH`, `HIP_PATH` | a ROCm installation whose `lib` directory is searched first; on Windows `bin`, after the driver's folder, and `HIP_PATH` is first |
//! | `GPU_MAX_HW_QUEUES` | HIP's own: the number of hardware queues; 1 where it is not set, because many cards save no power with more |
//! | `VIRTUAL_ENV`, `CONDA_PREFIX` | the environment of Python whose wheels of ROCm are searched |
//!
//! # Invariants
//!
//! - No call and no drop panics. A failure in a drop is logged through `tracing`.
//! - An object keeps the objects it depends on alive: a function keeps its module, a buffer its
//!   context, a context its library. The library stays loaded until the process ends.
//! - A captured graph keeps the modules and buffers that safe calls recorded.
//! - Safe calls never let the device write host memory that Rust code may read, or read host memory
//!   that Rust code may write: blocking copies wait, [`PinnedBuffer`] tracks its copies, and all
//!   other copies are `unsafe`.
//! - A waiting thread sleeps unless the context uses [`SyncMode::Spin`].
//! - A function missing from the library is an error of the call that needs it
//!   ([`Error::MissingSymbol`]), so older libraries and partial implementations are usable. Only
//!   the few functions that every program needs are required when the library is loaded.
//!
//! **Faulting kernels.** On NVIDIA the context is lost, and every later call returns an error for
//! which [`Error::is_device_lost`] is true. ROCm's runtime ends the process instead ("Memory access
//! fault by GPU"). To survive a fault there, run untrusted kernels in a child process.
//!
//! # Examples
//!
//! Copy data to the first device and back. On a machine without a GPU, [`Runtime::load`] returns a
//! typed error and the caller chooses the CPU:
//!
//! ```
//! use rf_hip::{DeviceBuffer, Error, Runtime, Stream};
//!
//! fn round_trip(data: &[f32]) -> Result<Vec<f32>, Error> {
//!     let context = Runtime::load()?.device(0)?.context()?;
//!     let stream = Stream::new(&context)?;
//!     DeviceBuffer::from_slice(&stream, data)?.to_vec(&stream)
//! }
//!
//! match round_trip(&[1.0, 2.0, 3.0]) {
//!     Ok(copy) => assert_eq!(copy, [1.0, 2.0, 3.0]),
//!     Err(Error::LibraryNotFound { tried }) => println!("no GPU runtime, tried {tried:?}"),
//!     Err(Error::NoSuchDevice { .. }) => println!("no GPU"),
//!     Err(error) => println!("cannot use the GPU: {error}"),
//! }
//! ```

mod error;
mod image;
mod launch_config;
mod platform;
mod result;
mod safe;
mod sys;

/// Types whose values are plain bytes: the elements of buffers.
pub use bytemuck::Pod;
pub use error::{Attempt, Error};
pub use launch_config::LaunchConfig;
pub use platform::Platform;
pub use safe::{
    Capture, Compiler, Context, Device, DeviceBuffer, DeviceInfo, Event, Function, FunctionInfo,
    Graph, GraphExec, MappedBuffer, Module, PinnedBuffer, Runtime, Source, Stream, SyncMode,
    Version, Versions,
};
