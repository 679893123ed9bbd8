//! Where results and remarks go.

use std::{
    fmt,
    fs::{self, File},
    io::{self, Write},
    path::Path,
    process,
};

use anyhow::{Context, Result};

/// Exit code after Ctrl-C, as shells have it.
pub(crate) const INTERRUPTED: u8 = 130;

/// Writes results to a file, or to stdout.
pub(crate) fn write(path: Option<&Path>, text: &str) -> Result<()> {
    if let Some(path) = path {
        return replace(path, text);
    }
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.context("cannot write to stdout")
}

/// Puts a text in the place of a file, whose folder is made where it is missing: whole, or not at all. What is no file
/// (a pipe, a device) is written to.
pub(crate) fn replace(path: &Path, text: &str) -> Result<()> {
    let is_special = fs::metadata(path).is_ok_and(|metadata| !metadata.is_file());
    let write = || {
        if is_special {
            let mut file = File::options().write(true).open(path)?;
            return file.write_all(text.as_bytes());
        }
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder)?;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let partial = path.with_file_name(format!(".{name}.{}.partial", process::id()));
        let whole = File::create(&partial)
            .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
            .and_then(|()| fs::rename(&partial, path));
        if whole.is_err() {
            // There may be none.
            drop(fs::remove_file(&partial));
        }
        whole
    };
    write().with_context(|| format!("cannot write '{}'", path.display()))
}

/// A line on stderr. Nothing can be done where even that fails.
pub(crate) fn note(text: impl fmt::Display) {
    drop(writeln!(io::stderr().lock(), "{text}"));
}
