//! `rf-cli completions`: what a shell needs to complete our arguments.

use std::io::{self, Write};

use anyhow::Result;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::args::Cli;

/// Arguments of `rf-cli completions`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  rf-cli completions bash > ~/.local/share/bash-completion/completions/rf-cli
  rf-cli completions zsh > ~/.zfunc/_rf-cli
  rf-cli completions fish > ~/.config/fish/completions/rf-cli.fish")]
pub(crate) struct CompletionsArgs {
    /// Shell to complete for
    shell: Shell,
}

/// Runs `rf-cli completions`.
pub(crate) fn completions(arguments: &CompletionsArgs) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "rf-cli", &mut script);
    io::stdout().lock().write_all(&script)?;
    Ok(())
}
