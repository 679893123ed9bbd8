//! Runs the programs that make archives.

use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Runs a command to its end, and returns its standard output.
pub(super) fn output_of(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("could not start '{name}'"))?;
    let reason = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name} failed ({}): {}", output.status, reason.trim());
    String::from_utf8(output.stdout).with_context(|| format!("the output of {name}"))
}
