//! Streams: queues of work that runs in order.

use std::ffi::c_int;

use super::Api;
use crate::Error;
use crate::sys::{EventHandle, StreamHandle, constants};

/// Creates a stream that does not synchronise with the legacy default stream.
pub(crate) fn create(api: &Api, priority: c_int) -> Result<StreamHandle, Error> {
    let mut stream = StreamHandle::NULL;
    call!(api, stream_create(&raw mut stream, constants::STREAM_NON_BLOCKING, priority))?;
    Ok(stream)
}

/// # Safety
///
/// See [`super`]; the handle is not used again. Queued work still completes.
pub(crate) unsafe fn destroy(api: &Api, stream: StreamHandle) -> Result<(), Error> {
    call!(api, stream_destroy(stream))
}

/// # Safety
///
/// See [`super`].
pub(crate) unsafe fn synchronize(api: &Api, stream: StreamHandle) -> Result<(), Error> {
    call!(api, stream_synchronize(stream))
}

/// True if all queued work is done.
///
/// # Safety
///
/// See [`super`].
pub(crate) unsafe fn is_idle(api: &Api, stream: StreamHandle) -> Result<bool, Error> {
    match call!(api, stream_query(stream)) {
        Err(error) if error.status() == Some(constants::NOT_READY) => Ok(false),
        outcome => outcome.map(|()| true),
    }
}

/// # Safety
///
/// See [`super`].
pub(crate) unsafe fn wait(
    api: &Api,
    stream: StreamHandle,
    event: EventHandle,
) -> Result<(), Error> {
    call!(api, stream_wait_event(stream, event, 0))
}

/// Whether the stream captures, validly or not; `false` if the library has no captures.
///
/// # Safety
///
/// See [`super`].
pub(crate) unsafe fn is_capturing(api: &Api, stream: StreamHandle) -> Result<bool, Error> {
    if api.functions.capture_status.pointer.is_none() {
        return Ok(false);
    }
    let mut status = constants::CAPTURE_STATUS_NONE;
    call!(api, capture_status(stream, &raw mut status))?;
    Ok(status != constants::CAPTURE_STATUS_NONE)
}
