//! Pictures of measurements: SVG files, or characters on the terminal.

use std::path::Path;

use anyhow::Result;
use rf_profile::replace_file;

use crate::{screen, sources, terminal};

/// The width of a picture where the terminal does not tell its own.
const COLUMNS: usize = 100;

/// Checks, before any work, that a picture can be shown at this path.
pub(crate) fn check(path: &Path) -> Result<()> {
    if is_terminal(path) { Ok(()) } else { sources::check_output(path) }
}

/// Writes a picture to a file, or prints its form of characters, of this width, on stderr if the
/// path is `-`.
pub(crate) fn show(
    path: &Path,
    svg: impl FnOnce() -> String,
    text: impl FnOnce(usize) -> String,
) -> Result<()> {
    if is_terminal(path) {
        terminal::note(text(screen::width().unwrap_or(COLUMNS)).trim_end());
        return Ok(());
    }
    replace_file(path, |out| out.write_all(svg().as_bytes()))?;
    terminal::note(format_args!("{}: open it in a browser", path.display()));
    Ok(())
}

fn is_terminal(path: &Path) -> bool {
    path.as_os_str() == "-"
}
