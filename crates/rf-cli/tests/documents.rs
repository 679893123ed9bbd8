//! The console blocks of the documents: each command prints what the document shows.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "functions of tests")]

mod program;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use program::shell;
use snapbox::data::DataFormat;
use snapbox::filter::NormalizeToExpected;
use snapbox::{Data, assert_data_eq};
use tempfile::TempDir;

#[test]
fn commands_in_documents_print_what_is_shown() {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    if !checkout.join("docs").exists() {
        rf_testing::skip!("no documents beside the crate");
        return;
    }
    for path in documents(&checkout) {
        let shown = fs::read_to_string(&path).unwrap();
        let document = Data::read_from(&path, Some(DataFormat::Text)).raw();
        // The commands of a document share a folder, in which the checkout's files are found.
        let folder = TempDir::new().unwrap();
        std::os::unix::fs::symlink(checkout.join("crates"), folder.path().join("crates")).unwrap();
        assert_data_eq!(replayed(&shown, folder.path()), document);
    }
}

/// The Markdown files of the checkout that users read.
fn documents(checkout: &Path) -> Vec<PathBuf> {
    let mut documents = Vec::new();
    let mut folders = vec![checkout.to_owned(), checkout.join("benchmarks"), checkout.join("docs")];
    for name in ["docs/notes", "docs/tutorials"] {
        folders.push(checkout.join(name));
    }
    let crates = fs::read_dir(checkout.join("crates")).unwrap();
    folders.extend(crates.map(|entry| entry.unwrap().path()));
    for folder in folders {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        documents.extend(entries.filter(|path| path.extension().is_some_and(|name| name == "md")));
    }
    documents
}

/// Runs the commands of a document and returns it with their output. Text that `…` stands for is
/// left out as before.
fn replayed(document: &str, folder: &Path) -> String {
    let mut replayed = String::new();
    let mut lines = document.lines().peekable();
    while let Some(line) = lines.next() {
        writeln!(replayed, "{line}").unwrap();
        if line != "```console" {
            continue;
        }
        let first = *lines.peek().unwrap_or(&"");
        assert!(first.starts_with("$ "), "a console block begins with a command: {first}");
        while let Some(command) = lines.next_if(|line| line.starts_with("$ ")) {
            let mut expected = String::new();
            while let Some(line) = lines.next_if(|line| !line.starts_with("$ ") && *line != "```") {
                writeln!(expected, "{line}").unwrap();
            }
            writeln!(replayed, "{command}").unwrap();
            replayed += &elided(&printed(&command[2..], folder), &expected);
        }
    }
    replayed
}

/// The output of a command line on a terminal, with `? CODE` after a failure.
fn printed(line: &str, folder: &Path) -> String {
    let line = line.replace("cargo run --release -p rf-cli --", "rf-cli");
    let output = shell(folder, &format!("exec 2>&1; {line}")).output().unwrap();
    let mut text = String::from_utf8(output.stdout).unwrap();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    if !output.status.success() {
        writeln!(text, "? {}", output.status.code().unwrap()).unwrap();
    }
    text
}

/// Replaces the parts of `actual` for which `expected` has a `…`: within a line, or alone for any
/// number of lines.
fn elided(actual: &str, expected: &str) -> String {
    let lines = expected.lines().map(|line| match line {
        "…" => "...\n".to_owned(),
        line => line.replace('…', "[..]") + "\n",
    });
    let pattern = Data::text(lines.collect::<String>());
    let elided = NormalizeToExpected::new().redact().normalize(Data::text(actual), &pattern);
    let elided = elided.render().unwrap().replace("[..]", "…");
    elided
        .lines()
        .map(|line| if line == "..." { "…\n".into() } else { format!("{line}\n") })
        .collect()
}
