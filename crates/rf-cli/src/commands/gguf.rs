//! `rf-cli gguf`: splits, merges, edits and compares model files.

use std::ops::ControlFlow;
use std::path::Path;

use anyhow::Result;
use clap::{Args, Subcommand};
use rf_convert::Error;
use rf_gguf::{Gguf, TensorInfo};

use crate::failure::{Interrupted, bad_input};
use crate::interrupt::Watch;
use crate::terminal;

mod diff;
mod edit;
mod parts;

/// Arguments of `rf-cli gguf`.
#[derive(Debug, Args)]
#[command(after_help = "\
Tensor data are copied byte for byte. A file that exists is replaced by none of these commands, but by `edit` \
without -o, which leaves a backup.

Examples:
  rf-cli gguf split --split-max-size 4G model.gguf
  rf-cli gguf merge model-00001-of-00003.gguf model.gguf
  rf-cli gguf edit --set general.name=Fox model.gguf
  rf-cli gguf diff a.gguf b.gguf")]
pub(crate) struct GgufArgs {
    #[command(subcommand)]
    command: GgufCommand,
}

#[derive(Debug, Subcommand)]
enum GgufCommand {
    /// Split a model into several files, as llama-gguf-split does
    Split(parts::SplitArgs),
    /// Join the files of a split model
    Merge(parts::MergeArgs),
    /// Change the metadata of a file
    Edit(edit::EditArgs),
    /// Show what differs between two models
    Diff(diff::DiffArgs),
}

/// Runs `rf-cli gguf`.
pub(crate) fn gguf(arguments: &GgufArgs) -> Result<()> {
    match &arguments.command {
        GgufCommand::Split(arguments) => parts::split(arguments),
        GgufCommand::Merge(arguments) => parts::merge(arguments),
        GgufCommand::Edit(arguments) => edit::edit(arguments),
        GgufCommand::Diff(arguments) => diff::diff(arguments),
    }
}

/// Copies tensors with a progress bar. Ctrl-C stops it.
fn copied<T>(
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
fn failure(error: Error, gguf: &Gguf) -> anyhow::Error {
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
fn without_extension(path: &Path) -> &Path {
    let stem = path.to_str().and_then(|path| path.strip_suffix(".gguf"));
    stem.map_or(path, Path::new)
}
