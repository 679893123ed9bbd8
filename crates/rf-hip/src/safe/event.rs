//! Events: markers in a stream.

use super::report_drop;
use crate::result::event as raw;
use crate::sys::EventHandle;
use crate::{Context, Error, SyncMode};

/// A marker that a stream reaches when the work queued before it is done; see
/// [`Stream::record`](crate::Stream::record).
///
/// An event that was never recorded counts as reached.
///
/// ```
/// use rf_hip::{Error, Event, Stream};
///
/// /// The microseconds that the device takes for the work that `queue` queues.
/// fn time_us(stream: &Stream, queue: impl FnOnce() -> Result<(), Error>) -> Result<f64, Error> {
///     let start = Event::new(stream.context(), true)?;
///     let end = Event::new(stream.context(), true)?;
///     stream.record(&start)?;
///     queue()?;
///     stream.record(&end)?;
///     end.synchronize()?;
///     Event::elapsed_us(&start, &end)
/// }
/// ```
#[derive(Debug)]
pub struct Event {
    context: Context,
    handle: EventHandle,
}

impl Event {
    /// Creates an event. `timing` enables [`Event::elapsed_us`] at a small cost.
    ///
    /// # Errors
    ///
    /// An error of the runtime call.
    pub fn new(context: &Context, timing: bool) -> Result<Self, Error> {
        let blocking = context.sync_mode() == SyncMode::Sleep;
        let handle = raw::create(context.enter()?, timing, blocking)?;
        Ok(Self { context: context.clone(), handle })
    }

    /// Waits until the event is reached.
    ///
    /// # Errors
    ///
    /// An error of the runtime call, or of the work before the event.
    pub fn synchronize(&self) -> Result<(), Error> {
        let api = self.context.enter()?;
        // SAFETY: the event is alive.
        unsafe { raw::synchronize(api, self.handle) }
    }

    /// Returns true if the event is reached.
    ///
    /// # Errors
    ///
    /// The errors of [`Event::synchronize`].
    pub fn query(&self) -> Result<bool, Error> {
        let api = self.context.enter()?;
        // SAFETY: the event is alive.
        unsafe { raw::is_reached(api, self.handle) }
    }

    /// The microseconds between two reached events with `timing`. The resolution is about half a
    /// microsecond.
    ///
    /// # Errors
    ///
    /// [`Error::ContextMismatch`], or an error of the runtime call if an event is not reached, not
    /// recorded or without timing.
    pub fn elapsed_us(start: &Self, end: &Self) -> Result<f64, Error> {
        start.context.expect_same(&end.context, "measuring time")?;
        let api = start.context.enter()?;
        // SAFETY: both events are alive and of this context.
        let ms = unsafe { raw::elapsed_ms(api, start.handle, end.handle) }?;
        Ok(f64::from(ms) * 1000.0)
    }

    pub(crate) fn handle(&self) -> EventHandle {
        self.handle
    }

    /// The context of the event.
    pub fn context(&self) -> &Context {
        &self.context
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let outcome = self.context.enter().and_then(|api| {
            // SAFETY: created and used by this object only.
            unsafe { raw::destroy(api, self.handle) }
        });
        report_drop("an event", outcome);
    }
}
