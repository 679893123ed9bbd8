//! `rf-bench`: measures, compares and reports. `cargo xtask bench` builds and starts it.

mod options;
mod output;
mod paired;
mod peer;
mod serve;
mod session;
mod terminal;

use std::path::PathBuf;
use std::process::ExitCode;
use std::{env, io};

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use rf_bench::paired::worker;

use crate::options::Options;

#[derive(Parser)]
#[command(
    name = "cargo xtask bench",
    args_conflicts_with_subcommands = true,
    about = "Measure speed; compare with baselines, revisions and other engines"
)]
struct Cli {
    /// Use benchmarks/ and target/ of the checkout DIR [default: the checkout from which cargo
    /// started this program, else the current folder]
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    root: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    options: Options,
}

#[derive(Subcommand)]
enum Command {
    /// Measure `rf-cli serve` under load, alternating with llama-server
    Serve(Box<serve::ServeOptions>),
    /// Serve the measurements of a paired comparison over stdin and stdout
    #[command(hide = true)]
    Worker,
}

fn main() -> ExitCode {
    let Cli { root, command, options } = Cli::parse();
    if matches!(command, Some(Command::Worker)) {
        return match worker::serve(io::stdin().lock(), io::stdout().lock(), |target| target) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::from(2),
        };
    }
    let code = root.map_or_else(checkout, Ok).and_then(|root| {
        if let Some(Command::Serve(serve)) = &command {
            serve::run(&root, serve)
        } else if options.peer.peer_self {
            peer::run_self(&root, &options)
        } else if options.peer.peer.is_some() {
            peer::run(&root, &options)
        } else if let Some(against) = &options.against {
            paired::run(&root, &options, against)
        } else {
            session::run(&root, &options)
        }
    });
    code.unwrap_or_else(|error| {
        output::note(format_args!("error: {error:#}"));
        ExitCode::from(2)
    })
}

/// The checkout that cargo started this program from, or the current folder.
fn checkout() -> Result<PathBuf> {
    let crate_dir = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let root = crate_dir.as_deref().and_then(|folder| folder.ancestors().nth(2));
    root.map_or_else(|| env::current_dir().context("no current folder"), |root| Ok(root.to_owned()))
}
