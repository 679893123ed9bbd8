//! Ctrl-C: the first ends the command after the current run, the second at once.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use crate::output;

/// Notices Ctrl-C and the request to end from now on.
#[derive(Clone)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    pub(crate) fn new() -> Self {
        let requested = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&requested);
        let set = ctrlc::set_handler(move || {
            // What the default handler of the signal does.
            if flag.swap(true, SeqCst) {
                std::process::exit(i32::from(output::INTERRUPTED));
            }
            output::note("ending after the current run; Ctrl-C again ends at once");
        });
        if let Err(error) = set {
            output::note(format_args!("Ctrl-C will lose what was measured: {error}"));
        }
        Self(requested)
    }

    /// Notices nothing.
    #[cfg(test)]
    pub(crate) fn never() -> Self {
        Self(Arc::default())
    }

    pub(crate) fn requested(&self) -> bool {
        self.0.load(SeqCst)
    }
}
