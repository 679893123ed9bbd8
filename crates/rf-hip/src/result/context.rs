//! Contexts: one per device and process on both platforms (CUDA's primary context).

use std::ffi::{c_int, c_uint};

use super::Api;
use crate::sys::{ContextHandle, constants};
use crate::{Error, Platform};

/// Sets how threads wait; precedes [`retain`].
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

/// Retains the context of the device.
pub(crate) fn retain(api: &Api, device: c_int) -> Result<ContextHandle, Error> {
    let mut context = ContextHandle::NULL;
    if api.platform == Platform::Nvidia {
        call!(api, cuda_primary_context_retain(&raw mut context, device))?;
    }
    Ok(context)
}

/// Ignores failures to set the wait mode: a context that other code of the process created keeps
/// its mode, and a library without the function its default. Only latency and CPU time depend on
/// it.
fn tolerate_active(outcome: Result<(), Error>) -> Result<(), Error> {
    match outcome {
        Err(error)
            if error.status() == Some(constants::CONTEXT_ACTIVE) || error.is_unsupported() =>
        {
            tracing::debug!("the wait mode is unchanged: {error}");
            Ok(())
        }
        outcome => outcome,
    }
}

/// Releases a context from [`retain`].
///
/// # Safety
///
/// Called once per [`retain`], after the last object of the context is destroyed.
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

/// Waits for all work of the current context.
pub(crate) fn synchronize(api: &Api) -> Result<(), Error> {
    call!(api, context_synchronize())
}

/// Memory of the current context's device in bytes: (free, total).
pub(crate) fn memory_info(api: &Api) -> Result<(u64, u64), Error> {
    let (mut free, mut total) = (0, 0);
    call!(api, memory_info(&raw mut free, &raw mut total))?;
    Ok((free as u64, total as u64))
}

/// Allows kernels of the current context to access memory of the peer. Repeated calls succeed.
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
