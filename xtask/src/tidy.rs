//! `cargo xtask tidy`: the repository's own rules, as code.
//!
//! A rule is a function from the [`Tree`] of tracked files to [`Finding`]s; [`check`] lists them
//! all. What rustc, clippy and rustfmt can check is theirs and not here.

mod layering;
mod repository;
mod rust_code;
mod sources;
mod text;
mod tree;

use std::fmt;

pub(crate) use tree::Tree;

/// All findings in `tree`, ordered by path and line.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let rules: [fn(&Tree) -> Vec<Finding>; 4] =
        [layering::check, repository::check, sources::check, text::check];
    let mut findings: Vec<Finding> = rules.iter().flat_map(|rule| rule(tree)).collect();
    findings.sort();
    findings
}

/// A place that breaks a rule; displays as `path:line: message`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    /// From 1.
    line: usize,
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}
