//! `rf-cli completions`: prints a completion script for a shell.

use std::io::{self, Write};

use anyhow::Result;
use clap::{Args, Command};
use clap_complete::Shell;

/// Arguments of `rf-cli completions`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  rf-cli completions bash > ~/.local/share/bash-completion/completions/rf-cli
  rf-cli completions zsh > ~/.zfunc/_rf-cli
  rf-cli completions fish > ~/.config/fish/completions/rf-cli.fish")]
pub(crate) struct CompletionsArgs {
    /// Print the completion script of this shell
    shell: Shell,
}

/// Runs `rf-cli completions` for the command line `cli`.
pub(crate) fn completions(arguments: &CompletionsArgs, cli: &mut Command) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, cli, "rf-cli", &mut script);
    if arguments.shell == Shell::Bash {
        // clap_complete sets one name of a subcommand and compares with another one, if the name of
        // the program has a dash.
        let text = String::from_utf8(script)?.replace("rf__subcmd__cli", "rf__cli");
        script = text.into_bytes();
    }
    io::stdout().lock().write_all(&script)?;
    Ok(())
}
