//! Sources of committed revisions, for gates that compare their code with that of the checkout.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The commit that last changed `file`, shortened. For a snapshot: the one whose code it describes.
///
/// # Errors
///
/// Git is missing, or `file` is not committed.
pub(crate) fn last_change(root: &Path, file: &str) -> Result<String> {
    let commit = git(root, &["log", "-1", "--format=%h", "--", file])?;
    ensure!(!commit.is_empty(), "{file} is in no commit");
    Ok(commit)
}

/// Checks the commit out in a worktree below `target/`, which stays, as do the builds in it.
///
/// # Errors
///
/// Git fails.
pub(crate) fn checkout(root: &Path, commit: &str) -> Result<PathBuf> {
    let worktree = root.join("target/revision");
    let text = worktree.display().to_string();
    if worktree.join(".git").exists() {
        git(root, &["-C", &text, "checkout", "--quiet", "--force", "--detach", commit])?;
    } else {
        // Of a worktree whose folder is gone git may still have the entry.
        git(root, &["worktree", "prune"])?;
        git(root, &["worktree", "add", "--quiet", "--detach", &text, commit])?;
    }
    Ok(worktree)
}

/// The output of git, which runs in `root`.
pub(crate) fn git(root: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new("git").current_dir(root).args(arguments).output();
    let output = output.context("could not run git")?;
    let reason = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git {}: {}", arguments[0], reason.trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
