//! Rule *prose*: comments and documents are wrapped at 100 columns.

use super::finding::Finding;
use super::tree::Tree;

/// The maximum width of a line of prose, in characters.
const MAX_COLUMNS: usize = 100;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts(&[".md"]) {
        findings.extend(wide_lines(path, prose_of_markdown(text)));
    }
    for (path, text) in tree.texts(&[".rs", ".h", ".hip"]) {
        findings.extend(wide_lines(path, comments(text)));
    }
    findings
}

/// The lines of a document outside code and tables, which cannot be wrapped.
fn prose_of_markdown(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let trimmed = line.trim_start();
        if trimmed.starts_with("```") {
            in_code = !in_code;
            return false;
        }
        !in_code && !trimmed.starts_with('|')
    })
}

fn comments(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines()).filter(|(_, line)| {
        let trimmed = line.trim_start();
        // Rows of tables in doc comments do not wrap either.
        trimmed.starts_with("//") && !trimmed.trim_start_matches(['/', '!', ' ']).starts_with('|')
    })
}

fn wide_lines<'a>(
    path: &str,
    lines: impl Iterator<Item = (usize, &'a str)>,
) -> impl Iterator<Item = Finding> {
    lines.filter(|(_, line)| is_too_wide(line)).map(move |(number, line)| {
        let columns = line.chars().count();
        let message = format!("{columns} columns of prose, at most {MAX_COLUMNS}");
        Finding::new(path, number, message)
    })
}

/// Returns true if a line is too wide and can be broken. A line of one word, such as a link,
/// cannot.
fn is_too_wide(line: &str) -> bool {
    line.chars().count() > MAX_COLUMNS
        && !line.contains("://")
        && line.trim_start().trim_start_matches(['/', '!', '*', '-', ' ']).contains(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        let tree = Tree::of(&[(path, text)]);
        check(&tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn wide_comments_and_paragraphs_are_found() {
        let wide = "word ".repeat(21);
        for (path, line) in [
            ("a.rs", format!("    // {wide}")),
            ("a.rs", format!("/// {wide}")),
            ("k.hip", format!("// {wide}")),
            ("a.md", wide.clone()),
        ] {
            assert_eq!(findings(path, &line).len(), 1, "{line}");
        }
        let exactly = format!("// {}", "é".repeat(50) + &" é".repeat(23) + "x");
        assert_eq!(exactly.chars().count(), 100);
        assert_eq!(findings("a.rs", &exactly), [""; 0]);
    }

    #[test]
    fn what_cannot_be_wrapped_is_fine() {
        let wide = "word ".repeat(21);
        for (path, line) in [
            ("a.md", format!("| {wide} |")),
            ("a.md", format!("```\n{wide}\n```")),
            ("a.md", format!("https://example.org/{}", "x".repeat(100))),
            ("a.rs", format!("let s = \"{wide}\";")),
            ("a.rs", format!("/// {}", "x".repeat(120))),
        ] {
            assert_eq!(findings(path, &line), [""; 0], "{line}");
        }
    }
}
