//! The numbered examples run on the demo model and end well. `cargo test` builds them.

use rf_testing::{output_of_example, outputs_of_numbered_examples};

#[test]
fn every_numbered_example_runs() {
    assert_eq!(outputs_of_numbered_examples(env!("CARGO_MANIFEST_DIR")).len(), 10);
}

#[test]
fn a_tool_is_called_and_its_result_is_answered() {
    let output = output_of_example("03_tools");
    assert!(output.starts_with("the model calls weather with {\"town\":"), "{output}");
    assert!(output.contains("then it says: "), "{output}");
}

#[test]
fn both_ways_of_streaming_give_the_same_answer() {
    let output = output_of_example("02_streaming");
    let answers: Vec<&str> = output.split_inclusive(" tokens]").map(str::trim).collect();
    let [blocking, asynchronous, ""] = answers[..] else { panic!("{output}") };
    assert_eq!(blocking, asynchronous);
}

/// The first program of the crate's README is a doc test. The repository's README has the same.
#[test]
fn the_readme_of_the_repository_has_the_tested_program_of_eight_lines() {
    let folder = env!("CARGO_MANIFEST_DIR");
    let read = |path: &str| std::fs::read_to_string(format!("{folder}/{path}")).unwrap();
    let own = read("README.md");
    let program = own.split("```rust,no_run\n").nth(1).and_then(|rest| rest.split("```").next());
    let program = program.unwrap();
    assert!(program.lines().count() <= 8, "{program}");
    assert!(read("../../README.md").contains(program));
}
