//! `rf-cli`: runs GGUF language models from the command line.
//!
//! It parses arguments, calls the library crates, and prints their results as text, JSON and exit
//! codes. Start reading at [`cli`] (the commands), then `commands` (one file each). `args` has the
//! arguments that commands share; `loading` opens a model with them.
//!
//! Invariants: results go to stdout and everything else to stderr; no input makes the program
//! panic; a file is written completely or not at all.

mod args;
mod cli;
mod commands;
mod demo;
mod device;
mod embedding;
mod failure;
mod hub;
mod interrupt;
mod limits;
mod loading;
mod logging;
mod recording;
mod sources;
mod telemetry;
mod terminal;
mod version;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use crate::cli::Cli;
use crate::terminal::Palette;

fn main() -> ExitCode {
    rf_gguf::report_bus_errors();
    logging::start();
    let arguments: Vec<OsString> = cli::with_long_flags(std::env::args_os());
    let result = Cli::parse_from(arguments).command.run();
    let code = match result {
        Ok(()) => failure::SUCCESS,
        Err(error) => {
            let code = failure::exit_code(&error);
            if code != failure::SUCCESS && code != failure::INTERRUPTED {
                let error = failure::sentence(&error);
                terminal::note(format_args!("{} {error}", Palette::stderr().red("error:")));
            }
            code
        }
    };
    ExitCode::from(code)
}
