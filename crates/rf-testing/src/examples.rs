//! The examples of a crate as programs of its tests.

use std::path::Path;
use std::process::Command;

/// Runs an example of the crate under test without arguments, and returns its standard output.
/// `cargo test` builds examples into a folder next to that of the test.
///
/// # Panics
///
/// If the example is not built, fails, or prints nothing or something other than text.
pub fn output_of_example(name: &str) -> String {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().and_then(|deps| deps.parent()).unwrap().join("examples");
    let program = folder.join(name);
    let output = Command::new(&program).output();
    let output = output.unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {stderr}");
    assert!(!output.stdout.trim_ascii().is_empty(), "{name} prints nothing");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs the examples of a crate whose names begin with 01, 02 and so on, and returns their names
/// and outputs. `manifest_folder` is the folder of the crate.
///
/// # Panics
///
/// If a number is missing, and as [`output_of_example`].
pub fn outputs_of_numbered_examples(manifest_folder: &str) -> Vec<(String, String)> {
    let sources = Path::new(manifest_folder).join("examples").read_dir().unwrap();
    let name = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_owned();
    let mut names: Vec<String> = sources.map(|entry| name(&entry.unwrap().path())).collect();
    names.sort();
    for (number, name) in (1..).zip(&names) {
        assert!(name.starts_with(&format!("{number:02}")), "{names:?}");
    }
    let run = |name: String| {
        let output = output_of_example(&name);
        (name, output)
    };
    names.into_iter().map(run).collect()
}
