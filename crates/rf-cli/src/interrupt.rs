//! Ctrl-C: stops an answer or removes an incomplete file, and else ends the program.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// True if a [`Watch`] exists.
static WATCHED: AtomicBool = AtomicBool::new(false);
static REQUESTED: AtomicBool = AtomicBool::new(false);

/// During its lifetime, Ctrl-C sets a flag instead of ending the program. A second Ctrl-C while the
/// flag is set ends the program.
pub(crate) struct Watch(());

impl Watch {
    /// Starts watching, with the flag cleared.
    pub(crate) fn new() -> Self {
        static HANDLER: Once = Once::new();
        HANDLER.call_once(|| {
            // Without a handler, Ctrl-C ends the program, as it does by default.
            drop(ctrlc::set_handler(on_signal));
        });
        REQUESTED.store(false, SeqCst);
        WATCHED.store(true, SeqCst);
        Self(())
    }

    /// Returns true if Ctrl-C was pressed since [`Watch::new`].
    #[expect(clippy::unused_self, reason = "the flag is valid only during a watch")]
    pub(crate) fn requested(&self) -> bool {
        REQUESTED.load(SeqCst)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        WATCHED.store(false, SeqCst);
    }
}

#[expect(clippy::exit, reason = "the default action of the signal")]
fn on_signal() {
    if !WATCHED.load(SeqCst) || REQUESTED.swap(true, SeqCst) {
        std::process::exit(130);
    }
}
