//! `rf-cli`: runs GGUF language models from the command line.
//!
//! It parses arguments, calls the library crates, and prints their results as text, JSON and exit
//! codes. Start reading at [`cli`] (the commands), then `commands` (one file each). `args` has the
//! arguments that commands share; `loading` opens a model with them.
//!
//! Invariants: results go to stdout and everything else to stderr; no input makes the program
//! panic; a file is written completely or not at all.

mod adapters;
mod args;
mod cli;
#[cfg(all(test, unix))]
mod command_lines;
mod commands;
mod demo;
mod device;
mod drafts;
mod embedding;
mod escapes;
mod failure;
mod flags;
mod hub;
mod interrupt;
mod limits;
mod loading;
mod logging;
mod media;
mod picture;
mod prefix_cache;
mod recording;
#[cfg(all(test, feature = "gpu"))]
mod reference;
mod screen;
mod short_help;
mod sources;
mod state;
mod telemetry;
mod terminal;
mod usage;
mod version;

use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory, FromArgMatches};

use crate::cli::Cli;
use crate::terminal::Palette;

fn main() -> ExitCode {
    rocmforge::gguf::report_bus_errors();
    logging::start();
    let result = run();
    let code = match result {
        Ok(()) => failure::SUCCESS,
        Err(error) => {
            let code = failure::exit_code(&error);
            if failure::has_message(&error) {
                let error = failure::sentence(&error);
                terminal::note(format_args!("{} {error}", Palette::stderr().red("error:")));
            }
            code
        }
    };
    ExitCode::from(code)
}

fn run() -> Result<()> {
    let cli = flags::configured(Cli::command());
    let arguments = flags::prepare(std::env::args_os(), &cli)?;
    let cli = if short_help::is_asked_for(&arguments) { short_help::shortened(cli) } else { cli };
    let parsed = cli.clone().try_get_matches_from(&arguments);
    let matches = parsed.map_err(|error| {
        usage::explained(&error, &cli, &arguments).unwrap_or_else(|| error.exit())
    })?;
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()).run()
}
