//! Output of results and messages.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};

/// The exit code after Ctrl-C, by the convention of shells.
pub(crate) const INTERRUPTED: u8 = 130;

/// Reports the end by a second Ctrl-C, which discards the measurements.
pub(crate) fn ended_at_once() -> ExitCode {
    note("ended by Ctrl-C; the measurements are discarded");
    ExitCode::from(INTERRUPTED)
}

/// Writes results to a file, or to stdout.
pub(crate) fn write(path: Option<&Path>, text: &str) -> Result<()> {
    if let Some(path) = path {
        return Ok(rf_profile::replace_file(path, |out| out.write_all(text.as_bytes()))?);
    }
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.context("cannot write to stdout")
}

/// Prints a line on stderr. An error there is ignored, because it cannot be reported.
pub(crate) fn note(text: impl fmt::Display) {
    drop(writeln!(io::stderr().lock(), "{text}"));
}
