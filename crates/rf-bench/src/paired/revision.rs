//! Builds of other revisions, cached by commit.
//!
//! Sources are checked out in one git worktree below `target/bench/`, which stays, as does its
//! target folder: a further revision builds what differs. Programs are kept by commit.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use super::Side;
use crate::Error;

/// A file that every revision with the worker protocol has.
const WORKER: &str = "crates/rf-bench/src/paired/worker.rs";

/// The other side of a comparison: a given program, or the build of a revision.
///
/// # Errors
///
/// [`Error::Revision`] where `given` is neither, or the revision does not build.
pub fn side(root: &Path, given: &str, note: &dyn Fn(String)) -> Result<Side, Error> {
    let path = Path::new(given);
    if path.is_file() {
        let program = path.canonicalize();
        let program = program.map_err(|e| Error::io(format_args!("open '{given}'"), e))?;
        return Ok(Side { program, label: given.to_owned(), backend: String::new() });
    }
    let build = Build { root, revision: given };
    let commit = build
        .git(&["rev-parse", "--verify", "--quiet", &format!("{given}^{{commit}}")])
        .map_err(|_| build.error("neither a program nor a revision of this repository"))?;
    let short = &commit[..commit.len().min(10)];
    let label =
        if given.starts_with(short) { short.to_owned() } else { format!("{given} ({short})") };
    let program = root.join("target/bench/builds").join(&commit).join("rf-bench");
    if !program.is_file() {
        build.build(&commit, &program, note)?;
    }
    Ok(Side { program, label, backend: String::new() })
}

struct Build<'a> {
    root: &'a Path,
    revision: &'a str,
}

impl Build<'_> {
    fn build(&self, commit: &str, program: &Path, note: &dyn Fn(String)) -> Result<(), Error> {
        if self.git(&["cat-file", "-e", &format!("{commit}:{WORKER}")]).is_err() {
            return Err(self.error(
                "it is older than `--against` and has no worker; compare with stored baselines, or \
                 with a later revision",
            ));
        }
        let folder = self.root.join("target/bench");
        let worktree = self.checkout(commit, &folder)?;
        note(format!("building {} in '{}'", self.revision, worktree.display()));
        let target = folder.join("target");
        let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["build", "--release", "--package", "rf-bench", "--bin", "rf-bench"])
            .current_dir(&worktree)
            .env("CARGO_TARGET_DIR", &target)
            .status()
            .map_err(|source| Error::io("start cargo", source))?;
        if !status.success() {
            return Err(self.error(&format!("cargo build failed with {status}")));
        }
        let keep = || -> io::Result<()> {
            let kept = program.parent().unwrap_or(&folder);
            fs::create_dir_all(kept)?;
            let partial = tempfile::NamedTempFile::new_in(kept)?;
            // The copy takes over the permission to execute.
            fs::copy(target.join("release/rf-bench"), partial.path())?;
            partial.persist(program)?;
            Ok(())
        };
        keep().map_err(|e| Error::io(format_args!("write '{}'", program.display()), e))
    }

    /// Checks the commit out in the worktree, which is created where it is missing.
    fn checkout(&self, commit: &str, folder: &Path) -> Result<PathBuf, Error> {
        let worktree = folder.join("worktree");
        let text = worktree.display().to_string();
        if worktree.join(".git").exists() {
            self.git(&["-C", &text, "checkout", "--quiet", "--force", "--detach", commit])?;
        } else {
            // Of a worktree whose folder is gone git may still have the entry.
            self.git(&["worktree", "prune"])?;
            self.git(&["worktree", "add", "--quiet", "--detach", &text, commit])?;
        }
        Ok(worktree)
    }

    /// The output of git.
    fn git(&self, arguments: &[&str]) -> Result<String, Error> {
        let output = Command::new("git")
            .current_dir(self.root)
            .args(arguments)
            .output()
            .map_err(|source| Error::io("start git", source))?;
        if !output.status.success() {
            let reason = String::from_utf8_lossy(&output.stderr);
            return Err(self.error(&format!("git {}: {}", arguments[0], reason.trim())));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    fn error(&self, reason: &str) -> Error {
        Error::Revision { revision: self.revision.to_owned(), reason: reason.to_owned() }
    }
}
