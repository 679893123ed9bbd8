//! The example runs on the demo model. `cargo test` builds it.

#![cfg(not(miri))]

use rf_testing::output_of_example;

/// The ids are those of llama.cpp, as in `golden/logits-stories-7m.json`.
#[test]
fn a_text_is_tokenized_by_the_demo_model() {
    let expected = "12 of 4096 ids: [903, 935, 262, 442, 15, 400, 299, 262, 501, 658, 91, 427]\n\
                    [\"Once\", \" upon\", \" a\", \" time\", \",\", \" there\", \" was\", \" a\", \
                    \" little\", \" fo\", \"x\", \" named\"]\n\
                    Once upon a time, there was a little fox named\n";
    assert_eq!(output_of_example("tokenize"), expected);
}
