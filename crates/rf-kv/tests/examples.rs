//! The example runs. `cargo test` builds it.

#![cfg(not(miri))]

use rf_testing::output_of_example;

#[test]
fn pages_are_shared_copied_and_freed() {
    let expected = "\
first: 40 tokens in the pages [0, 1, 2], 1 available
position 17 is token 1 of page 1
32 of 40 tokens are cached
second: 40 tokens in the pages [0, 1, 3], 0 available
the KV cache is full: 1 more pages are needed and 0 are available
the backend copies page 3 to page 2
third: 41 tokens in the pages [0, 1, 2], 0 available
2 pages are free, 2 idle in the prefix cache
";
    assert_eq!(output_of_example("pages"), expected);
}
