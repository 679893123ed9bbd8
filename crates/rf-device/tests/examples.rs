//! The example runs on the demo model. `cargo test` builds it.

use rf_testing::output_of_example;

#[test]
fn the_placement_example_loads_the_demo_model() {
    let output = output_of_example("placement");
    assert!(output.contains(" layers on a GPU\nholds "), "{output}");
    assert!(output.ends_with("the token after \"Once upon a time\": \",\"\n"), "{output}");
}
