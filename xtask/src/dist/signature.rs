//! The detached signature of the checksums, by minisign.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::release::{NAME, Release};

/// Signs the list of checksums with a secret key. minisign asks for the key's password.
pub(super) fn sign(release: &Release, checksums: &Path, secret_key: &Path) -> Result<PathBuf> {
    let comment = format!("{NAME} {}", release.version);
    let mut command = Command::new("minisign");
    command.arg("-S").arg("-s").arg(secret_key).arg("-m").arg(checksums);
    // Both comments have a time otherwise. The second one is signed, too.
    command.args(["-c", &comment, "-t", &comment]).stdout(Stdio::null());
    let status = command.status().context("could not start 'minisign'")?;
    ensure!(status.success(), "minisign failed ({status})");
    Ok(checksums.with_added_extension("minisig"))
}
