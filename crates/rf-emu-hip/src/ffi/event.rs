//! Events.

use std::ffi::{c_int, c_uint};

use super::handles::{EventHandle, StreamHandle};
use super::{call, store};
use crate::runtime::StreamId;
use crate::runtime::Use::{Release, Work};

unsafe fn create(function: &'static str, event: *mut EventHandle, flags: c_uint) -> c_int {
    call(function, Work, |runtime| {
        let handle = runtime.create_event(flags);
        // SAFETY: the caller's place.
        unsafe { store(event, handle) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipEventCreate(event: *mut EventHandle) -> c_int {
    // SAFETY: forwarded.
    unsafe { create("hipEventCreate", event, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipEventCreateWithFlags(event: *mut EventHandle, flags: c_uint) -> c_int {
    // SAFETY: forwarded.
    unsafe { create("hipEventCreateWithFlags", event, flags) }
}

#[unsafe(no_mangle)]
extern "C" fn hipEventDestroy(event: EventHandle) -> c_int {
    call("hipEventDestroy", Release, |runtime| runtime.destroy_event(event))
}

#[unsafe(no_mangle)]
extern "C" fn hipEventRecord(event: EventHandle, stream: StreamHandle) -> c_int {
    call("hipEventRecord", Work, |runtime| {
        runtime.record_event(event, StreamId::from_handle(stream))
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipEventSynchronize(event: EventHandle) -> c_int {
    call("hipEventSynchronize", Work, |runtime| runtime.await_event(event))
}

#[unsafe(no_mangle)]
extern "C" fn hipEventQuery(event: EventHandle) -> c_int {
    call("hipEventQuery", Work, |runtime| runtime.await_event(event))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipEventElapsedTime(
    ms: *mut f32,
    start: EventHandle,
    end: EventHandle,
) -> c_int {
    call("hipEventElapsedTime", Work, |runtime| {
        let elapsed = runtime.elapsed_ms(start, end)?;
        // SAFETY: the caller's place.
        unsafe { store(ms, elapsed) }
    })
}
