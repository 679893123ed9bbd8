//! The same command once more, by a program that was built to measure.

use std::{
    env,
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, ExitCode},
};

use anyhow::{Context, Result};

/// Builds this crate in release with the feature `bench` and becomes that program. Cargo says what it builds.
pub(super) fn run(root: &Path) -> Result<ExitCode> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["run", "--release", "--package", "xtask", "--features", "bench", "--manifest-path"])
        .arg(root.join("Cargo.toml"))
        .arg("--")
        .args(env::args_os().skip(1));
    // Paths that were given are relative to where the user is, and signals reach one process only.
    Err(command.exec()).context("could not start cargo to build the benchmarks")
}
