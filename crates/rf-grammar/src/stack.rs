//! The stack of compilations.

use std::panic::resume_unwind;
use std::thread;

use crate::Error;

/// The stack of a compilation. The matcher recurses over references and rules, up to 11 KiB deep
/// for each, so grammars within the limits take less than a quarter of it. The system provides the
/// pages that are used, and takes them back when the thread ends.
const STACK_BYTES: usize = 256 << 20;

/// Runs `work` on a thread with a large stack. What recurses must be dropped by `work`, too.
pub(crate) fn with_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, Error> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("rf-grammar".into()).stack_size(STACK_BYTES);
        let thread = thread.spawn_scoped(scope, work).map_err(Error::Thread)?;
        Ok(thread.join().unwrap_or_else(|payload| resume_unwind(payload)))
    })
}
