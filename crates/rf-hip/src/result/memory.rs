//! Allocations, copies and fills.

use std::ffi::{c_int, c_void};

use super::Api;
use crate::sys::{ContextHandle, PoolHandle, StreamHandle, constants};
use crate::{Error, Platform};

/// Allocates device memory; `bytes` > 0, because CUDA rejects empty allocations.
pub(crate) fn allocate(api: &Api, bytes: usize) -> Result<u64, Error> {
    let mut address = 0;
    call!(api, allocate(&raw mut address, bytes))?;
    Ok(address)
}

/// # Safety
///
/// See [`super`]; the address came from [`allocate`] and is not used again.
pub(crate) unsafe fn free(api: &Api, address: u64) -> Result<(), Error> {
    call!(api, free(address))
}

/// Allocates page-locked host memory; `bytes` > 0. Mapped memory is coherent, whatever the
/// environment says (`HIP_HOST_COHERENT`).
pub(crate) fn allocate_host(api: &Api, bytes: usize, mapped: bool) -> Result<*mut c_void, Error> {
    let mut pointer = std::ptr::null_mut();
    let mapping = match api.platform {
        _ if !mapped => 0,
        Platform::Amd => constants::HOST_MAPPED | constants::HIP_HOST_COHERENT,
        Platform::Nvidia => constants::HOST_MAPPED,
    };
    call!(api, allocate_host(&raw mut pointer, bytes, constants::HOST_PORTABLE | mapping))?;
    Ok(pointer)
}

/// # Safety
///
/// See [`super`]; the pointer came from [`allocate_host`] and is not used again.
pub(crate) unsafe fn free_host(api: &Api, pointer: *mut c_void) -> Result<(), Error> {
    call!(api, free_host(pointer))
}

/// The device address of mapped host memory.
///
/// # Safety
///
/// See [`super`].
pub(crate) unsafe fn host_device_address(api: &Api, pointer: *mut c_void) -> Result<u64, Error> {
    let mut address = 0;
    call!(api, host_device_address(&raw mut address, pointer, 0))?;
    Ok(address)
}

/// # Safety
///
/// See [`super`]; the host memory is not written until the copy is done.
pub(crate) unsafe fn copy_to_device(
    api: &Api,
    to: u64,
    from: *const c_void,
    bytes: usize,
    stream: StreamHandle,
) -> Result<(), Error> {
    call!(api, copy_to_device(to, from, bytes, stream))
}

/// # Safety
///
/// See [`super`]; the host memory is not accessed until the copy is done.
pub(crate) unsafe fn copy_to_host(
    api: &Api,
    to: *mut c_void,
    from: u64,
    bytes: usize,
    stream: StreamHandle,
) -> Result<(), Error> {
    call!(api, copy_to_host(to, from, bytes, stream))
}

/// # Safety
///
/// See [`super`].
pub(crate) unsafe fn copy_on_device(
    api: &Api,
    to: u64,
    from: u64,
    bytes: usize,
    stream: StreamHandle,
) -> Result<(), Error> {
    call!(api, copy_on_device(to, from, bytes, stream))
}

/// An address with its device and context: AMD identifies a peer by device, NVIDIA by context.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PeerAddress {
    pub(crate) device: c_int,
    pub(crate) context: ContextHandle,
    pub(crate) address: u64,
}

/// # Safety
///
/// See [`super`]; both contexts are retained.
pub(crate) unsafe fn copy_peer(
    api: &Api,
    to: PeerAddress,
    from: PeerAddress,
    bytes: usize,
    stream: StreamHandle,
) -> Result<(), Error> {
    match api.platform {
        Platform::Amd => call!(
            api,
            hip_copy_peer(to.address, to.device, from.address, from.device, bytes, stream)
        ),
        Platform::Nvidia => call!(
            api,
            cuda_copy_peer(to.address, to.context, from.address, from.context, bytes, stream)
        ),
    }
}

/// # Safety
///
/// See [`super`].
pub(crate) unsafe fn fill_bytes(
    api: &Api,
    address: u64,
    value: u8,
    count: usize,
    stream: StreamHandle,
) -> Result<(), Error> {
    call!(api, fill_bytes(address, value, count, stream))
}

/// # Safety
///
/// See [`super`]; the address is a multiple of 4.
pub(crate) unsafe fn fill_words(
    api: &Api,
    address: u64,
    value: u32,
    count: usize,
    stream: StreamHandle,
) -> Result<(), Error> {
    call!(api, fill_words(address, value, count, stream))
}

/// Allocates from the device's pool, ordered with the stream; `bytes` > 0.
///
/// # Safety
///
/// See [`super`].
pub(crate) unsafe fn allocate_on_stream(
    api: &Api,
    bytes: usize,
    stream: StreamHandle,
) -> Result<u64, Error> {
    let mut address = 0;
    call!(api, allocate_on_stream(&raw mut address, bytes, stream))?;
    Ok(address)
}

/// # Safety
///
/// See [`super`]; nothing queued later, on any stream, uses the memory.
pub(crate) unsafe fn free_on_stream(
    api: &Api,
    address: u64,
    stream: StreamHandle,
) -> Result<(), Error> {
    call!(api, free_on_stream(address, stream))
}

pub(crate) fn default_pool(api: &Api, device: c_int) -> Result<PoolHandle, Error> {
    let mut pool = PoolHandle::NULL;
    call!(api, default_pool(&raw mut pool, device))?;
    Ok(pool)
}

/// Sets how much freed memory the pool retains at a synchronisation.
///
/// # Safety
///
/// See [`super`].
pub(crate) unsafe fn pool_keep(api: &Api, pool: PoolHandle, mut bytes: u64) -> Result<(), Error> {
    let value = (&raw mut bytes).cast();
    call!(api, pool_set_attribute(pool, constants::POOL_RELEASE_THRESHOLD, value))
}

/// # Safety
///
/// See [`super`].
pub(crate) unsafe fn pool_trim(api: &Api, pool: PoolHandle, keep: usize) -> Result<(), Error> {
    call!(api, pool_trim(pool, keep))
}
