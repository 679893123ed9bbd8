//! Marks in a stream.

use super::report_drop;
use crate::{Context, Error, Stream, SyncMode, result::event as raw, sys::EventHandle};

/// A mark that a stream passes when the work queued before it is done.
///
/// An event that was never recorded counts as passed.
#[derive(Debug)]
pub struct Event {
    context: Context,
    handle: EventHandle,
}

impl Event {
    /// An event; `timing` lets it measure and makes it slightly dearer.
    ///
    /// # Errors
    ///
    /// What the runtime's call returns.
    pub fn new(context: &Context, timing: bool) -> Result<Self, Error> {
        let blocking = context.sync_mode() == SyncMode::Sleep;
        let handle = raw::create(context.enter()?, timing, blocking)?;
        Ok(Self { context: context.clone(), handle })
    }

    /// Puts the mark behind everything queued on `stream`; an earlier mark is forgotten.
    ///
    /// # Errors
    ///
    /// [`Error::ContextMismatch`], or what the runtime's call returns.
    pub fn record(&self, stream: &Stream) -> Result<(), Error> {
        self.context.expect_same(stream.context(), "recording an event")?;
        let api = self.context.enter()?;
        // SAFETY: both objects are alive and of this context.
        unsafe { raw::record(api, self.handle, stream.handle()) }
    }

    /// Waits until the mark is passed.
    ///
    /// # Errors
    ///
    /// What the runtime's call returns, and what the work before the mark failed with.
    pub fn synchronize(&self) -> Result<(), Error> {
        let api = self.context.enter()?;
        // SAFETY: the event is alive.
        unsafe { raw::synchronize(api, self.handle) }
    }

    /// Whether the mark is passed.
    ///
    /// # Errors
    ///
    /// As [`Event::synchronize`].
    pub fn query(&self) -> Result<bool, Error> {
        let api = self.context.enter()?;
        // SAFETY: the event is alive.
        unsafe { raw::is_reached(api, self.handle) }
    }

    /// Microseconds between two marks, both passed and made with `timing`. Resolution is about half
    /// a microsecond.
    ///
    /// # Errors
    ///
    /// [`Error::ContextMismatch`], or what the runtime's call returns where a mark is not passed, not
    /// recorded or without timing.
    pub fn elapsed_us(start: &Self, end: &Self) -> Result<f64, Error> {
        start.context.expect_same(&end.context, "measuring")?;
        let api = start.context.enter()?;
        // SAFETY: both events are alive and of this context.
        let ms = unsafe { raw::elapsed_ms(api, start.handle, end.handle) }?;
        Ok(f64::from(ms) * 1000.0)
    }

    pub(crate) fn handle(&self) -> EventHandle {
        self.handle
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let outcome = self.context.enter().and_then(|api| {
            // SAFETY: made by this object, used by no other.
            unsafe { raw::destroy(api, self.handle) }
        });
        report_drop("an event", outcome);
    }
}
