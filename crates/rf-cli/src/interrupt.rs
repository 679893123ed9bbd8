//! Ctrl-C: stops an answer or removes an incomplete file, is a note at the prompt of a chat, and
//! else ends the program.

use std::io::{self, Write};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use crate::failure::Interrupted;

/// The note that Ctrl-C prints at the prompt of a chat.
pub(crate) const HOW_TO_LEAVE: &str = "(Ctrl-D or /exit to leave)";

/// The effect of Ctrl-C.
enum Effect {
    End,
    /// Sets the flag. With the flag set, it ends the program, or first warns of that.
    Request {
        warns: bool,
    },
    /// The prompt to show again.
    Note(&'static str),
}

static EFFECT: Mutex<Effect> = Mutex::new(Effect::End);
static REQUESTED: AtomicBool = AtomicBool::new(false);

/// During its lifetime, Ctrl-C sets a flag instead of ending the program. A second Ctrl-C while the
/// flag is set ends the program.
pub(crate) struct Watch(());

impl Watch {
    /// Starts watching, with the flag cleared.
    pub(crate) fn new() -> Self {
        Self::start(false)
    }

    /// Starts watching in a chat, where the end of the program loses the conversation: a second
    /// Ctrl-C warns, and a third one ends the program.
    pub(crate) fn of_chat() -> Self {
        Self::start(true)
    }

    fn start(warns: bool) -> Self {
        REQUESTED.store(false, SeqCst);
        set(Effect::Request { warns });
        Self(())
    }

    /// Returns true if Ctrl-C was pressed since [`Watch::new`].
    #[expect(clippy::unused_self, reason = "the flag is valid only during a watch")]
    pub(crate) fn requested(&self) -> bool {
        REQUESTED.load(SeqCst)
    }

    /// Ends the command if Ctrl-C was pressed.
    pub(crate) fn check(&self) -> Result<(), Interrupted> {
        if self.requested() { Err(Interrupted) } else { Ok(()) }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        set(Effect::End);
    }
}

/// During its lifetime, Ctrl-C prints how to leave, and the prompt again. A line editor reads the
/// key itself; a terminal without one, such as `TERM=dumb`, drops the line and sends the signal.
pub(crate) struct Note(());

impl Note {
    /// Starts, with the prompt that is shown.
    pub(crate) fn new(prompt: &'static str) -> Self {
        set(Effect::Note(prompt));
        Self(())
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        set(Effect::End);
    }
}

fn set(effect: Effect) {
    static HANDLER: Once = Once::new();
    HANDLER.call_once(|| {
        // Without a handler, Ctrl-C ends the program, as it does by default.
        drop(ctrlc::set_handler(on_signal));
    });
    *locked() = effect;
}

fn locked() -> MutexGuard<'static, Effect> {
    EFFECT.lock().unwrap_or_else(PoisonError::into_inner)
}

#[expect(clippy::exit, reason = "the default action of the signal")]
fn on_signal() {
    let mut effect = locked();
    match &mut *effect {
        Effect::Request { .. } if !REQUESTED.swap(true, SeqCst) => {}
        Effect::Request { warns: warns @ true } => {
            *warns = false;
            drop(write!(
                io::stderr().lock(),
                "\n(it stops after this batch of tokens; Ctrl-C once more ends the program and loses \
                 the conversation)\n"
            ));
        }
        Effect::Request { .. } | Effect::End => std::process::exit(130),
        Effect::Note(prompt) => {
            // A failure is ignored, since it could not be reported.
            drop(write!(io::stderr().lock(), "\n{HOW_TO_LEAVE}\n{prompt}"));
        }
    }
}
