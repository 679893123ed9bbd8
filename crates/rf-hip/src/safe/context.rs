//! A device in use.

use std::{ffi::c_int, ptr, sync::Arc};

use super::report_drop;
use crate::{
    DeviceInfo, Error,
    result::{Api, context as raw, memory},
    sys::{ContextHandle, constants},
};

/// How a thread waits for the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SyncMode {
    /// The thread sleeps until the device interrupts; costs some microseconds of latency.
    #[default]
    Sleep,
    /// The thread polls: lowest latency, one CPU core kept busy.
    Spin,
}

/// A device in use; cloning is cheap, and all objects made in it keep it alive.
///
/// Any thread may use it: every call makes it the thread's current one first.
#[derive(Debug, Clone)]
pub struct Context {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    api: Arc<Api>,
    device: c_int,
    handle: ContextHandle,
    info: Arc<DeviceInfo>,
    sync: SyncMode,
}

impl Context {
    pub(crate) fn retain(
        api: Arc<Api>,
        device: c_int,
        info: Arc<DeviceInfo>,
        sync: SyncMode,
    ) -> Result<Self, Error> {
        let schedule = match sync {
            SyncMode::Sleep => constants::SCHEDULE_BLOCKING_SYNC,
            SyncMode::Spin => constants::SCHEDULE_SPIN,
        };
        raw::set_schedule(&api, device, schedule)?;
        let handle = raw::retain(&api, device)?;
        let context = Self { inner: Arc::new(Inner { api, device, handle, info, sync }) };
        context.enter()?;
        Ok(context)
    }

    /// What the device is.
    pub fn info(&self) -> &DeviceInfo {
        &self.inner.info
    }

    /// How threads wait here.
    pub fn sync_mode(&self) -> SyncMode {
        self.inner.sync
    }

    /// Device memory in bytes: (free, total).
    ///
    /// # Errors
    ///
    /// What the runtime's call returns.
    pub fn memory_info(&self) -> Result<(u64, u64), Error> {
        raw::memory_info(self.enter()?)
    }

    /// Waits until the device has done everything queued so far, on all streams.
    ///
    /// # Errors
    ///
    /// What the runtime's call returns, and what any of the work failed with.
    pub fn synchronize(&self) -> Result<(), Error> {
        raw::synchronize(self.enter()?)
    }

    /// Lets kernels of this context use the memory of `other`. Repeating it is fine.
    ///
    /// # Errors
    ///
    /// What the runtime's call returns, such as no path between the two devices;
    /// [`Error::MissingSymbol`] where it has no such call.
    pub fn enable_peer_access(&self, other: &Self) -> Result<(), Error> {
        if self.same_device(other) {
            return Ok(());
        }
        if !ptr::eq(self.api(), other.api()) {
            return Err(Error::ContextMismatch { operation: "peer access" });
        }
        let api = self.enter()?;
        // SAFETY: `other` is alive, so its context is retained.
        unsafe { raw::enable_peer_access(api, other.inner.device, other.inner.handle) }
    }

    /// How many freed bytes the device's pool holds on to for later
    /// [`DeviceBuffer::on_stream`](crate::DeviceBuffer::on_stream), instead of giving them back
    /// whenever a thread waits for the device; 0 at first, `u64::MAX` for all.
    ///
    /// # Errors
    ///
    /// [`Error::is_unsupported`] where the runtime has no pools, or what its calls return.
    pub fn keep_pool_bytes(&self, bytes: u64) -> Result<(), Error> {
        let api = self.enter()?;
        let pool = memory::default_pool(api, self.inner.device)?;
        // SAFETY: the device's own pool, alive as long as the device.
        unsafe { memory::pool_keep(api, pool, bytes) }
    }

    /// Gives memory of the device's pool back, down to `keep` bytes.
    ///
    /// # Errors
    ///
    /// As [`Context::keep_pool_bytes`].
    pub fn trim_pool(&self, keep: usize) -> Result<(), Error> {
        let api = self.enter()?;
        let pool = memory::default_pool(api, self.inner.device)?;
        // SAFETY: as above.
        unsafe { memory::pool_trim(api, pool, keep) }
    }

    /// Makes this context current on the calling thread and gives the functions to call.
    pub(crate) fn enter(&self) -> Result<&Api, Error> {
        let inner = &*self.inner;
        // SAFETY: retained until `inner` is dropped.
        unsafe { raw::set_current(&inner.api, inner.device, inner.handle) }?;
        Ok(&inner.api)
    }

    pub(crate) fn api(&self) -> &Api {
        &self.inner.api
    }

    pub(crate) fn device(&self) -> c_int {
        self.inner.device
    }

    pub(crate) fn handle(&self) -> ContextHandle {
        self.inner.handle
    }

    /// Whether objects of the two may meet in one call.
    pub(crate) fn same_device(&self, other: &Self) -> bool {
        ptr::eq(self.api(), other.api()) && self.inner.device == other.inner.device
    }

    pub(crate) fn expect_same(&self, other: &Self, operation: &'static str) -> Result<(), Error> {
        if self.same_device(other) { Ok(()) } else { Err(Error::ContextMismatch { operation }) }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: retained once, and every object of the context holds this.
        report_drop("a context", unsafe { raw::release(&self.api, self.device) });
    }
}
