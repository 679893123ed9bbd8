//! Ctrl-C: stops an answer or undoes a file that is being written, and ends the program otherwise.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Somebody looks at [`REQUESTED`] and acts on it.
static WATCHED: AtomicBool = AtomicBool::new(false);
static REQUESTED: AtomicBool = AtomicBool::new(false);

/// While it lives, Ctrl-C sets a flag instead of ending the program; a second Ctrl-C that finds the
/// flag still set ends it all the same.
pub(crate) struct Watch(());

impl Watch {
    /// Starts watching, with the flag cleared.
    pub(crate) fn new() -> Self {
        static HANDLER: Once = Once::new();
        HANDLER.call_once(|| {
            // Where no handler can be set, Ctrl-C ends the program as it does by default.
            drop(ctrlc::set_handler(on_signal));
        });
        REQUESTED.store(false, SeqCst);
        WATCHED.store(true, SeqCst);
        Self(())
    }

    /// Whether Ctrl-C was pressed since [`Watch::new`].
    #[expect(clippy::unused_self, reason = "asking makes sense only while watching")]
    pub(crate) fn requested(&self) -> bool {
        REQUESTED.load(SeqCst)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        WATCHED.store(false, SeqCst);
    }
}

#[expect(clippy::exit, reason = "what the default handler of the signal does")]
fn on_signal() {
    if !WATCHED.load(SeqCst) || REQUESTED.swap(true, SeqCst) {
        std::process::exit(130);
    }
}
