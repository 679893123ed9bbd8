//! Rules for single source files: length, names, header, unsafe.

use proc_macro2::{TokenStream, TokenTree};

use super::finding::Finding;
use super::tree::Tree;

/// The maximum number of lines of a source file. Most files should stay below 400.
const MAX_LINES: usize = 600;

/// Module names that do not describe their contents, and so attract unrelated code.
const BANNED_MODULES: [&str; 11] = [
    "util", "utils", "common", "helper", "helpers", "misc", "types", "manager", "managers",
    "handler", "handlers",
];

/// The starts of the paths that may contain `unsafe`; ARCHITECTURE.md lists them.
pub(super) const UNSAFE_ALLOWED: [&str; 9] = [
    "crates/rf-hip/",                       // the foreign functions of the HIP runtime
    "crates/rf-emu-hip/src/ffi",            // the same functions, exported
    "crates/rf-kernels/src/launch",         // kernel arguments by address
    "crates/rf-cpu/src/simd",               // vector loads, stores and target features
    "crates/rf-cpu/src/team",               // the parallel region borrows the caller's stack
    "crates/rf-cpu/src/exec",               // disjoint parts of buffers that the team shares
    "crates/rf-cpu/src/machine/windows.rs", // memory and cores
    "crates/rf-gguf/src/mmap.rs",           // mapping a file
    "crates/rf-gguf/tests/allocation.rs",   // a counting allocator
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts(&[".rs", ".hip"]) {
        findings.extend(length(path, text));
    }
    for (path, text) in tree.texts(&[".rs"]) {
        findings.extend(header(path, text));
        findings.extend(test_file(path));
        findings.extend(module_path(path));
        match text.parse() {
            Ok(tokens) => {
                let mut words = Vec::new();
                collect_words(tokens, &mut words);
                findings.extend(module_declarations(path, &words));
                findings.extend(unsafe_code(path, &words));
            }
            Err(error) => {
                let line = error.span().start().line;
                findings.push(Finding::new(path, line, format!("could not parse: {error}")));
            }
        }
    }
    findings
}

fn length(path: &str, text: &str) -> Option<Finding> {
    let lines = text.lines().count();
    (lines > MAX_LINES).then(|| {
        Finding::new(
            path,
            MAX_LINES + 1,
            format!("{lines} lines, at most {MAX_LINES}: split by what the parts know"),
        )
    })
}

fn header(path: &str, text: &str) -> Option<Finding> {
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    (!first.starts_with("//!"))
        .then(|| Finding::new(path, 1, "no //! at the top: describe the file in one sentence"))
}

fn test_file(path: &str) -> Option<Finding> {
    let in_src = path.split('/').any(|component| component == "src");
    let stem = path.rsplit('/').next()?.strip_suffix(".rs")?;
    let for_tests =
        stem.ends_with("_tests") || stem.ends_with("_test") || stem.starts_with("test_");
    (in_src && for_tests).then(|| {
        Finding::new(
            path,
            1,
            "test file under src: unit tests go at the end of their module, others into tests/",
        )
    })
}

fn module_path(path: &str) -> Option<Finding> {
    let named = |component: &&str| BANNED_MODULES.contains(&component.trim_end_matches(".rs"));
    let banned = path.split('/').find(named)?;
    Some(Finding::new(path, 1, banned_message(banned.trim_end_matches(".rs"))))
}

/// An identifier or keyword with its line.
type Word = (usize, String);

/// Collects the words of a file. Comments and literals have none.
fn collect_words(tokens: TokenStream, words: &mut Vec<Word>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => collect_words(group.stream(), words),
            TokenTree::Ident(word) => words.push((word.span().start().line, word.to_string())),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

fn module_declarations(path: &str, words: &[Word]) -> Vec<Finding> {
    let declared = words.windows(2).filter(|pair| pair[0].1 == "mod").map(|pair| &pair[1]);
    let banned = declared.filter(|(_, name)| BANNED_MODULES.contains(&&**name));
    banned.map(|(line, name)| Finding::new(path, *line, banned_message(name))).collect()
}

fn banned_message(name: &str) -> String {
    format!("module named {name}: name it after what it knows")
}

fn unsafe_code(path: &str, words: &[Word]) -> Vec<Finding> {
    if UNSAFE_ALLOWED.iter().any(|allowed| path.starts_with(allowed)) {
        return Vec::new();
    }
    let found = words.iter().filter(|(_, word)| word == "unsafe");
    found
        .map(|(line, _)| Finding::new(path, *line, "unsafe outside the modules that may use it"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(path: &str, text: &str) -> Vec<String> {
        check(&Tree::of(&[(path, text)])).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_plain_file_is_fine() {
        assert!(messages("crates/rf-kv/src/page.rs", "//! Pages.\n\nmod table;\n").is_empty());
        assert!(messages("crates/rf-kv/src/sampling/tests.rs", "//! Tests.\n").is_empty());
    }

    #[test]
    fn files_longer_than_the_cap_are_found() {
        let lines = |count: usize| format!("//! Long.\n{}", "//\n".repeat(count - 1));
        assert!(messages("crates/a/src/a.rs", &lines(600)).is_empty());
        let found = messages("crates/a/src/a.rs", &lines(601));
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("crates/a/src/a.rs:601: 601 lines, at most 600"), "{found:?}");
        assert_eq!(messages("kernels/matvec.hip", &lines(601)).len(), 1);
        assert!(messages("docs/long.md", &lines(601)).is_empty());
    }

    #[test]
    fn a_file_without_its_purpose_is_found() {
        assert_eq!(messages("crates/a/src/a.rs", "\n//! Purpose.\n").len(), 0);
        for text in ["", "use std::fmt;\n//! Late.\n", "// Not a doc comment.\n"] {
            let found = messages("crates/a/src/a.rs", text);
            assert!(found[0].starts_with("crates/a/src/a.rs:1: no //! at the top"), "{found:?}");
        }
    }

    #[test]
    fn test_files_under_src_are_found() {
        for name in ["mask_tests", "mask_test", "test_mask"] {
            let found = messages(&format!("crates/a/src/{name}.rs"), "//! Tests.\n");
            assert!(found[0].contains("test file under src"), "{found:?}");
        }
        assert!(messages("crates/a/tests/mask_tests.rs", "//! Tests.\n").is_empty());
        assert!(messages("crates/a/src/latest.rs", "//! Not a test.\n").is_empty());
    }

    #[test]
    fn module_names_without_meaning_are_found() {
        for path in
            ["crates/a/src/utils.rs", "crates/a/src/common/page.rs", "crates/a/tests/helpers.rs"]
        {
            assert!(messages(path, "//! X.\n")[0].contains("module named"), "{path}");
        }
        let found = messages("crates/a/src/lib.rs", "//! X.\npub(crate) mod misc { }\n");
        assert_eq!(
            found,
            ["crates/a/src/lib.rs:2: module named misc: name it after what it knows"]
        );
        assert!(
            messages("crates/a/src/dtypes.rs", "//! X.\n// mod utils\nmod cache;\n").is_empty()
        );
    }

    #[test]
    fn unsafe_is_found_outside_its_modules() {
        let text = "//! X.\nfn f() {\n    unsafe { g() }\n}\n";
        let found = messages("crates/rf-graph/src/plan.rs", text);
        assert_eq!(
            found,
            ["crates/rf-graph/src/plan.rs:3: unsafe outside the modules that may use it"]
        );
        for allowed in [
            "crates/rf-hip/src/sys.rs",
            "crates/rf-kernels/src/launch/geometry.rs",
            "crates/rf-cpu/src/simd/avx2.rs",
            "crates/rf-cpu/src/simd.rs",
            "crates/rf-cpu/src/team.rs",
            "crates/rf-gguf/src/mmap.rs",
        ] {
            assert!(messages(allowed, text).is_empty(), "{allowed}");
        }
    }

    #[test]
    fn unsafe_in_comments_strings_and_longer_words_is_no_code() {
        let text =
            "//! Not unsafe.\n#![forbid(unsafe_code)]\nconst S: &str = \"unsafe\"; // unsafe\n";
        assert!(messages("crates/a/src/lib.rs", text).is_empty());
    }
}
