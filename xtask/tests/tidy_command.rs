//! `cargo xtask tidy` as it is run: exit codes and printed findings.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn tidy(root: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["tidy", "--root"])
        .arg(root)
        .output()
        .expect("the built program runs")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

const WORKSPACE: &str = "[workspace]\nresolver = \"3\"\nmembers = [\"crates/rf-kv\"]\n\
                         [workspace.lints.rust]\nunsafe_code = \"deny\"\n";

const MEMBER: &str = "[package]\nname = \"rf-kv\"\npublish = false\n[lints]\nworkspace = true\n";

/// The map of this repository with a table of one crate.
fn architecture() -> String {
    let text = include_str!("../../ARCHITECTURE.md");
    let (before, table) =
        text.split_once("<!-- tidy: crates -->").expect("the marker of the table");
    let (_, after) = table.split_once("<!-- tidy: end -->").expect("the end of the table");
    let table = "| `rf-kv` | pages | `lib.rs` |";
    format!("{before}<!-- tidy: crates -->\n{table}\n<!-- tidy: end -->{after}")
}

/// A checkout without git and without findings.
fn clean_checkout() -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("a temporary folder");
    for (path, text) in [
        ("Cargo.toml", WORKSPACE),
        ("ARCHITECTURE.md", &*architecture()),
        ("CHANGELOG.md", "## [Unreleased]\n"),
        ("crates/rf-kv/Cargo.toml", MEMBER),
        ("crates/rf-kv/src/lib.rs", "//! Pages.\n"),
        ("target/debug/build.rs", "generated\n"),
    ] {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().expect("below the root")).expect("a writable folder");
        fs::write(path, text).expect("a writable folder");
    }
    root
}

#[test]
fn a_clean_checkout_exits_0() {
    let root = clean_checkout();
    let output = tidy(root.path());
    assert_eq!(stdout(&output), "tidy: 5 files, nothing found\n");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn findings_are_printed_in_order_and_exit_1() {
    let root = clean_checkout();
    fs::write(root.path().join("crates/rf-kv/src/utils.rs"), "fn f() {}\n").unwrap();
    fs::write(root.path().join("CHANGELOG.md"), "# Changelog\n").unwrap();
    let output = tidy(root.path());
    let stdout = stdout(&output);
    let places: Vec<&str> =
        stdout.lines().filter_map(|line| Some(line.split_once(": ")?.0)).collect();
    let file = "crates/rf-kv/src/utils.rs:1";
    assert_eq!(places, ["CHANGELOG.md:1", file, file, "tidy"], "{stdout}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_folder_that_is_no_checkout_exits_2() {
    let root = tempfile::tempdir().unwrap();
    let output = tidy(root.path());
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("is not a checkout of the workspace"), "{stderr}");
}

#[test]
fn only_tracked_files_are_looked_at_under_git() {
    let root = clean_checkout();
    let git = |args: &[&str]| {
        Command::new("git")
            .arg("-C")
            .arg(root.path())
            .args(args)
            .output()
            .map(|output| output.status.success())
    };
    if !matches!(git(&["init", "--quiet"]), Ok(true)) {
        rf_testing::skip!("git is not installed");
        return;
    }
    assert!(git(&["add", "Cargo.toml", "ARCHITECTURE.md", "CHANGELOG.md", "crates"]).unwrap());
    fs::write(root.path().join("crates/rf-kv/src/utils.rs"), "untracked").unwrap();
    assert_eq!(stdout(&tidy(root.path())), "tidy: 5 files, nothing found\n");
    assert!(git(&["add", "crates"]).unwrap());
    assert_eq!(tidy(root.path()).status.code(), Some(1));
}
