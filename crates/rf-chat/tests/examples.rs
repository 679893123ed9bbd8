//! The example runs on the demo model. `cargo test` builds it.

use rf_testing::output_of_example;

/// The template of the demo model knows no tools, so the first message describes them.
#[test]
fn the_prompt_has_the_messages_the_tool_its_call_and_its_result() {
    let output = output_of_example("prompt");
    let turns: Vec<&str> = output.split("<|im_start|>").collect();
    let ["", system, user, call, result, rest] = turns[..] else { panic!("{output}") };
    assert!(
        system.starts_with("system\n") && system.ends_with("\n\nBe brief.<|im_end|>\n"),
        "{system}"
    );
    assert!(system.contains(r#""properties":{"town":{"type":"string"}}"#), "{system}");
    assert_eq!(user, "user\nIs it cold in Oslo?<|im_end|>\n");
    let object = r#"{"name":"weather","arguments":{"town":"Oslo"}}"#;
    assert_eq!(call, format!("assistant\n{object}<|im_end|>\n"));
    assert!(result.contains("-3 °C, snow<|im_end|>"), "{result}");
    assert!(rest.starts_with("assistant\n\ncalls: Object, reasoning: Think\n"), "{rest}");
}
