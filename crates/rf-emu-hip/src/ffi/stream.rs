//! Streams and captures.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

use super::handles::{EventHandle, GraphHandle, StreamHandle};
use super::{call, current_device, store, store_optional};
use crate::Status;
use crate::runtime::StreamId;
use crate::runtime::Use::{Query, Release, Work};

unsafe fn create(function: &'static str, stream: *mut StreamHandle, flags: c_uint) -> c_int {
    call(function, Work, |runtime| {
        let handle = runtime.create_stream(current_device(), flags)?;
        // SAFETY: the caller's place.
        unsafe { store(stream, handle) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipStreamCreate(stream: *mut StreamHandle) -> c_int {
    // SAFETY: forwarded.
    unsafe { create("hipStreamCreate", stream, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipStreamCreateWithFlags(stream: *mut StreamHandle, flags: c_uint) -> c_int {
    // SAFETY: forwarded.
    unsafe { create("hipStreamCreateWithFlags", stream, flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipStreamCreateWithPriority(
    stream: *mut StreamHandle,
    flags: c_uint,
    _priority: c_int,
) -> c_int {
    // SAFETY: forwarded.
    unsafe { create("hipStreamCreateWithPriority", stream, flags) }
}

#[unsafe(no_mangle)]
extern "C" fn hipStreamDestroy(stream: StreamHandle) -> c_int {
    call("hipStreamDestroy", Release, |runtime| {
        runtime.destroy_stream(StreamId::from_handle(stream))
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipStreamSynchronize(stream: StreamHandle) -> c_int {
    call("hipStreamSynchronize", Work, |runtime| {
        runtime.synchronize_stream(StreamId::from_handle(stream))
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipStreamQuery(stream: StreamHandle) -> c_int {
    call("hipStreamQuery", Work, |runtime| {
        runtime.synchronize_stream(StreamId::from_handle(stream))
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipStreamWaitEvent(
    stream: StreamHandle,
    event: EventHandle,
    _flags: c_uint,
) -> c_int {
    call("hipStreamWaitEvent", Work, |runtime| {
        runtime.wait_event(StreamId::from_handle(stream), event)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipStreamGetFlags(stream: StreamHandle, flags: *mut c_uint) -> c_int {
    call("hipStreamGetFlags", Query, |runtime| {
        let value = runtime.stream_flags(StreamId::from_handle(stream))?;
        // SAFETY: the caller's place.
        unsafe { store(flags, value) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipStreamGetPriority(stream: StreamHandle, priority: *mut c_int) -> c_int {
    call("hipStreamGetPriority", Query, |runtime| {
        runtime.stream_flags(StreamId::from_handle(stream))?;
        // SAFETY: the caller's place.
        unsafe { store(priority, 0) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipStreamGetDevice(stream: StreamHandle, device: *mut c_int) -> c_int {
    call("hipStreamGetDevice", Query, |runtime| {
        let stream = StreamId::from_handle(stream);
        let ordinal = runtime.stream_device(stream, current_device())?;
        // SAFETY: the caller's place.
        unsafe { store(device, ordinal as c_int) }
    })
}

/// Host code in a stream. It runs at once, like all work; a capture cannot contain it.
#[unsafe(no_mangle)]
unsafe extern "C" fn hipLaunchHostFunc(
    stream: StreamHandle,
    function: Option<unsafe extern "C" fn(*mut c_void)>,
    argument: *mut c_void,
) -> c_int {
    let status = call("hipLaunchHostFunc", Work, |runtime| {
        match runtime.capture_status(StreamId::from_handle(stream))? {
            0 if function.is_some() => Ok(()),
            0 => Err(Status::INVALID_VALUE),
            _ => Err(Status::CAPTURE_UNSUPPORTED),
        }
    });
    if let Some(function) = function.filter(|_| status == 0) {
        // SAFETY: the caller's function, which takes this argument. No lock is held.
        unsafe { function(argument) };
    }
    status
}

#[unsafe(no_mangle)]
extern "C" fn hipStreamBeginCapture(stream: StreamHandle, _mode: c_int) -> c_int {
    call("hipStreamBeginCapture", Work, |runtime| {
        runtime.begin_capture(StreamId::from_handle(stream))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipStreamEndCapture(stream: StreamHandle, graph: *mut GraphHandle) -> c_int {
    call("hipStreamEndCapture", Work, |runtime| {
        let handle = runtime.end_capture(StreamId::from_handle(stream))?;
        // SAFETY: the caller's place.
        unsafe { store(graph, handle) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipStreamIsCapturing(stream: StreamHandle, status: *mut c_int) -> c_int {
    call("hipStreamIsCapturing", Work, |runtime| {
        let value = runtime.capture_status(StreamId::from_handle(stream))?;
        // SAFETY: the caller's place.
        unsafe { store(status, value) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipStreamGetCaptureInfo(
    stream: StreamHandle,
    status: *mut c_int,
    id: *mut c_ulonglong,
) -> c_int {
    call("hipStreamGetCaptureInfo", Work, |runtime| {
        let stream = StreamId::from_handle(stream);
        let value = runtime.capture_status(stream)?;
        let capture = runtime.capture_of(stream)?;
        // SAFETY: the caller's place.
        unsafe { store_optional(id, capture.unwrap_or(0)) };
        // SAFETY: the caller's place.
        unsafe { store(status, value) }
    })
}
