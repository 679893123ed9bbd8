//! Graphs: recorded work that is launched with one call.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Kept, report_drop, wait_before_release};
use crate::result::{context, graph as raw};
use crate::sys::{GraphExecHandle, GraphHandle};
use crate::{Context, Error, Stream};

impl Stream {
    /// Begins to record the work queued on this stream, and on streams that wait for its events,
    /// instead of running it.
    ///
    /// Until the capture ends, do not wait for the stream or the context, do not copy from or to
    /// pageable or pinned memory except with the unsafe calls, and do not drop modules or graphs,
    /// because dropping them waits. This applies to all threads that use the device: a wait for the
    /// context invalidates every capture in it.
    ///
    /// # Errors
    ///
    /// [`Error::CaptureState`] if a capture is active, [`Error::is_unsupported`] if the runtime has
    /// no graphs, or an error of the runtime call.
    pub fn begin_capture(&self) -> Result<Capture, Error> {
        let api = self.context().enter()?;
        if !self.start_recording() {
            return Err(Error::CaptureState { active: true });
        }
        // SAFETY: the stream is alive.
        if let Err(error) = unsafe { raw::begin_capture(api, self.handle()) } {
            self.stop_recording();
            return Err(error);
        }
        Ok(Capture { stream: Some(self.clone()) })
    }

    /// Records the work that `queue` queues on this stream.
    ///
    /// # Errors
    ///
    /// The error of `queue`, or as [`Stream::begin_capture`] and [`Capture::end_capture`].
    pub fn capture<E: From<Error>>(
        &self,
        queue: impl FnOnce() -> Result<(), E>,
    ) -> Result<Graph, E> {
        let capture = self.begin_capture()?;
        queue()?;
        Ok(capture.end_capture()?)
    }
}

/// An active capture. Dropping it ends the capture and discards the recorded work.
#[derive(Debug)]
#[must_use = "dropping a capture discards the recorded work"]
pub struct Capture {
    /// `None` after the end.
    stream: Option<Stream>,
}

impl Capture {
    /// Ends the capture.
    ///
    /// # Errors
    ///
    /// An error of the runtime call, such as work that cannot be part of a graph (statuses from
    /// 900).
    pub fn end_capture(mut self) -> Result<Graph, Error> {
        let stream = self.stream.take().ok_or(Error::CaptureState { active: false })?;
        end(&stream)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        if let Some(stream) = self.stream.take() {
            // An invalid capture is a common reason to discard it, so a failure is expected.
            if let Err(error) = end(&stream) {
                tracing::debug!("ending a capture: {error}");
            }
        }
    }
}

fn end(stream: &Stream) -> Result<Graph, Error> {
    let context = stream.context();
    let handle = context.enter().and_then(|api| {
        // SAFETY: the stream is alive.
        unsafe { raw::end_capture(api, stream.handle()) }
    });
    let kept = stream.stop_recording();
    match handle? {
        GraphHandle::NULL => Err(Error::CaptureState { active: false }),
        handle => Ok(Graph { context: context.clone(), handle: Mutex::new(handle), kept }),
    }
}

/// Recorded work. A graph keeps the buffers and modules that safe calls recorded.
#[derive(Debug)]
pub struct Graph {
    context: Context,
    /// The runtimes require exclusive access, even for reading.
    handle: Mutex<GraphHandle>,
    kept: Vec<Kept>,
}

impl Graph {
    /// The number of recorded kernels, copies and fills.
    ///
    /// # Errors
    ///
    /// An error of the runtime call.
    pub fn node_count(&self) -> Result<usize, Error> {
        let api = self.context.enter()?;
        // SAFETY: the graph is alive and locked.
        unsafe { raw::node_count(api, *self.lock()) }
    }

    /// Creates an executable graph.
    ///
    /// # Errors
    ///
    /// An error of the runtime call.
    pub fn instantiate(&self) -> Result<GraphExec, Error> {
        let api = self.context.enter()?;
        // SAFETY: the graph is alive and locked.
        let handle = unsafe { raw::instantiate(api, *self.lock()) }?;
        let exec = Exec { handle, kept: self.kept.clone() };
        let (context, exec) = (self.context.clone(), Mutex::new(exec));
        Ok(GraphExec { inner: Arc::new(Inner { context, exec }) })
    }

    fn lock(&self) -> MutexGuard<'_, GraphHandle> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let outcome = self.context.enter().and_then(|api| {
            // SAFETY: created and used by this object only.
            unsafe { raw::destroy(api, *self.lock()) }
        });
        report_drop("a graph", outcome);
    }
}

/// An executable graph. Its launches run one at a time.
#[derive(Debug)]
pub struct GraphExec {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    context: Context,
    exec: Mutex<Exec>,
}

#[derive(Debug)]
struct Exec {
    handle: GraphExecHandle,
    kept: Vec<Kept>,
}

impl GraphExec {
    /// Queues all work of the graph.
    ///
    /// # Errors
    ///
    /// [`Error::ContextMismatch`], [`Error::Capturing`] on a stream that joined a capture, or what
    /// the runtime's call returns.
    pub fn launch(&self, stream: &Stream) -> Result<(), Error> {
        let context = &self.inner.context;
        context.expect_same(stream.context(), "launching a graph")?;
        stream.admit(&[Arc::clone(&self.inner) as Kept])?;
        let api = context.enter()?;
        // SAFETY: both are alive and the graph is locked. It keeps the objects that safe calls
        // recorded; callers of unsafe calls guarantee the rest.
        unsafe { raw::launch(api, self.inner.lock().handle, stream.handle()) }
    }

    /// Replaces the parameters by those of `graph`, which the same sequence of calls with other
    /// arguments must have recorded. Returns `false` if the graphs differ in more than parameters:
    /// a new instance is needed. Waits for active launches.
    ///
    /// # Errors
    ///
    /// [`Error::ContextMismatch`], [`Error::is_unsupported`], or an error of the runtime call.
    pub fn update(&self, graph: &Graph) -> Result<bool, Error> {
        let context = &self.inner.context;
        context.expect_same(&graph.context, "updating a graph")?;
        let api = context.enter()?;
        // Objects used by the current parameters are released only after all launches are done.
        context::synchronize(api)?;
        let mut exec = self.inner.lock();
        // SAFETY: both are alive and locked.
        let updated = unsafe { raw::update(api, exec.handle, *graph.lock()) }?;
        if updated {
            exec.kept.clone_from(&graph.kept);
        }
        Ok(updated)
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Exec> {
        self.exec.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // A launch may be active.
        let outcome = self.context.enter().and_then(|api| {
            wait_before_release(api)?;
            // SAFETY: created and used by this object only.
            unsafe { raw::destroy_exec(api, self.lock().handle) }
        });
        report_drop("an executable graph", outcome);
    }
}
