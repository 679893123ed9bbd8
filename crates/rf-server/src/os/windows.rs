//! Signals and limits of Windows.

use std::io;

use tokio::signal::windows::{self, CtrlBreak, CtrlC, CtrlClose, CtrlShutdown};

use super::Signal;

/// Keys of the console, the end of the console and that of the session.
pub(crate) struct Signals {
    ctrl_c: CtrlC,
    ctrl_break: CtrlBreak,
    close: CtrlClose,
    shutdown: CtrlShutdown,
}

impl Signals {
    /// Catches the signals from now on.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            ctrl_c: windows::ctrl_c()?,
            ctrl_break: windows::ctrl_break()?,
            close: windows::ctrl_close()?,
            shutdown: windows::ctrl_shutdown()?,
        })
    }

    /// Waits for a signal.
    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.ctrl_c.recv() => Signal::Stop,
            _ = self.ctrl_break.recv() => Signal::Stop,
            _ = self.close.recv() => Signal::Stop,
            _ = self.shutdown.recv() => Signal::Stop,
        }
    }
}

/// Does nothing: the number of sockets has no limit.
pub(crate) fn raise_file_limit() {}
