//! Devices.

use std::ffi::c_int;
use std::sync::Arc;

use crate::result::{self, Api, device as raw};
use crate::{Context, DeviceInfo, Error, SyncMode};

/// A GPU that is not necessarily in use. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct Device {
    api: Arc<Api>,
    handle: c_int,
    info: Arc<DeviceInfo>,
}

impl Device {
    pub(crate) fn open(api: Arc<Api>, ordinal: usize) -> Result<Self, Error> {
        let handle = raw::handle(&api, ordinal as c_int)?;
        let info = Arc::new(DeviceInfo::read(&api, ordinal, handle)?);
        Ok(Self { api, handle, info })
    }

    /// The properties of the device.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Device memory in bytes: (free, total). The first call may take a second on NVIDIA, because
    /// the driver initialises the device.
    ///
    /// # Errors
    ///
    /// An error of the runtime calls.
    pub fn memory_info(&self) -> Result<(u64, u64), Error> {
        let context = result::context::retain(&self.api, self.handle)?;
        // SAFETY: retained above, released below.
        let current = unsafe { result::context::set_current(&self.api, self.handle, context) };
        let info = current.and_then(|()| result::context::memory_info(&self.api));
        // SAFETY: released once, and no object was created in it.
        unsafe { result::context::release(&self.api, self.handle) }?;
        info
    }

    /// A context on the device, with [`SyncMode::Sleep`].
    ///
    /// # Errors
    ///
    /// An error of the runtime calls.
    pub fn context(&self) -> Result<Context, Error> {
        self.context_with(SyncMode::Sleep)
    }

    /// A context on the device. A process has one context per device: use one mode for all calls,
    /// because the effect of a second mode depends on the runtime.
    ///
    /// # Errors
    ///
    /// An error of the runtime calls.
    pub fn context_with(&self, sync: SyncMode) -> Result<Context, Error> {
        Context::retain(Arc::clone(&self.api), self.handle, Arc::clone(&self.info), sync)
    }

    /// Returns true if kernels of this device can access the memory of `other` after
    /// [`Context::enable_peer_access`].
    ///
    /// # Errors
    ///
    /// An error of the runtime call; [`Error::MissingSymbol`] if the runtime lacks the function.
    pub fn can_access_peer(&self, other: &Self) -> Result<bool, Error> {
        if !Arc::ptr_eq(&self.api, &other.api) {
            return Ok(false);
        }
        raw::can_access_peer(&self.api, self.handle, other.handle)
    }
}
