//! Events: markers in a stream.

use super::Api;
use crate::Error;
use crate::sys::{EventHandle, StreamHandle, constants};

pub(crate) fn create(api: &Api, timing: bool, blocking: bool) -> Result<EventHandle, Error> {
    let mut event = EventHandle::NULL;
    let timing = if timing { 0 } else { constants::EVENT_DISABLE_TIMING };
    let blocking = if blocking { constants::EVENT_BLOCKING_SYNC } else { 0 };
    call!(api, event_create(&raw mut event, timing | blocking))?;
    Ok(event)
}

/// # Safety
///
/// See [`super`]; the handle is not used again.
pub(crate) unsafe fn destroy(api: &Api, event: EventHandle) -> Result<(), Error> {
    call!(api, event_destroy(event))
}

/// # Safety
///
/// See [`super`].
pub(crate) unsafe fn record(
    api: &Api,
    event: EventHandle,
    stream: StreamHandle,
) -> Result<(), Error> {
    call!(api, event_record(event, stream))
}

/// # Safety
///
/// See [`super`].
pub(crate) unsafe fn synchronize(api: &Api, event: EventHandle) -> Result<(), Error> {
    call!(api, event_synchronize(event))
}

/// True if the last recording is reached.
///
/// # Safety
///
/// See [`super`].
pub(crate) unsafe fn is_reached(api: &Api, event: EventHandle) -> Result<bool, Error> {
    match call!(api, event_query(event)) {
        Err(error) if error.status() == Some(constants::NOT_READY) => Ok(false),
        outcome => outcome.map(|()| true),
    }
}

/// # Safety
///
/// See [`super`].
pub(crate) unsafe fn elapsed_ms(
    api: &Api,
    start: EventHandle,
    end: EventHandle,
) -> Result<f32, Error> {
    let mut ms = 0.0;
    call!(api, event_elapsed_ms(&raw mut ms, start, end))?;
    Ok(ms)
}
