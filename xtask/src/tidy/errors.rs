//! Rule *errors*: the errors of a library speak of its parameters, never of flags or commands of
//! `rf-cli`, which a program that depends on the library does not have. `rf-cli` adds them in
//! `failure.rs`.
//!
//! The rule reads the texts in `#[error(…)]`. Two libraries are programs in all but name, and are
//! left out: `rf-server` names the flags of `rf-cli serve` to the operator who starts it, and
//! `rf-bench` is what `cargo xtask bench` runs.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::finding::Finding;
use super::tree::Tree;

const LEFT_OUT: [&str; 3] = ["crates/rf-bench/", "crates/rf-cli/", "crates/rf-server/"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts(&[".rs"]) {
        let of_library = path.starts_with("crates/") && path.contains("/src/");
        if !of_library || LEFT_OUT.iter().any(|left_out| path.starts_with(left_out)) {
            continue;
        }
        // Rule *sources* reports files that cannot be parsed.
        let mut literals = Vec::new();
        collect_error_texts(text.parse().unwrap_or_default(), &mut literals);
        for (line, literal) in literals {
            if let Some(name) = name_of_program(&literal) {
                let message = format!(
                    "an error of a library must not name {name}: state the parameter, and add the \
                     flag in crates/rf-cli/src/failure.rs"
                );
                findings.push(Finding::new(path, line, message));
            }
        }
    }
    findings
}

/// Collects the string literals in attributes `#[error(…)]`, with their lines.
fn collect_error_texts(tokens: TokenStream, found: &mut Vec<(usize, String)>) {
    for token in tokens {
        let TokenTree::Group(group) = token else { continue };
        let mut inside = group.stream().into_iter();
        match (group.delimiter(), inside.next(), inside.next()) {
            (
                Delimiter::Bracket,
                Some(TokenTree::Ident(name)),
                Some(TokenTree::Group(arguments)),
            ) if name == "error" => {
                for argument in arguments.stream() {
                    if let TokenTree::Literal(literal) = argument {
                        found.push((literal.span().start().line, literal.to_string()));
                    }
                }
            }
            _ => collect_error_texts(group.stream(), found),
        }
    }
}

/// The flag or command of `rf-cli` in a text.
fn name_of_program(text: &str) -> Option<&'static str> {
    let is_flag = |(at, _): (usize, &str)| {
        let before = text[..at].chars().next_back().unwrap_or(' ');
        let after = text[at + 2..].chars().next().unwrap_or(' ');
        !before.is_alphanumeric() && before != '-' && after.is_ascii_lowercase()
    };
    if text.match_indices("--").any(is_flag) || text.contains(" -ngl") {
        Some("a flag")
    } else if text.contains("rf-cli ") {
        Some("a command")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(path: &str, text: &str) -> Vec<String> {
        check(&Tree::of(&[(path, text)])).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn flags_and_commands_in_errors_of_libraries_are_found() {
        for cure in ["use the CPU (--device cpu)", "see -ngl 3", "run `rf-cli doctor`"] {
            let text =
                format!("enum Error {{\n    #[error(\n\"no GPU: {cure}\"\n)]\n    NoGpu,\n}}\n");
            let found = messages("crates/rf-device/src/error.rs", &text);
            assert_eq!(found.len(), 1, "{cure}: {found:?}");
            let expected = "crates/rf-device/src/error.rs:3: an error of a library must not name ";
            assert!(found[0].starts_with(expected), "{found:?}");
            assert_eq!(messages("crates/rf-server/src/error.rs", &text), [""; 0]);
            assert_eq!(messages("crates/rf-device/tests/error.rs", &text), [""; 0]);
        }
    }

    #[test]
    fn other_texts_are_fine() {
        let text = "enum E {\n    #[error(\"a--b, ---, the CPU\")]\n    A,\n}\n\
                    const HELP: &str = \"--device cpu\"; // rf-cli doctor\n";
        assert_eq!(messages("crates/rf-device/src/error.rs", text), [""; 0]);
    }
}
