//! `rf-cli`: runs GGUF language models from the command line.
//!
//! Arguments become calls of the library crates, and their results text, JSON and exit codes; nothing
//! else is here. Start reading at [`args`] (what there is), then `commands` (one file each);
//! `device` and `loading` turn the shared options into an engine, `failure` errors into sentences and codes.
//!
//! Invariants: results go to stdout and everything else to stderr; no input makes the program panic; a
//! file is written whole or not at all.

mod args;
mod commands;
mod demo;
mod device;
mod failure;
mod interrupt;
mod limits;
mod loading;
mod log;
mod recording;
mod sources;
mod telemetry;
mod terminal;
mod version;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use crate::args::Cli;
use crate::terminal::Palette;

fn main() -> ExitCode {
    log::start();
    let arguments: Vec<OsString> = args::with_long_flags(std::env::args_os());
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
