//! Runs the program at a terminal: types keys and reads the screen.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Without any output for this long, the program hangs.
const MOST: Duration = Duration::from_mins(2);

/// A program at a pseudo terminal.
pub(crate) struct Terminal {
    keys: File,
    output: Receiver<Vec<u8>>,
    screen: Vec<u8>,
    /// Bytes of the screen up to the last text that was waited for.
    seen: usize,
    child: Child,
}

impl Terminal {
    /// Starts the program at a terminal of this type (`TERM`), which does not tell its size.
    pub(crate) fn start(command: Command, term: &str) -> Self {
        Self::of_width(command, term, 0)
    }

    /// Starts the program at a terminal of this type (`TERM`) and width.
    pub(crate) fn of_width(mut command: Command, term: &str, columns: u16) -> Self {
        let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(&size, None).unwrap();
        let end = || pty.slave.try_clone().unwrap();
        command.stdin(end()).stdout(end()).stderr(end()).env("TERM", term);
        let child = command.spawn().unwrap();
        let keys = File::from(pty.master);
        let mut screen = keys.try_clone().unwrap();
        let (sender, output) = channel();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            // The read fails when the program has ended.
            while let Ok(len) = screen.read(&mut bytes) {
                if len == 0 || sender.send(bytes[..len].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self { keys, output, screen: Vec::new(), seen: 0, child }
    }

    /// Presses keys; `\r` is Enter.
    pub(crate) fn press(&mut self, keys: &[u8]) {
        self.keys.write_all(keys).unwrap();
    }

    /// Sends the signal of Ctrl-C, as a terminal does that has no line editor.
    pub(crate) fn interrupt(&self) {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    }

    /// Waits until the screen shows a text, after the last one that was waited for.
    pub(crate) fn wait_for(&mut self, text: &str) {
        loop {
            let unseen = &self.screen[self.seen..];
            let found = unseen.windows(text.len()).position(|bytes| bytes == text.as_bytes());
            if let Some(at) = found {
                self.seen += at + text.len();
                return;
            }
            match self.output.recv_timeout(MOST) {
                Ok(bytes) => self.screen.extend(bytes),
                Err(error) => panic!("no '{text}' ({error}) in:\n{}", self.shown()),
            }
        }
    }

    /// Waits for a text, and returns the rest of its line.
    pub(crate) fn wait_for_line(&mut self, text: &str) -> String {
        self.wait_for(text);
        let start = self.seen;
        self.wait_for("\n");
        String::from_utf8_lossy(&self.screen[start..self.seen]).into_owned()
    }

    /// Waits until the program ends, and returns its exit code and everything it has shown.
    pub(crate) fn finish(mut self) -> (Option<i32>, String) {
        loop {
            match self.output.recv_timeout(MOST) {
                Ok(bytes) => self.screen.extend(bytes),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(error) => panic!("the program does not end ({error}):\n{}", self.shown()),
            }
        }
        (self.child.wait().unwrap().code(), self.shown())
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.screen).into_owned()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
