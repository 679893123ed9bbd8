//! `cargo xtask bench`: builds `rf-bench` in release and replaces this process by it.

use std::{
    env,
    ffi::OsString,
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, ExitCode},
};

use anyhow::{Context, Result};

/// Runs `rf-bench` with `arguments`. Signals and relative paths reach it unchanged.
pub(crate) fn run(root: &Path, arguments: &[OsString]) -> Result<ExitCode> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["run", "--release", "--package", "rf-bench", "--bin", "rf-bench"]);
    command.arg("--manifest-path").arg(root.join("Cargo.toml")).arg("--").args(arguments);
    Err(command.exec()).context("could not start cargo to build rf-bench")
}
