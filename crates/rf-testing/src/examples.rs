//! The examples of a crate as programs of its tests.

use std::process::Command;

/// Runs an example of the crate under test without arguments, and returns its standard output.
/// `cargo test` builds examples into a folder next to that of the test.
///
/// # Panics
///
/// If the example is not built, fails, or prints something other than text.
pub fn output_of_example(name: &str) -> String {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().and_then(|deps| deps.parent()).unwrap().join("examples");
    let program = folder.join(name);
    let output = Command::new(&program).output();
    let output = output.unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}
