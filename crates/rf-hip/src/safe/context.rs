//! Contexts: devices in use.

use std::ffi::c_int;
use std::sync::Arc;

use super::report_drop;
use crate::result::{Api, context as raw, memory};
use crate::sys::{ContextHandle, constants};
use crate::{DeviceInfo, Error};

/// How a thread waits for the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SyncMode {
    /// The thread sleeps until the device raises an interrupt; adds some microseconds of latency.
    #[default]
    Sleep,
    /// The thread polls: lowest latency, but one CPU core is busy.
    Spin,
}

/// A device in use. Cloning is cheap, and every object created in the context keeps it alive.
///
/// Any thread may use a context: every call makes it current on the calling thread.
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

    /// The properties of the device.
    pub fn info(&self) -> &DeviceInfo {
        &self.inner.info
    }

    /// How threads wait in this context.
    pub fn sync_mode(&self) -> SyncMode {
        self.inner.sync
    }

    /// Device memory in bytes: (free, total).
    ///
    /// # Errors
    ///
    /// An error of the runtime call.
    pub fn memory_info(&self) -> Result<(u64, u64), Error> {
        raw::memory_info(self.enter()?)
    }

    /// Waits until all queued work of all streams is done.
    ///
    /// # Errors
    ///
    /// An error of the runtime call, or of any of the work.
    pub fn synchronize(&self) -> Result<(), Error> {
        raw::synchronize(self.enter()?)
    }

    /// Allows kernels of this context to access the memory of `other`. Repeated calls succeed.
    ///
    /// # Errors
    ///
    /// An error of the runtime call, for example if no path connects the devices;
    /// [`Error::MissingSymbol`] if the runtime lacks the function.
    pub fn enable_peer_access(&self, other: &Self) -> Result<(), Error> {
        if self.same_device(other) {
            return Ok(());
        }
        if !self.shares_runtime(other) {
            return Err(Error::ContextMismatch { operation: "peer access" });
        }
        let api = self.enter()?;
        // SAFETY: `other` is alive, so its context is retained.
        unsafe { raw::enable_peer_access(api, other.inner.device, other.inner.handle) }
    }

    /// Sets how many freed bytes the device's memory pool retains for later calls of
    /// [`DeviceBuffer::on_stream`](crate::DeviceBuffer::on_stream) when a thread waits for the
    /// device. Initially 0; `u64::MAX` retains everything.
    ///
    /// # Errors
    ///
    /// [`Error::is_unsupported`] if the runtime has no pools, or an error of the runtime calls.
    pub fn keep_pool_bytes(&self, bytes: u64) -> Result<(), Error> {
        let api = self.enter()?;
        let pool = memory::default_pool(api, self.inner.device)?;
        // SAFETY: the device's default pool, which lives as long as the device.
        unsafe { memory::pool_keep(api, pool, bytes) }
    }

    /// Releases unused memory of the device's pool until `keep` bytes remain.
    ///
    /// # Errors
    ///
    /// The errors of [`Context::keep_pool_bytes`].
    pub fn trim_pool(&self, keep: usize) -> Result<(), Error> {
        let api = self.enter()?;
        let pool = memory::default_pool(api, self.inner.device)?;
        // SAFETY: as above.
        unsafe { memory::pool_trim(api, pool, keep) }
    }

    /// Returns true if the objects of both contexts belong to one runtime library, also if it was
    /// loaded twice. A stream can then wait for the events of the other context, and kernels of
    /// both access the same [`MappedBuffer`](crate::MappedBuffer)s.
    pub fn shares_runtime(&self, other: &Self) -> bool {
        self.api().is_same_library(other.api())
    }

    /// Makes this context current on the calling thread and returns the runtime functions.
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

    /// Returns true if objects of both contexts can be used in one call.
    pub(crate) fn same_device(&self, other: &Self) -> bool {
        self.shares_runtime(other) && self.inner.device == other.inner.device
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
