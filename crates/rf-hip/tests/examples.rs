//! The numbered examples run on the first GPU, or say why they do not. `cargo test` builds them.

use rf_testing::{outputs_of_numbered_examples, skip};

#[test]
fn every_numbered_example_runs_on_the_first_gpu() {
    let outputs = outputs_of_numbered_examples(env!("CARGO_MANIFEST_DIR"));
    let results = [
        " compute units, ",
        "round trip of 16777216 numbers: equal\n",
        "; 0 wrong\n",
        "y[0] = 600, expected 600\n",
        " = 10; 0 wrong\n",
    ];
    assert_eq!(outputs.len(), results.len());
    for ((name, output), result) in outputs.into_iter().zip(results) {
        match output.lines().find_map(|line| line.strip_prefix("skipped: ")) {
            Some(why) => skip!("{name}: {why}"),
            None => assert!(output.contains(result), "{name}: {output}"),
        }
    }
}
