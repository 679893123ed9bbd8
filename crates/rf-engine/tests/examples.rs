//! The example runs on the demo model. `cargo test` builds it.

use rf_testing::output_of_example;

#[test]
fn the_chat_answers_both_questions() {
    let output = output_of_example("chat");
    let answers: Vec<&str> = output.split("> ").skip(1).collect();
    assert_eq!(answers.len(), 2, "{output}");
    for answer in answers {
        let (question, text) = answer.split_once('\n').unwrap();
        assert!(question.contains("fox"), "{output}");
        assert!(text.trim_end().ends_with(" tokens]") && !text.starts_with("\n["), "{output}");
    }
}
