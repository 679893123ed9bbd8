//! Requests to end a measurement early.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;

/// A count of requests to end a measurement. Clones share it, so that a signal handler can request
/// the end of a measurement in another thread.
///
/// After the first request a measurement ends with the current run and keeps the complete ones.
/// After the second, processes that measure another build or engine are killed.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicU32>);

impl Interrupt {
    /// Requests the end, and returns the number of requests so far.
    pub fn request(&self) -> u32 {
        self.0.fetch_add(1, SeqCst) + 1
    }

    /// Returns true once the user asked for an end: the current run is the last one.
    pub fn is_requested(&self) -> bool {
        self.0.load(SeqCst) > 0
    }

    /// Returns true once the user asked twice: runs in progress are ended too.
    pub fn is_urgent(&self) -> bool {
        self.0.load(SeqCst) > 1
    }
}
