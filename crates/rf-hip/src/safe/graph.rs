//! Recorded work that is launched as a whole.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{report_drop, stream::Kept};
use crate::{
    Context, Error, Stream,
    result::{context, graph as raw},
    sys::{GraphExecHandle, GraphHandle},
};

impl Stream {
    /// Begins to record what is queued on this stream, and on streams that wait for its events,
    /// instead of running it.
    ///
    /// Until the end: no waiting for the stream or the context, no copies from or to pageable or
    /// pinned memory but the unsafe ones, and no dropping of modules and graphs, for that waits.
    ///
    /// # Errors
    ///
    /// [`Error::CaptureState`] where a capture runs already, [`Error::is_unsupported`] where the
    /// runtime has no graphs, or what its call returns.
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

    /// Records what `queue` queues on this stream.
    ///
    /// # Errors
    ///
    /// What `queue` returns, or as [`Stream::begin_capture`] and [`Capture::end_capture`].
    pub fn capture<E: From<Error>>(
        &self,
        queue: impl FnOnce() -> Result<(), E>,
    ) -> Result<Graph, E> {
        let capture = self.begin_capture()?;
        queue()?;
        Ok(capture.end_capture()?)
    }
}

/// A capture under way. Dropping it ends it and forgets what was recorded.
#[derive(Debug)]
#[must_use = "dropping a capture throws away what was recorded"]
pub struct Capture {
    /// `None` once ended.
    stream: Option<Stream>,
}

impl Capture {
    /// Ends the recording.
    ///
    /// # Errors
    ///
    /// What the runtime's call returns, above all where something was queued that cannot be part of
    /// a graph (status 900 and following).
    pub fn end_capture(mut self) -> Result<Graph, Error> {
        let stream = self.stream.take().ok_or(Error::CaptureState { active: false })?;
        end(&stream)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        if let Some(stream) = self.stream.take() {
            // The capture may have become invalid, which is why it is thrown away.
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

/// Recorded work. It keeps the buffers and modules it uses, as far as safe calls queued them.
#[derive(Debug)]
pub struct Graph {
    context: Context,
    /// The runtimes want one thread at a time, even for looking.
    handle: Mutex<GraphHandle>,
    kept: Vec<Kept>,
}

impl Graph {
    /// How many kernels, copies and fills were recorded.
    ///
    /// # Errors
    ///
    /// What the runtime's call returns.
    pub fn node_count(&self) -> Result<usize, Error> {
        let api = self.context.enter()?;
        // SAFETY: the graph is alive and locked.
        unsafe { raw::node_count(api, *self.lock()) }
    }

    /// Makes the graph ready to launch.
    ///
    /// # Errors
    ///
    /// What the runtime's call returns.
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
            // SAFETY: made by this object, used by no other.
            unsafe { raw::destroy(api, *self.lock()) }
        });
        report_drop("a graph", outcome);
    }
}

/// A graph ready to launch. One launch of it runs at a time; the next waits.
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
    /// Queues the whole graph.
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
        // SAFETY: both are alive, the graph locked; it keeps what safe calls recorded, and whoever
        // recorded by an unsafe call answers for the rest.
        unsafe { raw::launch(api, self.inner.lock().handle, stream.handle()) }
    }

    /// Moves what a launch needs to the device beforehand, so that the first is as fast as the
    /// others.
    ///
    /// # Errors
    ///
    /// [`Error::ContextMismatch`], [`Error::is_unsupported`], or what the runtime's call returns.
    pub fn upload(&self, stream: &Stream) -> Result<(), Error> {
        let context = &self.inner.context;
        context.expect_same(stream.context(), "uploading a graph")?;
        stream.refuse_capture("uploading a graph")?;
        let api = context.enter()?;
        // SAFETY: both are alive, the graph locked.
        unsafe { raw::upload(api, self.inner.lock().handle, stream.handle()) }
    }

    /// Takes over the parameters of `graph`, recorded by the same sequence of calls with other
    /// arguments. `false` where the two differ in more than that: instantiate anew. Waits for
    /// launches under way.
    ///
    /// # Errors
    ///
    /// [`Error::ContextMismatch`], [`Error::is_unsupported`], or what the runtime's call returns.
    pub fn update(&self, graph: &Graph) -> Result<bool, Error> {
        let context = &self.inner.context;
        context.expect_same(&graph.context, "updating a graph")?;
        let api = context.enter()?;
        // What the present parameters need may be let go only when no launch uses it.
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
        // A launch may be under way.
        let outcome = self.context.enter().and_then(|api| {
            context::synchronize(api)?;
            // SAFETY: made by this object, used by no other.
            unsafe { raw::destroy_exec(api, self.lock().handle) }
        });
        report_drop("an executable graph", outcome);
    }
}
