//! Copies with progress, and the errors of copies, for all commands on files.

use std::ops::ControlFlow;
use std::path::Path;

use anyhow::Result;
use rf_convert::Error;
use rf_gguf::{Gguf, TensorInfo};

use crate::failure::{Interrupted, bad_input};
use crate::interrupt::Watch;
use crate::terminal;

/// Copies tensors with a progress bar. Ctrl-C stops it.
pub(super) fn copied<T>(
    gguf: &Gguf,
    copy: impl FnOnce(&mut dyn FnMut(u64) -> ControlFlow<()>) -> Result<T, Error>,
) -> Result<T> {
    let total = gguf.tensors().iter().map(|tensor| TensorInfo::size_bytes(tensor) as u64).sum();
    let progress = terminal::byte_progress("copying", total);
    let watch = Watch::new();
    let result = copy(&mut |bytes| {
        progress.inc(bytes);
        if watch.requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    progress.finish_and_clear();
    result.map_err(|error| failure(error, gguf))
}

/// The error with the command or option that helps.
pub(super) fn failure(error: Error, gguf: &Gguf) -> anyhow::Error {
    let file = gguf.paths().first().map(|path| terminal::shown(&path.display().to_string()));
    let file = file.unwrap_or_default();
    match error {
        Error::Gguf(error) => error.into(),
        Error::Cancelled => Interrupted.into(),
        error @ (Error::Backup { .. } | Error::Data { .. }) => error.into(),
        Error::OnePart => bad_input!("'{file}': {error}"),
        Error::SeveralParts { .. } => bad_input!("'{file}': {error}, with `rf-cli gguf merge`"),
        error => bad_input!("{error}"),
    }
}

/// A path without the extension of model files.
pub(super) fn without_extension(path: &Path) -> &Path {
    let stem = path.to_str().and_then(|path| path.strip_suffix(".gguf"));
    stem.map_or(path, Path::new)
}
