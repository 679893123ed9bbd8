//! Constants and layouts.

use std::mem::offset_of;

use cubecl_hip_sys as new;
use cudarc::driver::sys as cuda;
use hip_runtime_sys as old;

use crate::constants;
use crate::handles::{AttributedLaunch, GraphUpdateInfo, LaunchAttribute};

macro_rules! same {
    ($($ours:expr, $($theirs:expr),+;)*) => {$(
        $(const _: () = assert!($ours as i64 == $theirs as i64, stringify!($ours));)+
    )*};
}

// Statuses: HIP 5.4, HIP 7.14, CUDA.
same! {
    constants::OUT_OF_MEMORY, old::hipError_t::hipErrorOutOfMemory,
        new::hipError_t_hipErrorOutOfMemory, cuda::CUresult::CUDA_ERROR_OUT_OF_MEMORY;
    constants::NO_DEVICE, old::hipError_t::hipErrorNoDevice,
        new::hipError_t_hipErrorNoDevice, cuda::CUresult::CUDA_ERROR_NO_DEVICE;
    constants::NOT_READY, old::hipError_t::hipErrorNotReady,
        new::hipError_t_hipErrorNotReady, cuda::CUresult::CUDA_ERROR_NOT_READY;
    constants::NOT_SUPPORTED, old::hipError_t::hipErrorNotSupported,
        new::hipError_t_hipErrorNotSupported, cuda::CUresult::CUDA_ERROR_NOT_SUPPORTED;
    constants::CONTEXT_ACTIVE, old::hipError_t::hipErrorSetOnActiveProcess,
        new::hipError_t_hipErrorSetOnActiveProcess,
        cuda::CUresult::CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE;
    constants::PEER_ACCESS_ALREADY_ENABLED, old::hipError_t::hipErrorPeerAccessAlreadyEnabled,
        new::hipError_t_hipErrorPeerAccessAlreadyEnabled,
        cuda::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    constants::GRAPH_UPDATE_FAILURE, old::hipError_t::hipErrorGraphExecUpdateFailure,
        new::hipError_t_hipErrorGraphExecUpdateFailure,
        cuda::CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    constants::DEVICE_LOST[0], old::hipError_t::hipErrorDeinitialized,
        cuda::CUresult::CUDA_ERROR_DEINITIALIZED;
    constants::DEVICE_LOST[1], old::hipError_t::hipErrorECCNotCorrectable,
        cuda::CUresult::CUDA_ERROR_ECC_UNCORRECTABLE;
    constants::DEVICE_LOST[2], old::hipError_t::hipErrorIllegalAddress,
        new::hipError_t_hipErrorIllegalAddress, cuda::CUresult::CUDA_ERROR_ILLEGAL_ADDRESS;
    constants::DEVICE_LOST[3], old::hipError_t::hipErrorLaunchTimeOut,
        cuda::CUresult::CUDA_ERROR_LAUNCH_TIMEOUT;
    constants::DEVICE_LOST[4], old::hipError_t::hipErrorContextIsDestroyed,
        cuda::CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED;
    constants::DEVICE_LOST[5], old::hipError_t::hipErrorAssert,
        cuda::CUresult::CUDA_ERROR_ASSERT;
    constants::DEVICE_LOST[6], cuda::CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR;
    constants::DEVICE_LOST[7], cuda::CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION;
    constants::DEVICE_LOST[8], cuda::CUresult::CUDA_ERROR_MISALIGNED_ADDRESS;
    constants::DEVICE_LOST[9], cuda::CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE;
    constants::DEVICE_LOST[10], cuda::CUresult::CUDA_ERROR_INVALID_PC;
    constants::DEVICE_LOST[11], old::hipError_t::hipErrorLaunchFailure,
        new::hipError_t_hipErrorLaunchFailure, cuda::CUresult::CUDA_ERROR_LAUNCH_FAILED;
}

// Flags and options.
same! {
    constants::SCHEDULE_SPIN, old::hipDeviceScheduleSpin, new::hipDeviceScheduleSpin,
        cuda::CUctx_flags::CU_CTX_SCHED_SPIN;
    constants::SCHEDULE_BLOCKING_SYNC, old::hipDeviceScheduleBlockingSync,
        new::hipDeviceScheduleBlockingSync, cuda::CUctx_flags::CU_CTX_SCHED_BLOCKING_SYNC;
    constants::HOST_PORTABLE, old::hipHostMallocPortable, new::hipHostMallocPortable, 1;
    constants::HOST_MAPPED, old::hipHostMallocMapped, new::hipHostMallocMapped, 2;
    constants::HIP_HOST_COHERENT, old::hipHostMallocCoherent, new::hipHostMallocCoherent;
    constants::STREAM_NON_BLOCKING, old::hipStreamNonBlocking, new::hipStreamNonBlocking,
        cuda::CUstream_flags::CU_STREAM_NON_BLOCKING;
    constants::EVENT_BLOCKING_SYNC, old::hipEventBlockingSync, new::hipEventBlockingSync,
        cuda::CUevent_flags::CU_EVENT_BLOCKING_SYNC;
    constants::EVENT_DISABLE_TIMING, old::hipEventDisableTiming, new::hipEventDisableTiming,
        cuda::CUevent_flags::CU_EVENT_DISABLE_TIMING;
    constants::POOL_RELEASE_THRESHOLD, old::hipMemPoolAttr::hipMemPoolAttrReleaseThreshold,
        new::hipMemPoolAttr_hipMemPoolAttrReleaseThreshold,
        cuda::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    constants::CAPTURE_RELAXED, old::hipStreamCaptureMode::hipStreamCaptureModeRelaxed,
        new::hipStreamCaptureMode_hipStreamCaptureModeRelaxed,
        cuda::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    constants::CAPTURE_STATUS_NONE, old::hipStreamCaptureStatus::hipStreamCaptureStatusNone,
        new::hipStreamCaptureStatus_hipStreamCaptureStatusNone,
        cuda::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    constants::JIT_ERROR_LOG_BUFFER, cuda::CUjit_option::CU_JIT_ERROR_LOG_BUFFER;
    constants::JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        cuda::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES;
}

// Attributes of functions.
same! {
    constants::FUNCTION_MAX_THREADS,
        old::hipFunction_attribute::HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
        new::hipFunction_attribute_HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
        cuda::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
    constants::FUNCTION_STATIC_LDS_BYTES,
        old::hipFunction_attribute::HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
        new::hipFunction_attribute_HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
        cuda::CUfunction_attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES;
    constants::FUNCTION_SCRATCH_BYTES,
        old::hipFunction_attribute::HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
        new::hipFunction_attribute_HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
        cuda::CUfunction_attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES;
    constants::FUNCTION_REGISTERS,
        old::hipFunction_attribute::HIP_FUNC_ATTRIBUTE_NUM_REGS,
        new::hipFunction_attribute_HIP_FUNC_ATTRIBUTE_NUM_REGS,
        cuda::CUfunction_attribute::CU_FUNC_ATTRIBUTE_NUM_REGS;
    constants::FUNCTION_MAX_DYNAMIC_LDS_BYTES,
        old::hipFunction_attribute::HIP_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
        new::hipFunction_attribute_HIP_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
        cuda::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
}

/// A row of the attribute tables: field, the tail of HIP's name in both bindings, CUDA's name.
macro_rules! attributes {
    ($($field:ident, $old:ident, $new:ident, $cuda:ident;)*) => {
        same! {$(
            constants::AMD.$field, old::hipDeviceAttribute_t::$old, new::$new;
            constants::NVIDIA.$field, cuda::CUdevice_attribute::$cuda;
        )*}
    };
}

attributes! {
    compute_units, hipDeviceAttributeMultiprocessorCount,
        hipDeviceAttribute_t_hipDeviceAttributeMultiprocessorCount,
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
    wave_size, hipDeviceAttributeWarpSize,
        hipDeviceAttribute_t_hipDeviceAttributeWarpSize, CU_DEVICE_ATTRIBUTE_WARP_SIZE;
    lds_bytes_per_workgroup, hipDeviceAttributeMaxSharedMemoryPerBlock,
        hipDeviceAttribute_t_hipDeviceAttributeMaxSharedMemoryPerBlock,
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK;
    lds_bytes_per_workgroup_opt_in, hipDeviceAttributeSharedMemPerBlockOptin,
        hipDeviceAttribute_t_hipDeviceAttributeSharedMemPerBlockOptin,
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
    lds_bytes_per_compute_unit, hipDeviceAttributeMaxSharedMemoryPerMultiprocessor,
        hipDeviceAttribute_t_hipDeviceAttributeMaxSharedMemoryPerMultiprocessor,
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR;
    max_threads_per_workgroup, hipDeviceAttributeMaxThreadsPerBlock,
        hipDeviceAttribute_t_hipDeviceAttributeMaxThreadsPerBlock,
        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
    max_threads_per_compute_unit, hipDeviceAttributeMaxThreadsPerMultiProcessor,
        hipDeviceAttribute_t_hipDeviceAttributeMaxThreadsPerMultiProcessor,
        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR;
    integrated, hipDeviceAttributeIntegrated,
        hipDeviceAttribute_t_hipDeviceAttributeIntegrated, CU_DEVICE_ATTRIBUTE_INTEGRATED;
    clock_khz, hipDeviceAttributeClockRate,
        hipDeviceAttribute_t_hipDeviceAttributeClockRate, CU_DEVICE_ATTRIBUTE_CLOCK_RATE;
    memory_clock_khz, hipDeviceAttributeMemoryClockRate,
        hipDeviceAttribute_t_hipDeviceAttributeMemoryClockRate,
        CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE;
    memory_bus_bits, hipDeviceAttributeMemoryBusWidth,
        hipDeviceAttribute_t_hipDeviceAttributeMemoryBusWidth,
        CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH;
    l2_bytes, hipDeviceAttributeL2CacheSize,
        hipDeviceAttribute_t_hipDeviceAttributeL2CacheSize, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE;
    memory_pools, hipDeviceAttributeMemoryPoolsSupported,
        hipDeviceAttribute_t_hipDeviceAttributeMemoryPoolsSupported,
        CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED;
    capability_major, hipDeviceAttributeComputeCapabilityMajor,
        hipDeviceAttribute_t_hipDeviceAttributeComputeCapabilityMajor,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR;
    capability_minor, hipDeviceAttributeComputeCapabilityMinor,
        hipDeviceAttribute_t_hipDeviceAttributeComputeCapabilityMinor,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR;
}

// The offset of the device name.
same! {
    constants::ARCH_NAME_OFFSET_R0000, offset_of!(old::hipDeviceProp_t, gcnArchName);
    constants::ARCH_NAME_OFFSET_R0600, offset_of!(new::hipDeviceProp_tR0600, gcnArchName);
}
const _: () = assert!(size_of::<old::hipDeviceProp_t>() <= constants::PROPERTIES_BYTES);
const _: () = assert!(size_of::<new::hipDeviceProp_tR0600>() <= constants::PROPERTIES_BYTES);

type TheirUpdateInfo = cuda::CUgraphExecUpdateResultInfo;
same! {
    size_of::<GraphUpdateInfo>(), size_of::<TheirUpdateInfo>();
    offset_of!(GraphUpdateInfo, error_node), offset_of!(TheirUpdateInfo, errorNode);
    offset_of!(GraphUpdateInfo, error_from_node), offset_of!(TheirUpdateInfo, errorFromNode);
}

type TheirLaunch = cuda::CUlaunchConfig;
type TheirAttribute = cuda::CUlaunchAttribute;
same! {
    size_of::<AttributedLaunch>(), size_of::<TheirLaunch>();
    offset_of!(AttributedLaunch, block), offset_of!(TheirLaunch, blockDimX);
    offset_of!(AttributedLaunch, lds_bytes), offset_of!(TheirLaunch, sharedMemBytes);
    offset_of!(AttributedLaunch, stream), offset_of!(TheirLaunch, hStream);
    offset_of!(AttributedLaunch, attributes), offset_of!(TheirLaunch, attrs);
    offset_of!(AttributedLaunch, num_attributes), offset_of!(TheirLaunch, numAttrs);
    size_of::<LaunchAttribute>(), size_of::<TheirAttribute>();
    offset_of!(LaunchAttribute, value), offset_of!(TheirAttribute, value);
}
