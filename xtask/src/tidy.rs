//! `cargo xtask tidy`: the repository's own rules, as code.
//!
//! A rule is a function from the [`Tree`] of tracked files to [`Finding`]s; [`check`] lists them
//! all. What rustc, clippy and rustfmt can check is theirs and not here.

mod circles;
mod finding;
mod layering;
mod repository;
mod rust_code;
mod sources;
mod text;
mod tree;

use self::finding::Finding;
pub(crate) use self::tree::Tree;

/// All findings in `tree`, ordered by path and line.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let rules: [fn(&Tree) -> Vec<Finding>; 5] =
        [circles::check, layering::check, repository::check, sources::check, text::check];
    let mut findings: Vec<Finding> = rules.iter().flat_map(|rule| rule(tree)).collect();
    findings.sort();
    findings
}
