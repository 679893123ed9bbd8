//! Signals and limits of the operating system.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub(crate) use self::unix::{Signals, raise_file_limit};
#[cfg(windows)]
pub(crate) use self::windows::{Signals, raise_file_limit};

/// The meaning of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// SIGTERM, Ctrl-C and the like.
    Stop,
    /// The terminal is closed, or a supervisor asks to read files again.
    #[cfg_attr(windows, expect(dead_code, reason = "Windows has no such signal"))]
    Hangup,
}
