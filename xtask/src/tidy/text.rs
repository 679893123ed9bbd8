//! Rules for the text of every file: no machine paths, no project phases.

use super::finding::Finding;
use super::tree::Tree;

/// Top-level folders that exist only on one machine, each with the number of components below it
/// that identify the machine: a home folder is one only with the name of its owner.
const MACHINE_FOLDERS: [(&str, usize); 4] = [("work", 0), ("root", 0), ("home", 1), ("Users", 1)];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts(&[""]) {
        for (line, content) in (1..).zip(text.lines()) {
            if let Some(folder) = machine_path(content) {
                let message = format!("path of one machine: {folder}");
                findings.push(Finding::new(path, line, message));
            }
            if let Some(phase) = project_phase(content) {
                let message = format!("\"{phase}\": name the thing, not when it was planned");
                findings.push(Finding::new(path, line, message));
            }
        }
    }
    findings
}

/// The part of an absolute path into a folder of [`MACHINE_FOLDERS`] that identifies the machine.
fn machine_path(line: &str) -> Option<&str> {
    line.match_indices('/').find_map(|(at, _)| {
        // Skips relative paths, URLs and words joined by slashes.
        let before = line[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || "._-~/}".contains(c)) {
            return None;
        }
        let rest = &line[at + 1..];
        let &(_, below) = MACHINE_FOLDERS.iter().find(|(folder, _)| {
            rest.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
        })?;
        let mut end = at + 1;
        for _ in 0..=below {
            let length = line[end..].find('/').filter(|&length| length > 0)?;
            let name = &line[end..end + length];
            if !name.chars().all(|c| c.is_alphanumeric() || "._-".contains(c)) {
                return None;
            }
            end += length + 1;
        }
        Some(&line[at..end])
    })
}

/// The word "phase" followed by a number, with any separator and capitalisation.
fn project_phase(line: &str) -> Option<&str> {
    const WORD: &str = "phase";
    let lower = line.to_ascii_lowercase(); // the same length as `line`
    lower.match_indices(WORD).find_map(|(at, _)| {
        let after = at + WORD.len();
        let rest = &lower[after..];
        let number = rest.strip_prefix([' ', '_', '-']).unwrap_or(rest);
        let digits = number.len() - number.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        (digits > 0).then(|| &line[at..after + (rest.len() - number.len()) + digits])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // The samples are assembled from parts, because the rules also check this file.

    #[test]
    fn machine_paths_are_found() {
        for (folder, rest) in
            [("work", "main/x"), ("root", ".cargo"), ("home", "me/x"), ("Users", "me/x")]
        {
            for before in ["", "see ", "\"", "(", "=", "`"] {
                let line = format!("{before}/{folder}/{rest}");
                assert!(machine_path(&line).is_some(), "{line}");
            }
        }
        let text = format!("fine\nat /{}/me/models\n", "home");
        let findings = check(&Tree::of(&[("README.md", &text)]));
        assert_eq!(findings.len(), 1);
        let expected = format!("README.md:2: path of one machine: /{}/me/", "home");
        assert_eq!(findings[0].to_string(), expected);
    }

    #[test]
    fn other_paths_are_not_machine_paths() {
        let fine = [
            "a/FOLDER/b",
            "../FOLDER/b",
            "./FOLDER/x",
            "$HOME/FOLDER/",
            "~/FOLDER/x",
            "https://example.org/FOLDER/1",
            "/usr/bin/env",
            "/workshop/x",
            "the /home folder",
            "/home/",
            "/home/$USER/x",
            "/opt/rocm/bin",
            "${DIR}/FOLDER/x",
        ];
        for (line, folder) in fine.iter().flat_map(|line| [(line, "work"), (line, "root")]) {
            let line = line.replace("FOLDER", folder);
            assert_eq!(machine_path(&line), None, "{line}");
        }
    }

    #[test]
    fn project_phases_are_found() {
        let word = "phase";
        for joined in [" 2", "12", "_5_paged", "-3"] {
            assert!(project_phase(&format!("// {word}{joined}")).is_some(), "{joined}");
        }
        let line = format!("done in P{} 12.", &word[1..]);
        assert_eq!(project_phase(&line), Some(&line["done in ".len()..line.len() - 1]));
    }

    #[test]
    fn phases_without_a_number_are_fine() {
        for line in ["the prefill phase", "phase of the sine", "phases: 2", "phase N"] {
            assert_eq!(project_phase(line), None, "{line}");
        }
    }
}
