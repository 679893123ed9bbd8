//! Streams: queues of work, and launches.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::{Kept, report_drop};
use crate::result::{event as raw_event, module, stream as raw};
use crate::sys::StreamHandle;
use crate::{Context, Error, Event, Function, LaunchConfig};

/// A queue whose work runs in order; different streams run concurrently. Cloning is cheap and
/// refers to the same queue.
///
/// Streams do not synchronise with the legacy default stream. Dropping the last clone does not wait
/// for the queued work, so the objects that the work uses must live until it is done.
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

impl Stream {
    /// Creates a stream of default priority.
    ///
    /// # Errors
    ///
    /// An error of the runtime call.
    pub fn new(context: &Context) -> Result<Self, Error> {
        Self::with_priority(context, 0)
    }

    /// Creates a stream with a priority. Lower numbers have precedence; the default is 0. The
    /// runtime clamps the number to the range of the device.
    ///
    /// # Errors
    ///
    /// An error of the runtime call.
    pub fn with_priority(context: &Context, priority: i32) -> Result<Self, Error> {
        let handle = raw::create(context.enter()?, priority)?;
        let (capturing, kept) = (AtomicBool::new(false), Mutex::default());
        Ok(Self { inner: Arc::new(Inner { context: context.clone(), handle, capturing, kept }) })
    }

    /// The context of the stream.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Waits until all queued work is done, in the context's [`SyncMode`](crate::SyncMode).
    ///
    /// # Errors
    ///
    /// An error of the runtime call, or of any of the work.
    pub fn synchronize(&self) -> Result<(), Error> {
        let api = self.context().enter()?;
        // SAFETY: the stream is alive.
        unsafe { raw::synchronize(api, self.handle()) }
    }

    /// Returns true if all queued work is done.
    ///
    /// # Errors
    ///
    /// The errors of [`Stream::synchronize`].
    pub fn is_idle(&self) -> Result<bool, Error> {
        let api = self.context().enter()?;
        // SAFETY: the stream is alive.
        unsafe { raw::is_idle(api, self.handle()) }
    }

    /// Records the event after all work queued so far. Replaces an earlier recording.
    ///
    /// # Errors
    ///
    /// [`Error::ContextMismatch`], or an error of the runtime call.
    pub fn record(&self, event: &Event) -> Result<(), Error> {
        self.context().expect_same(event.context(), "recording an event")?;
        let api = self.context().enter()?;
        // SAFETY: both objects are alive and of this context.
        unsafe { raw_event::record(api, event.handle(), self.handle()) }
    }

    /// Makes work queued after this call wait for the event. The calling thread does not wait. The
    /// event may belong to another device.
    ///
    /// # Errors
    ///
    /// [`Error::ContextMismatch`] for an event of another runtime, or an error of the runtime call.
    pub fn wait(&self, event: &Event) -> Result<(), Error> {
        if !self.context().shares_runtime(event.context()) {
            return Err(Error::ContextMismatch { operation: "waiting for an event" });
        }
        let api = self.context().enter()?;
        // SAFETY: both objects are alive.
        unsafe { raw::wait(api, self.handle(), event.handle()) }
    }

    /// Queues a kernel whose only parameter is a structure, passed by value.
    ///
    /// ```
    /// use rf_hip::{DeviceBuffer, Error, LaunchConfig, Module, Stream};
    ///
    /// /// In C: `struct Params { float *values; unsigned len; float factor; };`
    /// #[repr(C)]
    /// #[derive(Clone, Copy)]
    /// struct Params { values: u64, len: u32, factor: f32 }
    ///
    /// fn double(stream: &Stream, code: &[u8], values: &DeviceBuffer<f32>) -> Result<(), Error> {
    ///     let function = Module::load(stream.context(), code)?.function("scale")?;
    ///     let (address, len) = (values.address(), values.len() as u32);
    ///     let params = Params { values: address, len, factor: 2.0 };
    ///     // SAFETY: `Params` is the kernel's parameter. The buffer has `len` floats, and lives
    ///     // until the kernel is done.
    ///     unsafe { stream.launch(&function, LaunchConfig::linear(values.len(), 256), &params) }?;
    ///     stream.synchronize()
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ContextMismatch`], or an error of the runtime call: an invalid geometry, or the
    /// failure of earlier work.
    ///
    /// # Safety
    ///
    /// - `P` has the layout of the function's parameter: `repr(C)`, the same fields.
    /// - Every address in `params` is valid for the accesses of the function until the kernel is
    ///   done, or, if the stream captures, until the last launch of the graph is done. (The graph
    ///   keeps the function's module alive.)
    /// - Until then the host does not write memory that the kernel reads, and does not access
    ///   memory that it writes.
    pub unsafe fn launch<P: Copy>(
        &self,
        function: &Function,
        config: LaunchConfig,
        params: &P,
    ) -> Result<(), Error> {
        // SAFETY: the same contract.
        unsafe { self.queue_kernel(function, config, params, false) }
    }

    /// Like [`Stream::launch`], but the kernel may start before earlier kernels of the stream end:
    /// CUDA's programmatic dependent launch. Where the runtime has no such launch, as on AMD, the
    /// kernel starts after them.
    ///
    /// # Errors
    ///
    /// The errors of [`Stream::launch`].
    ///
    /// # Safety
    ///
    /// That of [`Stream::launch`]. Also, the function waits for earlier kernels
    /// (`griddepcontrol.wait`) before it accesses memory that these write, before it writes memory
    /// that these read, and in at least one thread in any case.
    pub unsafe fn launch_early<P: Copy>(
        &self,
        function: &Function,
        config: LaunchConfig,
        params: &P,
    ) -> Result<(), Error> {
        // SAFETY: the same contract.
        unsafe { self.queue_kernel(function, config, params, true) }
    }

    /// # Safety
    ///
    /// That of [`Stream::launch`], and with `early` that of [`Stream::launch_early`].
    unsafe fn queue_kernel<P: Copy>(
        &self,
        function: &Function,
        config: LaunchConfig,
        params: &P,
        early: bool,
    ) -> Result<(), Error> {
        self.context().expect_same(function.context(), "launching")?;
        if self.is_recording() {
            self.keep(function.module());
        }
        let api = self.context().enter()?;
        let params = std::ptr::from_ref(params).cast();
        // SAFETY: both objects are alive and of this context; the caller guarantees the rest.
        unsafe { module::launch(api, function.handle(), &config, self.handle(), params, early) }
    }

    pub(crate) fn handle(&self) -> StreamHandle {
        self.inner.handle
    }

    /// Returns true if a capture that this stream began is active.
    pub(crate) fn is_recording(&self) -> bool {
        self.inner.capturing.load(Ordering::Acquire)
    }

    /// Must precede work that a graph can repeat. If the stream captures, the graph keeps the used
    /// objects. A stream that joined the capture of another stream cannot pass objects to the
    /// graph.
    pub(crate) fn admit(&self, used: &[Kept]) -> Result<(), Error> {
        if self.is_recording() {
            for object in used {
                self.keep(Arc::clone(object));
            }
            return Ok(());
        }
        self.refuse_capture("work on a stream that joined the capture of another one")
    }

    /// Must precede work that a graph cannot repeat.
    pub(crate) fn refuse_capture(&self, operation: &'static str) -> Result<(), Error> {
        let api = self.context().enter()?;
        // SAFETY: the stream is alive.
        let capturing = self.is_recording() || unsafe { raw::is_capturing(api, self.handle()) }?;
        if capturing { Err(Error::Capturing { operation }) } else { Ok(()) }
    }

    /// Marks the stream as capturing; `false` if it already is.
    pub(super) fn start_recording(&self) -> bool {
        !self.inner.capturing.swap(true, Ordering::AcqRel)
    }

    /// Marks the capture as ended and returns the objects that the graph keeps.
    pub(super) fn stop_recording(&self) -> Vec<Kept> {
        let mut kept = self.inner.kept.lock().unwrap_or_else(PoisonError::into_inner);
        self.inner.capturing.store(false, Ordering::Release);
        std::mem::take(&mut *kept)
    }

    /// Adds an object for the graph to keep.
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
            // SAFETY: created and used by this object only; queued work continues without it.
            unsafe { raw::destroy(api, self.handle) }
        });
        report_drop("a stream", outcome);
    }
}
