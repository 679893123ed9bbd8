//! `cargo xtask bench`: builds `rf-bench` in release and replaces this process by it. For `serve`
//! it builds `rf-cli` first, the server that is measured.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

/// Runs `rf-bench` with `arguments`. Signals and relative paths reach it unchanged.
pub(crate) fn run(root: &Path, arguments: &[OsString]) -> Result<ExitCode> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = root.join("Cargo.toml");
    let has_server = arguments.iter().any(|argument| argument == "--server");
    if arguments.first().is_some_and(|first| first == "serve") && !has_server {
        let mut build = Command::new(&cargo);
        build.args(["build", "--release", "--package", "rf-cli", "--manifest-path"]).arg(&manifest);
        let status = build.status().context("could not start cargo to build rf-cli")?;
        if !status.success() {
            bail!("rf-cli was not built");
        }
    }
    let mut command = Command::new(cargo);
    command.args(["run", "--release", "--package", "rf-bench", "--bin", "rf-bench"]);
    command.arg("--manifest-path").arg(manifest).arg("--").args(arguments);
    Err(command.exec()).context("could not start cargo to build rf-bench")
}
