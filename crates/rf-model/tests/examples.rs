//! The example runs on a golden model. `cargo test` builds it.

use rf_testing::output_of_example;

#[test]
fn the_operations_of_a_golden_model_are_listed() {
    let output = output_of_example("operations");
    assert!(output.starts_with("smollm3: "), "{output}");
    let counts = output.lines().filter_map(|line| line.trim_start().split_once(' '));
    let count_of = |op: &str| {
        let found = counts.clone().find(|(_, name)| *name == op);
        found.map(|(count, _)| count.parse::<usize>().unwrap())
    };
    assert_eq!(count_of("embed"), Some(1), "{output}");
    assert_eq!(count_of("rms_norm+matmul").map(|count| count > 3), Some(true), "{output}");
}
