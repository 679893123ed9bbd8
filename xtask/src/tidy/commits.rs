//! Rule *commits*: the subject of a commit has at most 72 characters and no full stop.

use super::finding::Finding;
use super::tree::Tree;

const MAX_SUBJECT: usize = 72;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.commits.iter().flat_map(|commit| subject(&commit.hash, &commit.subject)).collect()
}

fn subject(hash: &str, subject: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let length = subject.chars().count();
    if length > MAX_SUBJECT {
        let message = format!("subject of {length} characters, at most {MAX_SUBJECT}: {subject}");
        findings.push(Finding::new(&format!("commit {hash}"), 1, message));
    }
    if subject.ends_with('.') {
        let message = format!("subject ends with a full stop: {subject}");
        findings.push(Finding::new(&format!("commit {hash}"), 1, message));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_subjects_and_sentences_are_found() {
        assert!(subject("1234", &"x".repeat(72)).is_empty());
        let found = subject("1234", &format!("{}.", "x".repeat(72)));
        assert_eq!(found.len(), 2);
        assert!(found[0].to_string().starts_with("commit 1234:1: subject of 73 characters"));
    }
}
