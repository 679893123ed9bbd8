//! Start, versions, statuses, devices.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::Arc;
use std::{ptr, slice};

use super::{
    CURRENT_DEVICE, LAST_STATUS, call, current_device, load_text, store, store_optional, store_text,
};
use crate::runtime::Use::{Query, Work};
use crate::{Status, status};

/// HIP 6.3, packed as the header does.
const VERSION: c_int = 60_342_134;

#[unsafe(no_mangle)]
extern "C" fn hipInit(flags: c_uint) -> c_int {
    call("hipInit", Query, |_| if flags == 0 { Ok(()) } else { Err(Status::INVALID_VALUE) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipRuntimeGetVersion(version: *mut c_int) -> c_int {
    // SAFETY: the caller's place.
    call("hipRuntimeGetVersion", Query, |_| unsafe { store(version, VERSION) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipDriverGetVersion(version: *mut c_int) -> c_int {
    // SAFETY: the caller's place.
    call("hipDriverGetVersion", Query, |_| unsafe { store(version, VERSION) })
}

#[unsafe(no_mangle)]
extern "C" fn hipGetErrorName(status: c_int) -> *const c_char {
    status::name(status).map_or(c"hipErrorUnknown".as_ptr(), CStr::as_ptr)
}

#[unsafe(no_mangle)]
extern "C" fn hipGetErrorString(status: c_int) -> *const c_char {
    status::text(status).map_or(c"unknown error".as_ptr(), CStr::as_ptr)
}

#[unsafe(no_mangle)]
extern "C" fn hipGetLastError() -> c_int {
    LAST_STATUS.replace(0)
}

#[unsafe(no_mangle)]
extern "C" fn hipPeekAtLastError() -> c_int {
    LAST_STATUS.get()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipGetDeviceCount(count: *mut c_int) -> c_int {
    call("hipGetDeviceCount", Query, |runtime| {
        let devices = runtime.devices().len();
        // SAFETY: the caller's place.
        unsafe { store(count, devices as c_int) }?;
        if devices > 0 { Ok(()) } else { Err(Status::NO_DEVICE) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipGetDevice(device: *mut c_int) -> c_int {
    // SAFETY: the caller's place.
    call("hipGetDevice", Query, |_| unsafe { store(device, CURRENT_DEVICE.get()) })
}

#[unsafe(no_mangle)]
extern "C" fn hipSetDevice(device: c_int) -> c_int {
    call("hipSetDevice", Query, |runtime| {
        runtime.device(device)?;
        CURRENT_DEVICE.set(device);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipDeviceGet(device: *mut c_int, ordinal: c_int) -> c_int {
    call("hipDeviceGet", Query, |runtime| {
        runtime.device(ordinal)?;
        // SAFETY: the caller's place.
        unsafe { store(device, ordinal) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipDeviceGetName(name: *mut c_char, len: c_int, device: c_int) -> c_int {
    call("hipDeviceGetName", Query, |runtime| {
        let text = runtime.device(device)?.properties.shown_name();
        // SAFETY: the caller's buffer of `len` bytes.
        unsafe { store_text(name, len, &text) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipDeviceGetPCIBusId(text: *mut c_char, len: c_int, device: c_int) -> c_int {
    call("hipDeviceGetPCIBusId", Query, |runtime| {
        let id = runtime.device(device)?.properties.pci_bus_id();
        // SAFETY: the caller's buffer of `len` bytes.
        unsafe { store_text(text, len, &id) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipDeviceGetByPCIBusId(device: *mut c_int, text: *const c_char) -> c_int {
    call("hipDeviceGetByPCIBusId", Query, |runtime| {
        // SAFETY: the caller's text.
        let text = unsafe { load_text(text) }?;
        let mut devices = runtime.devices().iter();
        let ordinal = devices.position(|device| device.properties.pci_bus_id() == text);
        let ordinal = ordinal.ok_or(Status::INVALID_DEVICE)?;
        // SAFETY: the caller's place.
        unsafe { store(device, ordinal as c_int) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipDeviceTotalMem(bytes: *mut usize, device: c_int) -> c_int {
    call("hipDeviceTotalMem", Query, |runtime| {
        let total = runtime.device(device)?.properties.memory_bytes;
        // SAFETY: the caller's place.
        unsafe { store(bytes, total as usize) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipDeviceComputeCapability(
    major: *mut c_int,
    minor: *mut c_int,
    device: c_int,
) -> c_int {
    call("hipDeviceComputeCapability", Query, |runtime| {
        let version = runtime.device(device)?.properties.version();
        // SAFETY: the caller's place.
        unsafe { store(major, version.0) }?;
        // SAFETY: the caller's place.
        unsafe { store(minor, version.1) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipDeviceGetAttribute(
    value: *mut c_int,
    attribute: c_int,
    device: c_int,
) -> c_int {
    call("hipDeviceGetAttribute", Query, |runtime| {
        let number = runtime.device(device)?.properties.attribute(attribute);
        // SAFETY: the caller's place.
        unsafe { store(value, number.ok_or(Status::INVALID_VALUE)?) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipGetDevicePropertiesR0600(properties: *mut c_void, device: c_int) -> c_int {
    call("hipGetDevicePropertiesR0600", Query, |runtime| {
        let bytes = runtime.device(device)?.properties.bytes_r0600();
        // SAFETY: the caller's structure has the size of the record.
        unsafe { store_bytes(properties, &bytes) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipGetDeviceProperties(properties: *mut c_void, device: c_int) -> c_int {
    call("hipGetDeviceProperties", Query, |runtime| {
        let bytes = runtime.device(device)?.properties.bytes_r0000();
        // SAFETY: the caller's structure has the size of the record.
        unsafe { store_bytes(properties, &bytes) }
    })
}

/// # Safety
///
/// `place` is null or valid for writes of as many bytes.
unsafe fn store_bytes(place: *mut c_void, bytes: &[u8]) -> Result<(), Status> {
    if place.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    // SAFETY: not null, so valid for these bytes.
    unsafe { slice::from_raw_parts_mut(place.cast::<u8>(), bytes.len()) }.copy_from_slice(bytes);
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int) -> c_int {
    call("hipDeviceCanAccessPeer", Query, |runtime| {
        runtime.device(device)?;
        runtime.device(peer)?;
        // SAFETY: the caller's place.
        unsafe { store(can, c_int::from(device != peer)) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipDeviceEnablePeerAccess(peer: c_int, _flags: c_uint) -> c_int {
    call("hipDeviceEnablePeerAccess", Work, |runtime| {
        let other = &runtime.device(peer)?.memory;
        let own = &runtime.devices()[current_device()].memory;
        if Arc::ptr_eq(own, other) {
            return Err(Status::INVALID_DEVICE);
        }
        if own.add_peer(other) { Ok(()) } else { Err(Status::PEER_ACCESS_ALREADY_ENABLED) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipDeviceDisablePeerAccess(peer: c_int) -> c_int {
    call("hipDeviceDisablePeerAccess", Work, |runtime| {
        let other = &runtime.device(peer)?.memory;
        let own = &runtime.devices()[current_device()].memory;
        if own.remove_peer(other) { Ok(()) } else { Err(Status::PEER_ACCESS_NOT_ENABLED) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipSetDeviceFlags(_flags: c_uint) -> c_int {
    call("hipSetDeviceFlags", Query, |_| Ok(()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipGetDeviceFlags(flags: *mut c_uint) -> c_int {
    // SAFETY: the caller's place.
    call("hipGetDeviceFlags", Query, |_| unsafe { store(flags, 0) })
}

#[unsafe(no_mangle)]
extern "C" fn hipDeviceSynchronize() -> c_int {
    call("hipDeviceSynchronize", Work, |runtime| runtime.synchronize_device(current_device()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipDeviceGetStreamPriorityRange(
    least: *mut c_int,
    greatest: *mut c_int,
) -> c_int {
    call("hipDeviceGetStreamPriorityRange", Query, |_| {
        for place in [least, greatest] {
            // SAFETY: the caller's place.
            unsafe { store_optional(place, 0) };
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipMemGetInfo(free: *mut usize, total: *mut usize) -> c_int {
    call("hipMemGetInfo", Work, |runtime| {
        let (free_bytes, total_bytes) = runtime.memory_info(current_device())?;
        // SAFETY: the caller's place.
        unsafe { store_optional(free, free_bytes as usize) };
        // SAFETY: the caller's place.
        unsafe { store_optional(total, total_bytes as usize) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipProfilerStart() -> c_int {
    call("hipProfilerStart", Query, |_| Ok(()))
}

#[unsafe(no_mangle)]
extern "C" fn hipProfilerStop() -> c_int {
    call("hipProfilerStop", Query, |_| Ok(()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipDeviceGetDefaultMemPool(pool: *mut *mut c_void, device: c_int) -> c_int {
    call("hipDeviceGetDefaultMemPool", Work, |runtime| {
        runtime.device(device)?;
        // The pool has no state; its handle is the device's number and not null.
        // SAFETY: the caller's place.
        unsafe { store(pool, ptr::without_provenance_mut(device as usize + 1)) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipMemPoolSetAttribute(
    _pool: *mut c_void,
    _attribute: c_int,
    _value: *mut c_void,
) -> c_int {
    call("hipMemPoolSetAttribute", Work, |_| Ok(()))
}

#[unsafe(no_mangle)]
extern "C" fn hipMemPoolTrimTo(_pool: *mut c_void, _keep_bytes: usize) -> c_int {
    call("hipMemPoolTrimTo", Work, |_| Ok(()))
}
