//! Rules for the whole repository: the size of tracked files, and the changelog.

use super::finding::Finding;
use super::tree::Tree;

/// The maximum size of a tracked file, in bytes.
const MAX_FILE_BYTES: u64 = 12_000_000;

/// The limit of the total size of tracked files, in bytes, so that a clone takes seconds.
const MAX_TOTAL_BYTES: u64 = 25_000_000;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = sizes(tree, MAX_FILE_BYTES, MAX_TOTAL_BYTES);
    findings.extend(changelog(tree));
    findings
}

fn sizes(tree: &Tree, max_file: u64, max_total: u64) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| file.size_bytes > max_file) {
        let message = format!("{} bytes, at most {max_file} in a tracked file", file.size_bytes);
        findings.push(Finding::new(&file.path, 1, message));
    }
    let total: u64 = tree.files.iter().map(|file| file.size_bytes).sum();
    if total >= max_total {
        let message =
            format!("tracked files have {total} bytes together, fewer than {max_total} allowed");
        findings.push(Finding::new(".", 1, message));
    }
    findings
}

fn changelog(tree: &Tree) -> Option<Finding> {
    const PATH: &str = "CHANGELOG.md";
    let Some(text) = tree.text(PATH) else {
        return Some(Finding::new(PATH, 1, "missing: list the changes for users"));
    };
    let found = text.lines().any(|line| line.trim_end() == "## [Unreleased]");
    (!found).then(|| Finding::new(PATH, 1, "no section \"## [Unreleased]\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(findings: impl IntoIterator<Item = Finding>) -> Vec<String> {
        findings.into_iter().map(|finding| finding.to_string()).collect()
    }

    #[test]
    fn big_files_and_big_sums_are_found() {
        let tree = Tree::of(&[("a", "12345"), ("b", "123456"), ("c", "1")]);
        assert!(sizes(&tree, 6, 13).is_empty());
        assert_eq!(messages(sizes(&tree, 5, 13)), ["b:1: 6 bytes, at most 5 in a tracked file"]);
        let sum = ".:1: tracked files have 12 bytes together, fewer than 12 allowed";
        assert_eq!(messages(sizes(&tree, 6, 12)), [sum]);
    }

    #[test]
    fn a_changelog_without_unreleased_is_found() {
        let with = |text| changelog(&Tree::of(&[("CHANGELOG.md", text)]));
        assert_eq!(with("# Changelog\n\n## [Unreleased]\n"), None);
        assert!(with("# Changelog\n\n## [0.1.0]\n").is_some());
        assert!(changelog(&Tree::of(&[])).is_some());
    }
}
