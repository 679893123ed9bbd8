//! `cargo xtask tidy`: the repository's own rules, as code.
//!
//! A rule is a function from the [`Tree`] of tracked files to [`Finding`]s; [`check`] runs all
//! rules. Rules that rustc, clippy or rustfmt can check are left to them.

mod circles;
mod commits;
mod documents;
mod errors;
mod finding;
mod homes;
mod imports;
mod layering;
mod names;
mod paths;
mod prose;
mod published;
mod repository;
mod sources;
mod text;
mod tree;
mod workspace;

use self::finding::Finding;
pub(crate) use self::tree::Tree;

/// All findings in `tree`, ordered by path and line.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let rules: [fn(&Tree) -> Vec<Finding>; 13] = [
        circles::check,
        commits::check,
        documents::check,
        errors::check,
        homes::check,
        imports::check,
        layering::check,
        names::check,
        prose::check,
        published::check,
        repository::check,
        sources::check,
        text::check,
    ];
    let mut findings: Vec<Finding> = rules.iter().flat_map(|rule| rule(tree)).collect();
    findings.sort();
    findings
}
