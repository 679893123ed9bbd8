//! Allocations, copies and fills.
//!
//! A device address is `u64` here: HIP's `void *` is passed the same way.

use std::ffi::{c_int, c_uchar, c_uint, c_ushort, c_void};

use super::handles::StreamHandle;
use super::host::HostRange;
use super::{call, current_device, store};
use crate::Status;
use crate::runtime::Use::{Query, Release, Work};
use crate::runtime::{CopyEnd, Runtime, StreamId, Transfer};

// ---- allocations

unsafe fn allocate(function: &'static str, address: *mut u64, bytes: usize) -> c_int {
    call(function, Work, |runtime| {
        let start = runtime.allocate(current_device(), bytes as u64)?;
        // SAFETY: the caller's place.
        unsafe { store(address, start) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipMalloc(address: *mut u64, bytes: usize) -> c_int {
    // SAFETY: forwarded.
    unsafe { allocate("hipMalloc", address, bytes) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipExtMallocWithFlags(
    address: *mut u64,
    bytes: usize,
    _flags: c_uint,
) -> c_int {
    // SAFETY: forwarded.
    unsafe { allocate("hipExtMallocWithFlags", address, bytes) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipMallocAsync(
    address: *mut u64,
    bytes: usize,
    stream: StreamHandle,
) -> c_int {
    call("hipMallocAsync", Work, |runtime| {
        refuse_capture(runtime, stream)?;
        let start = runtime.allocate(current_device(), bytes as u64)?;
        // SAFETY: the caller's place.
        unsafe { store(address, start) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipFree(address: u64) -> c_int {
    call("hipFree", Release, |runtime| runtime.free(address))
}

#[unsafe(no_mangle)]
extern "C" fn hipFreeAsync(address: u64, stream: StreamHandle) -> c_int {
    call("hipFreeAsync", Release, |runtime| {
        refuse_capture(runtime, stream)?;
        runtime.free(address)
    })
}

/// A graph cannot contain allocations.
fn refuse_capture(runtime: &Runtime, stream: StreamHandle) -> Result<(), Status> {
    match runtime.capture_status(StreamId::from_handle(stream))? {
        0 => Ok(()),
        _ => Err(Status::CAPTURE_UNSUPPORTED),
    }
}

unsafe fn allocate_host(function: &'static str, pointer: *mut u64, bytes: usize) -> c_int {
    call(function, Work, |runtime| {
        let start = runtime.allocate_host(bytes as u64)?;
        // SAFETY: the caller's place.
        unsafe { store(pointer, start) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipHostMalloc(pointer: *mut u64, bytes: usize, _flags: c_uint) -> c_int {
    // SAFETY: forwarded.
    unsafe { allocate_host("hipHostMalloc", pointer, bytes) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipHostAlloc(pointer: *mut u64, bytes: usize, _flags: c_uint) -> c_int {
    // SAFETY: forwarded.
    unsafe { allocate_host("hipHostAlloc", pointer, bytes) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipMallocManaged(pointer: *mut u64, bytes: usize, _flags: c_uint) -> c_int {
    // SAFETY: forwarded.
    unsafe { allocate_host("hipMallocManaged", pointer, bytes) }
}

#[unsafe(no_mangle)]
extern "C" fn hipHostFree(pointer: u64) -> c_int {
    call("hipHostFree", Release, |runtime| runtime.free(pointer))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipHostGetDevicePointer(
    address: *mut u64,
    pointer: u64,
    _flags: c_uint,
) -> c_int {
    call("hipHostGetDevicePointer", Query, |runtime| {
        if !runtime.is_known(pointer) {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: the caller's place.
        unsafe { store(address, pointer) }
    })
}

// ---- copies

/// `hipMemcpyKind`
const HOST_TO_HOST: c_int = 0;
const HOST_TO_DEVICE: c_int = 1;
const DEVICE_TO_HOST: c_int = 2;
const DEVICE_TO_DEVICE: c_int = 3;
/// The kind of copy that follows from the addresses.
const DEFAULT: c_int = 4;

/// Queues a copy.
///
/// # Safety
///
/// Ends in host memory are valid for `bytes` until the copy is done.
unsafe fn copy(
    function: &'static str,
    (to, from): (u64, u64),
    bytes: usize,
    kind: c_int,
    stream: StreamHandle,
) -> c_int {
    call(function, Work, |runtime| {
        if !(HOST_TO_HOST..=DEFAULT).contains(&kind) {
            return Err(Status::INVALID_VALUE);
        }
        // Host memory of this library counts as the device's, which knows its bounds.
        let is_device = |address: u64, kinds: [c_int; 2]| {
            kinds.contains(&kind) || (kind == DEFAULT && runtime.is_known(address))
        };
        let place = |address: u64, is_device: bool| {
            if is_device {
                return Ok(CopyEnd::Device(address));
            }
            let start = std::ptr::with_exposed_provenance::<u8>(address as usize);
            // SAFETY: the caller's memory.
            unsafe { HostRange::new(start, bytes) }.map(CopyEnd::Host)
        };
        let to = place(to, is_device(to, [HOST_TO_DEVICE, DEVICE_TO_DEVICE]))?;
        let from = place(from, is_device(from, [DEVICE_TO_HOST, DEVICE_TO_DEVICE]))?;
        let transfer = Transfer { to, from, bytes: bytes as u64 };
        runtime.queue_transfer(StreamId::from_handle(stream), transfer)
    })
}

macro_rules! copies {
    ($($name:ident($to:ident: $to_type:ty, $from:ident: $from_type:ty, $($kind:ident: c_int)?
        $(= $fixed:ident)?; $($stream:ident)?);)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            $to: $to_type, $from: $from_type, bytes: usize,
            $($kind: c_int,)? $($stream: StreamHandle,)?
        ) -> c_int {
            let kind = $($kind)? $($fixed)?;
            let stream = 0 $(+ $stream)?;
            // SAFETY: forwarded.
            unsafe { copy(stringify!($name), ($to as u64, $from as u64), bytes, kind, stream) }
        }
    )*};
}

copies! {
    hipMemcpy(to: *mut c_void, from: *const c_void, kind: c_int;);
    hipMemcpyAsync(to: *mut c_void, from: *const c_void, kind: c_int; stream);
    hipMemcpyWithStream(to: *mut c_void, from: *const c_void, kind: c_int; stream);
    hipMemcpyHtoD(to: u64, from: *const c_void, = HOST_TO_DEVICE;);
    hipMemcpyHtoDAsync(to: u64, from: *const c_void, = HOST_TO_DEVICE; stream);
    hipMemcpyDtoH(to: *mut c_void, from: u64, = DEVICE_TO_HOST;);
    hipMemcpyDtoHAsync(to: *mut c_void, from: u64, = DEVICE_TO_HOST; stream);
    hipMemcpyDtoD(to: u64, from: u64, = DEVICE_TO_DEVICE;);
    hipMemcpyDtoDAsync(to: u64, from: u64, = DEVICE_TO_DEVICE; stream);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipMemcpyPeer(
    to: u64,
    _to_device: c_int,
    from: u64,
    _from_device: c_int,
    bytes: usize,
) -> c_int {
    // SAFETY: both ends are in device memory.
    unsafe { copy("hipMemcpyPeer", (to, from), bytes, DEVICE_TO_DEVICE, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipMemcpyPeerAsync(
    to: u64,
    _to_device: c_int,
    from: u64,
    _from_device: c_int,
    bytes: usize,
    stream: StreamHandle,
) -> c_int {
    // SAFETY: both ends are in device memory.
    unsafe { copy("hipMemcpyPeerAsync", (to, from), bytes, DEVICE_TO_DEVICE, stream) }
}

// ---- fills

macro_rules! fills {
    ($($name:ident($type:ty, $bytes:literal; $($stream:ident)?);)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(
            address: u64, value: $type, count: usize, $($stream: StreamHandle,)?
        ) -> c_int {
            let stream = StreamId::from_handle(0 $(+ $stream)?);
            let pattern = (i64::from(value) as u32, $bytes);
            call(stringify!($name), Work, |runtime| {
                runtime.queue_fill(stream, address, pattern, count as u64)
            })
        }
    )*};
}

fills! {
    hipMemset(c_int, 1;);
    hipMemsetAsync(c_int, 1; stream);
    hipMemsetD8(c_uchar, 1;);
    hipMemsetD8Async(c_uchar, 1; stream);
    hipMemsetD16(c_ushort, 2;);
    hipMemsetD16Async(c_ushort, 2; stream);
    hipMemsetD32(c_int, 4;);
    hipMemsetD32Async(c_int, 4; stream);
}
