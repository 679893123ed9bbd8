//! Constants of the two APIs.
//!
//! A constant without a platform in its name has the same value in HIP and CUDA. `abi-check`
//! compares all values with the published bindings.

use std::ffi::{c_int, c_uint};

/// The result of every foreign function: `hipError_t` or `CUresult`.
pub(crate) type Status = c_int;

pub(crate) const SUCCESS: Status = 0;
pub(crate) const OUT_OF_MEMORY: Status = 2;
pub(crate) const NO_DEVICE: Status = 100;
/// The device number is invalid. HIP 5's `hipInit` also returns this if there is no device.
pub(crate) const INVALID_DEVICE: Status = 101;
/// The flags of an existing context cannot change.
pub(crate) const CONTEXT_ACTIVE: Status = 708;
pub(crate) const NOT_READY: Status = 600;
pub(crate) const NOT_SUPPORTED: Status = 801;
pub(crate) const PEER_ACCESS_ALREADY_ENABLED: Status = 704;
pub(crate) const GRAPH_UPDATE_FAILURE: Status = 910;

/// Statuses after which the context is unusable; only a new process is certain to recover.
///
/// In order: driver shut down, uncorrectable ECC error, illegal address, launch timed out, context
/// destroyed, device assert, hardware stack error, illegal instruction, misaligned address, invalid
/// address space, invalid program counter, launch failure.
pub(crate) const DEVICE_LOST: [Status; 12] =
    [4, 214, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719];

pub(crate) const SCHEDULE_SPIN: c_uint = 1;
pub(crate) const SCHEDULE_BLOCKING_SYNC: c_uint = 4;

pub(crate) const HOST_PORTABLE: c_uint = 1;
pub(crate) const HOST_MAPPED: c_uint = 2;
/// No cache of the device keeps the memory. CUDA has no such flag, because mapped memory is always
/// coherent there.
pub(crate) const HIP_HOST_COHERENT: c_uint = 0x4000_0000;

pub(crate) const STREAM_NON_BLOCKING: c_uint = 1;

pub(crate) const EVENT_BLOCKING_SYNC: c_uint = 1;
pub(crate) const EVENT_DISABLE_TIMING: c_uint = 2;

pub(crate) const POOL_RELEASE_THRESHOLD: c_int = 4;

pub(crate) const FUNCTION_MAX_THREADS: c_int = 0;
pub(crate) const FUNCTION_STATIC_LDS_BYTES: c_int = 1;
pub(crate) const FUNCTION_SCRATCH_BYTES: c_int = 3;
pub(crate) const FUNCTION_REGISTERS: c_int = 4;
pub(crate) const FUNCTION_MAX_DYNAMIC_LDS_BYTES: c_int = 8;

/// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`: a kernel may start before those queued
/// before it end.
pub(crate) const LAUNCH_EARLY: c_int = 6;
/// The first CUDA version whose graphs can contain early launches.
pub(crate) const CUDA_WITH_EARLY_LAUNCHES: c_int = 12_030;

/// Allows all other calls while a stream captures. The stricter modes protect against uses of the
/// legacy stream, which this crate never uses.
pub(crate) const CAPTURE_RELAXED: c_int = 2;
pub(crate) const CAPTURE_STATUS_NONE: c_int = 0;

/// `CUjit_option`: the buffer for error messages of the PTX compiler.
pub(crate) const JIT_ERROR_LOG_BUFFER: c_int = 5;
pub(crate) const JIT_ERROR_LOG_BUFFER_SIZE_BYTES: c_int = 6;

/// Offset of `gcnArchName` in `hipDeviceProp_tR0600` (HIP 6 and later).
pub(crate) const ARCH_NAME_OFFSET_R0600: usize = 1160;
/// Offset of `gcnArchName` in the structure of `hipGetDeviceProperties`. The symbol has the HIP 5
/// layout in every library: HIP 6's header maps the name to another symbol.
pub(crate) const ARCH_NAME_OFFSET_R0000: usize = 396;
/// Size of `gcnArchName` in both structures.
pub(crate) const ARCH_NAME_BYTES: usize = 256;
/// A size sufficient for either structure (1472 and 792 bytes today).
pub(crate) const PROPERTIES_BYTES: usize = 4096;

/// The device attributes of one API; HIP and CUDA number them differently.
pub(crate) struct Attributes {
    pub(crate) compute_units: c_int,
    pub(crate) wave_size: c_int,
    pub(crate) lds_bytes_per_workgroup: c_int,
    /// Available after raising a function's limit.
    pub(crate) lds_bytes_per_workgroup_opt_in: c_int,
    pub(crate) lds_bytes_per_compute_unit: c_int,
    pub(crate) max_threads_per_workgroup: c_int,
    pub(crate) max_threads_per_compute_unit: c_int,
    pub(crate) integrated: c_int,
    pub(crate) clock_khz: c_int,
    pub(crate) memory_clock_khz: c_int,
    pub(crate) memory_bus_bits: c_int,
    pub(crate) l2_bytes: c_int,
    pub(crate) memory_pools: c_int,
    pub(crate) capability_major: c_int,
    pub(crate) capability_minor: c_int,
}

/// `hipDeviceAttribute_t`
pub(crate) const AMD: Attributes = Attributes {
    compute_units: 63,
    wave_size: 87,
    lds_bytes_per_workgroup: 74,
    lds_bytes_per_workgroup_opt_in: 75,
    lds_bytes_per_compute_unit: 10_002,
    max_threads_per_workgroup: 56,
    max_threads_per_compute_unit: 57,
    integrated: 16,
    clock_khz: 5,
    memory_clock_khz: 60,
    memory_bus_bits: 59,
    l2_bytes: 19,
    memory_pools: 88,
    capability_major: 23,
    capability_minor: 61,
};

/// `CUdevice_attribute`
pub(crate) const NVIDIA: Attributes = Attributes {
    compute_units: 16,
    wave_size: 10,
    lds_bytes_per_workgroup: 8,
    lds_bytes_per_workgroup_opt_in: 97,
    lds_bytes_per_compute_unit: 81,
    max_threads_per_workgroup: 1,
    max_threads_per_compute_unit: 39,
    integrated: 18,
    clock_khz: 13,
    memory_clock_khz: 36,
    memory_bus_bits: 37,
    l2_bytes: 38,
    memory_pools: 115,
    capability_major: 75,
    capability_minor: 76,
};
