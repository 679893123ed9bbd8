//! Handling of Ctrl-C: the first ends the command after the current run, the second at once.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use crate::output;

/// A flag that the handler of Ctrl-C sets.
#[derive(Clone)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Installs the handler. Failure is reported and leaves the default handler in place.
    pub(crate) fn new() -> Self {
        let requested = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&requested);
        let set = ctrlc::set_handler(move || {
            // As the default handler of the signal.
            if flag.swap(true, SeqCst) {
                std::process::exit(i32::from(output::INTERRUPTED));
            }
            output::note("ending after the current run; press Ctrl-C again to end at once");
        });
        if let Err(error) = set {
            output::note(format_args!("Ctrl-C will discard the measurements: {error}"));
        }
        Self(requested)
    }

    /// A flag that is never set.
    #[cfg(test)]
    pub(crate) fn never() -> Self {
        Self(Arc::default())
    }

    /// Returns true once Ctrl-C was pressed.
    pub(crate) fn requested(&self) -> bool {
        self.0.load(SeqCst)
    }
}
