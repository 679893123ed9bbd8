//! The tracked files of a checkout, read once for all rules.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::workspace::{Package, packages};

/// The commit after which subjects are checked.
const SUBJECTS_SINCE: &str = "203aba9";

/// A checkout: its files, crates and history.
pub(crate) struct Tree {
    /// Every tracked file, in order of path.
    pub(crate) files: Vec<File>,
    /// The crates of the workspace, in order of path.
    pub(super) packages: Vec<Package>,
    /// The new commits; empty without a history.
    pub(super) commits: Vec<Commit>,
}

/// A commit whose subject is checked.
pub(super) struct Commit {
    /// The abbreviated hash.
    pub(super) hash: String,
    pub(super) subject: String,
}

/// A tracked file as it is on disk.
pub(crate) struct File {
    /// The path from the root of the checkout, with `/` between components.
    pub(super) path: String,
    pub(super) size_bytes: u64,
    /// The content; `None` if it is not UTF-8 or contains a NUL.
    pub(super) text: Option<String>,
}

impl Tree {
    /// Reads the files that git tracks under `root`. Without `.git`, as in an unpacked archive,
    /// reads all files outside hidden folders and `target`.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        if !root.join("Cargo.toml").is_file() {
            bail!("{} is not a checkout of the workspace: it has no Cargo.toml", root.display());
        }
        let mut paths = if root.join(".git").exists() { tracked(root)? } else { walk(root)? };
        paths.sort();
        let mut files = Vec::with_capacity(paths.len());
        for path in paths {
            let absolute = root.join(&path);
            // Skips links, submodules, and deleted files that are not committed yet.
            if !absolute.symlink_metadata().is_ok_and(|metadata| metadata.is_file()) {
                continue;
            }
            let bytes = fs::read(&absolute)
                .with_context(|| format!("could not read {}", absolute.display()))?;
            files.push(File::new(path, bytes));
        }
        Ok(Self { files, packages: packages(root)?, commits: commits(root)? })
    }

    /// The text of the file at `path`; `None` if it does not exist or is not text.
    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.files.iter().find(|file| file.path == path)?.text.as_deref()
    }

    /// Path and content of each text file whose path ends in one of `suffixes`.
    pub(super) fn texts<'a>(
        &'a self,
        suffixes: &'a [&str],
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.files
            .iter()
            .filter(|file| suffixes.iter().any(|suffix| file.path.ends_with(suffix)))
            .filter_map(|file| Some((file.path.as_str(), file.text.as_deref()?)))
    }

    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let files = files
            .iter()
            .map(|(path, text)| File::new((*path).to_owned(), text.as_bytes().to_vec()))
            .collect();
        Self { files, packages: Vec::new(), commits: Vec::new() }
    }
}

impl File {
    fn new(path: String, bytes: Vec<u8>) -> Self {
        let size_bytes = bytes.len() as u64;
        let text = if bytes.contains(&0) { None } else { String::from_utf8(bytes).ok() };
        Self { path, size_bytes, text }
    }
}

fn tracked(root: &Path) -> Result<Vec<String>> {
    let output = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(["ls-files", "-z"])
        .output()
        .context("could not run git")?;
    if !output.status.success() {
        bail!("git ls-files failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let names = String::from_utf8(output.stdout).context("a tracked file's name is not UTF-8")?;
    Ok(names.split_terminator('\0').map(str::to_owned).collect())
}

/// The commits since [`SUBJECTS_SINCE`]; empty if a shallow clone or an archive lacks it.
fn commits(root: &Path) -> Result<Vec<Commit>> {
    if !root.join(".git").exists() {
        return Ok(Vec::new());
    }
    let output = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(["log", "--no-merges", "--format=%h %s"])
        .arg(format!("{SUBJECTS_SINCE}..HEAD"))
        .output()
        .context("could not run git")?;
    if !output.status.success() {
        return Ok(Vec::new());
    }
    let log = String::from_utf8_lossy(&output.stdout);
    let commits = log.lines().filter_map(|line| line.split_once(' '));
    Ok(commits
        .map(|(hash, subject)| Commit { hash: hash.to_owned(), subject: subject.to_owned() })
        .collect())
}

fn walk(root: &Path) -> Result<Vec<String>> {
    let mut paths = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let absolute = root.join(&folder);
        let entries = fs::read_dir(&absolute)
            .with_context(|| format!("could not list {}", absolute.display()))?;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_str().context("a file's name is not UTF-8")?;
            let path = if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
            let kind = entry.file_type()?;
            if kind.is_file() {
                paths.push(path);
            } else if kind.is_dir() && name != "target" && (!name.starts_with('.') || name == ".ci")
            {
                folders.push(path);
            }
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_not_text_have_no_text() {
        assert!(File::new(String::new(), b"plain".to_vec()).text.is_some());
        assert!(File::new(String::new(), b"GGUF\0\x03".to_vec()).text.is_none());
        assert!(File::new(String::new(), vec![0xff, 0xfe]).text.is_none());
    }
}
