//! `rf-cli gguf`: splits, merges, edits and compares model files.

use anyhow::Result;
use clap::{Args, Subcommand};

mod copied;
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
