//! Queues of work, and launches.

use std::{
    any::Any,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use super::report_drop;
use crate::{
    Context, Error, Event, Function,
    result::{module, stream as raw},
    sys::StreamHandle,
};

/// Something a captured graph uses, kept from being freed.
pub(crate) type Kept = Arc<dyn Any + Send + Sync>;

/// A queue whose work runs in order; two streams run side by side. Cloning is cheap and gives the
/// same queue.
///
/// Streams do not wait for the legacy default stream. Dropping the last clone does not wait for the
/// work either: what the work uses must live until it is done.
#[derive(Debug, Clone)]
pub struct Stream {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    context: Context,
    handle: StreamHandle,
    capturing: AtomicBool,
    kept: Mutex<Vec<Kept>>,
}

/// The geometry of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchConfig {
    /// Workgroups along x, y, z; each at least 1.
    pub grid: [u32; 3],
    /// Threads of a workgroup along x, y, z; each at least 1.
    pub block: [u32; 3],
    /// LDS beyond what the function declares.
    pub lds_bytes: u32,
}

impl LaunchConfig {
    /// One row of workgroups of `block` threads that covers `threads`; at least one workgroup, at
    /// most what a grid can have.
    pub fn linear(threads: usize, block: u32) -> Self {
        let groups = threads.div_ceil(block.max(1) as usize).max(1);
        let groups = u32::try_from(groups).unwrap_or(u32::MAX);
        Self { grid: [groups, 1, 1], block: [block.max(1), 1, 1], lds_bytes: 0 }
    }
}

impl Stream {
    /// A stream of default priority.
    ///
    /// # Errors
    ///
    /// What the runtime's call returns.
    pub fn new(context: &Context) -> Result<Self, Error> {
        Self::with_priority(context, 0)
    }

    /// A stream whose work goes before that of streams with a greater number; negative numbers are
    /// above default. The runtime clamps to what the device has.
    ///
    /// # Errors
    ///
    /// What the runtime's call returns.
    pub fn with_priority(context: &Context, priority: i32) -> Result<Self, Error> {
        let handle = raw::create(context.enter()?, priority)?;
        let (capturing, kept) = (AtomicBool::new(false), Mutex::default());
        Ok(Self { inner: Arc::new(Inner { context: context.clone(), handle, capturing, kept }) })
    }

    /// Where the stream runs.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Waits until everything queued is done, as the context's [`SyncMode`](crate::SyncMode) says.
    ///
    /// # Errors
    ///
    /// What the runtime's call returns, and what any of the work failed with.
    pub fn synchronize(&self) -> Result<(), Error> {
        let api = self.context().enter()?;
        // SAFETY: the stream is alive.
        unsafe { raw::synchronize(api, self.handle()) }
    }

    /// Whether everything queued is done.
    ///
    /// # Errors
    ///
    /// As [`Stream::synchronize`].
    pub fn is_idle(&self) -> Result<bool, Error> {
        let api = self.context().enter()?;
        // SAFETY: the stream is alive.
        unsafe { raw::is_idle(api, self.handle()) }
    }

    /// Lets what is queued from now on wait for the event's mark; the calling thread does not wait.
    /// The event may be of another device.
    ///
    /// # Errors
    ///
    /// [`Error::ContextMismatch`] for another runtime's event, or what the runtime's call returns.
    pub fn wait(&self, event: &Event) -> Result<(), Error> {
        if !std::ptr::eq(self.context().api(), event.context().api()) {
            return Err(Error::ContextMismatch { operation: "waiting for an event" });
        }
        let api = self.context().enter()?;
        // SAFETY: both objects are alive.
        unsafe { raw::wait(api, self.handle(), event.handle()) }
    }

    /// Queues a kernel whose only argument is a structure, passed by value.
    ///
    /// # Errors
    ///
    /// [`Error::ContextMismatch`], or what the runtime's call returns: a geometry that the device or
    /// the function does not admit, or the failure of earlier work.
    ///
    /// # Safety
    ///
    /// - `P` has the layout of the function's parameter: `repr(C)`, the same fields.
    /// - Every address in `params` is valid for what the function does with it, until the kernel is
    ///   done; where the stream captures, until the last launch of the graph is done. (The function's
    ///   module is kept alive by the graph.)
    /// - Until then the host neither writes what the kernel reads nor touches what it writes.
    pub unsafe fn launch<P: Copy>(
        &self,
        function: &Function,
        config: LaunchConfig,
        params: &P,
    ) -> Result<(), Error> {
        self.context().expect_same(function.context(), "launching")?;
        if self.is_recording() {
            self.keep(function.module());
        }
        let api = self.context().enter()?;
        let params = std::ptr::from_ref(params).cast();
        // SAFETY: both objects are alive and of this context; the rest is the caller's promise.
        unsafe { module::launch(api, function.handle(), &config, self.handle(), params) }
    }

    pub(crate) fn handle(&self) -> StreamHandle {
        self.inner.handle
    }

    /// Whether [`Stream::begin_capture`] was called on this stream and not ended.
    pub(crate) fn is_recording(&self) -> bool {
        self.inner.capturing.load(Ordering::Acquire)
    }

    /// Before queueing something that a graph can repeat: where the stream captures, the graph keeps
    /// what is used. A stream that only joined another's capture cannot hand anything over to it.
    pub(crate) fn admit(&self, used: &[Kept]) -> Result<(), Error> {
        if self.is_recording() {
            for object in used {
                self.keep(Arc::clone(object));
            }
            return Ok(());
        }
        self.refuse_capture("work on a stream that joined the capture of another one")
    }

    /// Before queueing something that no graph may repeat.
    pub(crate) fn refuse_capture(&self, operation: &'static str) -> Result<(), Error> {
        let api = self.context().enter()?;
        // SAFETY: the stream is alive.
        let capturing = self.is_recording() || unsafe { raw::is_capturing(api, self.handle()) }?;
        if capturing { Err(Error::Capturing { operation }) } else { Ok(()) }
    }

    /// Notes that a capture begins; `false` where one runs already.
    pub(super) fn start_recording(&self) -> bool {
        !self.inner.capturing.swap(true, Ordering::AcqRel)
    }

    /// Notes that the capture is over and hands out what its graph has to keep.
    pub(super) fn stop_recording(&self) -> Vec<Kept> {
        let mut kept = self.inner.kept.lock().unwrap_or_else(PoisonError::into_inner);
        self.inner.capturing.store(false, Ordering::Release);
        std::mem::take(&mut *kept)
    }

    /// Gives an object to the graph being captured.
    pub(crate) fn keep(&self, object: Kept) {
        let mut kept = self.inner.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if !kept.last().is_some_and(|last| Arc::ptr_eq(last, &object)) {
            kept.push(object);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let outcome = self.context.enter().and_then(|api| {
            // SAFETY: made by this object, used by no other; queued work goes on without it.
            unsafe { raw::destroy(api, self.handle) }
        });
        report_drop("a stream", outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_grid_covers_its_threads() {
        assert_eq!(LaunchConfig::linear(1000, 256).grid, [4, 1, 1]);
        assert_eq!(LaunchConfig::linear(1024, 256).grid, [4, 1, 1]);
        assert_eq!(LaunchConfig::linear(0, 256).grid, [1, 1, 1]);
        assert_eq!(LaunchConfig::linear(5, 0).block, [1, 1, 1]);
    }
}
