//! The folder for what the program keeps between runs.

use std::path::PathBuf;

/// `$XDG_STATE_HOME/rocmforge`; the variable defaults to `~/.local/state`, on Windows to
/// `%LOCALAPPDATA%`. `None` if the environment names no folder.
pub(crate) fn folder() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let user = || match set("LOCALAPPDATA") {
        Some(folder) if cfg!(windows) => Some(folder),
        _ => Some(set("HOME")?.join(".local/state")),
    };
    let state = set("XDG_STATE_HOME").or_else(user)?;
    Some(state.join("rocmforge"))
}
