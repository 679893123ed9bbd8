//! The log of calls.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// A file with a line per call: `FUNCTION CALL STATUS LIVE`.
///
/// `CALL` counts the calls of the function from 1, `LIVE` is the number of objects (allocations,
/// streams, events, modules, graphs) after the call.
#[derive(Debug, Default)]
pub(crate) struct Journal(Option<File>);

impl Journal {
    /// Opens the file for appending.
    pub(crate) fn open(path: Option<&Path>) -> Result<Self, String> {
        let Some(path) = path else { return Ok(Self(None)) };
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file =
            file.map_err(|error| format!("ROCFORGE_EMU_LOG: {}: {error}", path.display()))?;
        Ok(Self(Some(file)))
    }

    /// Appends a line. A full disk must not fail the program, so errors are ignored.
    pub(crate) fn add(&mut self, function: &str, call: u64, status: i32, live: usize) {
        if let Some(file) = &mut self.0 {
            let line = format!("{function} {call} {status} {live}\n");
            file.write_all(line.as_bytes()).ok();
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.0.is_some()
    }
}

/// Prints a message for the user of the program. Only standard error is left to tell what a status
/// cannot.
pub(crate) fn print(message: &str) {
    writeln!(io::stderr(), "rf-emu: {message}").ok();
}
