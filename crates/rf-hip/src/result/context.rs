//! Contexts: one per device and process on both platforms (CUDA's primary context).

use std::ffi::{c_int, c_uint};

use super::Api;
use crate::{
    Error, Platform,
    sys::{ContextHandle, constants},
};

/// Chooses how waiting threads wait; before [`retain`].
pub(crate) fn set_schedule(api: &Api, device: c_int, schedule: c_uint) -> Result<(), Error> {
    match api.platform {
        Platform::Amd => {
            call!(api, hip_set_device(device))?;
            tolerate_active(call!(api, hip_set_device_flags(schedule)))
        }
        Platform::Nvidia => {
            tolerate_active(call!(api, cuda_primary_context_set_flags(device, schedule)))
        }
    }
}

/// Takes hold of the device's context.
pub(crate) fn retain(api: &Api, device: c_int) -> Result<ContextHandle, Error> {
    let mut context = ContextHandle::NULL;
    if api.platform == Platform::Nvidia {
        call!(api, cuda_primary_context_retain(&raw mut context, device))?;
    }
    Ok(context)
}

/// A context that other code of the process made first keeps its way of waiting, and a library
/// without the call its default: slower or hungrier, never wrong.
fn tolerate_active(outcome: Result<(), Error>) -> Result<(), Error> {
    match outcome {
        Err(error)
            if error.status() == Some(constants::CONTEXT_ACTIVE) || error.is_unsupported() =>
        {
            tracing::debug!("the way of waiting stays as it was: {error}");
            Ok(())
        }
        outcome => outcome,
    }
}

/// Lets go of what [`retain`] took.
///
/// # Safety
///
/// Once per [`retain`], after the last object of the context is gone.
pub(crate) unsafe fn release(api: &Api, device: c_int) -> Result<(), Error> {
    match api.platform {
        Platform::Amd => Ok(()),
        Platform::Nvidia => call!(api, cuda_primary_context_release(device)),
    }
}

/// Makes the context current on the calling thread.
///
/// # Safety
///
/// `context` was retained for `device` and not released.
pub(crate) unsafe fn set_current(
    api: &Api,
    device: c_int,
    context: ContextHandle,
) -> Result<(), Error> {
    match api.platform {
        Platform::Amd => call!(api, hip_set_device(device)),
        Platform::Nvidia => call!(api, cuda_context_set_current(context)),
    }
}

/// Waits for all work on the current context.
pub(crate) fn synchronize(api: &Api) -> Result<(), Error> {
    call!(api, context_synchronize())
}

/// (free, total) bytes of the current context's device.
pub(crate) fn memory_info(api: &Api) -> Result<(u64, u64), Error> {
    let (mut free, mut total) = (0, 0);
    call!(api, memory_info(&raw mut free, &raw mut total))?;
    Ok((free as u64, total as u64))
}

/// Lets kernels of the current context use memory of the peer; having done so before is fine.
///
/// # Safety
///
/// `peer_context` was retained for `peer` and not released.
pub(crate) unsafe fn enable_peer_access(
    api: &Api,
    peer: c_int,
    peer_context: ContextHandle,
) -> Result<(), Error> {
    let outcome = match api.platform {
        Platform::Amd => call!(api, hip_enable_peer_access(peer, 0)),
        Platform::Nvidia => call!(api, cuda_enable_peer_access(peer_context, 0)),
    };
    match outcome {
        Err(error) if error.status() == Some(constants::PEER_ACCESS_ALREADY_ENABLED) => Ok(()),
        outcome => outcome,
    }
}
