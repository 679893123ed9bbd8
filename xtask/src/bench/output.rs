//! Where results and remarks go.

use std::{
    fmt,
    fs::File,
    io::{self, Write},
    path::Path,
};

use anyhow::{Context, Result};

/// Exit code after Ctrl-C, as shells have it.
pub(super) const INTERRUPTED: u8 = 130;

/// Writes results to a file, or to stdout.
pub(super) fn write(path: Option<&Path>, text: &str) -> Result<()> {
    match path {
        Some(path) => {
            let write = || {
                let mut file = File::create(path)?;
                file.write_all(text.as_bytes())
            };
            write().with_context(|| format!("cannot write '{}'", path.display()))
        }
        None => {
            let mut out = io::stdout().lock();
            out.write_all(text.as_bytes())
                .and_then(|()| out.flush())
                .context("cannot write to stdout")
        }
    }
}

/// A line on stderr. Nothing can be done where even that fails.
pub(super) fn note(text: impl fmt::Display) {
    drop(writeln!(io::stderr().lock(), "{text}"));
}

/// A field of a line of CSV, quoted where it has to be (RFC 4180).
pub(super) fn csv_field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
