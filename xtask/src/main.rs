//! Repository tasks, run as `cargo xtask TASK`.
//!
//! The tasks are for contributors; running models does not need them. Each task is a module with
//! the name of its subcommand.

mod bench;
mod dist;
mod doc;
mod emulate;
mod estimates;
mod instructions;
mod kernels;
mod revision;
mod snapshot;
mod tidy;

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    about = "Repository tasks of ROCmForge",
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Check the rules of CONTRIBUTING.md that no compiler checks: layering, file and module names,
    /// sizes
    ///
    /// Prints each finding as PATH:LINE: MESSAGE. Exit code: 0 no findings, 1 findings, 2 the check
    /// failed.
    Tidy {
        /// Check the checkout DIR [default: the checkout of this program]
        #[arg(long, value_name = "DIR")]
        root: Option<PathBuf>,
    },
    /// Measure speed, compare with baselines, revisions and other engines
    ///
    /// Builds rf-bench in release and runs it with ARGUMENTS, which `cargo xtask bench --help`
    /// lists.
    #[command(disable_help_flag = true)]
    Bench {
        /// Pass these arguments to rf-bench
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
        arguments: Vec<OsString>,
    },
    /// Count the CPU backend's instructions under callgrind and compare them with the snapshot
    ///
    /// Needs valgrind and a CPU with AVX2. Exit code: 0 no count grew by more than 2 %, 1 a count
    /// did, 2 counting failed.
    Instructions(instructions::Options),
    /// Build the GPU kernels for every target that the compiler supports, and print times and sizes
    ///
    /// Needs clang 19 or newer with lld (see `ROCFORGE_CLANG`), but neither ROCm nor a GPU.
    Kernels(kernels::Options),
    /// Run a program on an emulated AMD GPU
    ///
    /// Builds the emulator in release and starts COMMAND with the emulator instead of libamdhip64.
    /// A program of this workspace is taken from `target/release`. The guide is docs/emulator.md.
    /// Exit code: that of COMMAND, or 2 if it could not start.
    #[command(after_help = "\
Example:
  cargo xtask emulate --arch gfx1201 -- rf-cli run -n 16 'Once upon a time'")]
    Emulate(Box<emulate::Options>),
    /// Compare estimated times of llama.cpp's kernels with published speeds
    ///
    /// Prints the table of docs/emulator.md from the counts in benchmarks/peers.
    Estimates,
    /// Document all crates, and list them in `target/doc/index.html`
    ///
    /// Exit code: 0, or 2 if a document could not be made.
    Doc,
    /// Make the files of a release in `target/dist`
    ///
    /// A tarball and a .deb for Linux, a zip for Windows, licences, bills of materials, checksums,
    /// an installer, and manifests for winget and scoop. The guide is docs/releases.md. Exit code:
    /// 0, or 2 if something is wrong or missing.
    Dist(dist::Options),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().task {
        Task::Tidy { root } => run_tidy(root),
        Task::Bench { arguments } => {
            workspace_root().and_then(|root| bench::run(&root, &arguments))
        }
        Task::Instructions(options) => {
            workspace_root().and_then(|root| instructions::run(&root, &options))
        }
        Task::Kernels(options) => workspace_root().and_then(|root| kernels::run(&root, &options)),
        Task::Estimates => workspace_root().and_then(|root| estimates::run(&root)),
        Task::Doc => workspace_root().and_then(|root| doc::run(&root)),
        Task::Dist(options) => workspace_root().and_then(|root| dist::run(&root, &options)),
        Task::Emulate(options) => workspace_root().and_then(|root| emulate::run(&root, &options)),
    };
    outcome.unwrap_or_else(|error| {
        #[expect(clippy::print_stderr, reason = "a command reports its failure there")]
        {
            eprintln!("error: {error:#}");
        }
        ExitCode::from(2)
    })
}

fn run_tidy(root: Option<PathBuf>) -> Result<ExitCode> {
    let root = root.map_or_else(workspace_root, Ok)?;
    let tree = tidy::Tree::read(&root)?;
    let findings = tidy::check(&tree);
    let mut out = io::stdout().lock();
    for finding in &findings {
        writeln!(out, "{finding}")?;
    }
    if findings.is_empty() {
        writeln!(out, "tidy: {} files, nothing found", tree.files.len())?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(out, "tidy: {} files, {} findings", tree.files.len(), findings.len())?;
    Ok(ExitCode::FAILURE)
}

/// The parent of this crate's folder, from the variable that cargo sets when it runs the program.
fn workspace_root() -> Result<PathBuf> {
    let manifest_dir = env::var_os("CARGO_MANIFEST_DIR")
        .context("CARGO_MANIFEST_DIR is not set: run as `cargo xtask`")?;
    let root = Path::new(&manifest_dir).parent().context("the xtask folder has no parent")?;
    Ok(root.to_owned())
}
