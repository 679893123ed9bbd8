//! Any text in any pieces.

use proptest::prelude::*;
use rf_chat::{Answer, ToolFormat};

use crate::parsing::{format, parse, tools};

/// Parts of answers: markers, pieces of calls, and characters with a meaning.
const PARTS: [&str; 86] = [
    "<tool_call>",
    "</tool_call>",
    "<function=",
    "weather",
    "time",
    ">",
    "</function>",
    "<parameter=",
    "city",
    "days",
    "</parameter>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<|python_tag|>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "[CALL_ID]",
    "<|tool_call>",
    "<tool_call|>",
    "call:",
    "<|\"|>",
    "<start_function_call>",
    "<end_function_call>",
    "<escape>",
    "<|start|>",
    "assistant",
    "<|channel|>",
    "analysis",
    "commentary",
    "final",
    " to=functions.time",
    "<|message|>",
    "<|end|>",
    "<|call|>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "function",
    "<｜tool▁sep｜>",
    "```json",
    "```",
    "<｜tool▁call▁end｜>",
    "<｜DSML｜function_calls>",
    "<｜DSML｜invoke name=\"",
    "<｜DSML｜parameter name=\"",
    "\" string=\"",
    "</｜DSML｜parameter>",
    "</｜DSML｜invoke>",
    "<|tool_calls_section_begin|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    "<|tool_call_start|>",
    "(",
    ")",
    "=",
    "'",
    "\\u00e9",
    "<minimax:tool_call>",
    "<invoke name=\"",
    "\">",
    "</invoke>",
    "<parameter name=\"",
    "<think>",
    "</think>",
    "[THINK]",
    "[/THINK]",
    "<|channel>thought",
    "<channel|>",
    "{\"name\": ",
    "\"arguments\": ",
    "\"time\"",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    ";",
    "\"",
    "\\",
    "\n",
    " ",
    "<",
    "é",
];

fn text() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        6 => prop::sample::select(PARTS.as_slice()).prop_map(str::to_owned),
        1 => "[a-z0-9]{1,3}",
        1 => ".",
    ];
    prop::collection::vec(part, 0..40).prop_map(|parts| parts.concat())
}

fn tool_format() -> impl Strategy<Value = ToolFormat> {
    prop::sample::select(ToolFormat::all().collect::<Vec<_>>())
}

/// All text of an answer.
fn everything(answer: &Answer) -> String {
    let mut text = answer.content.clone() + &answer.reasoning;
    for call in &answer.calls {
        text += &call.name;
        text += &call.arguments;
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_answer_does_not_depend_on_the_pieces(
        text in text(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        tools_format in tool_format(),
        in_reasoning: bool,
    ) {
        let whole = parse(format(tools_format), &tools(), in_reasoning, [text.as_str()]);
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
        cuts.retain(|cut| text.is_char_boundary(*cut));
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|cut| &text[cut[0]..cut[1]]);
        prop_assert_eq!(&parse(format(tools_format), &tools(), in_reasoning, pieces), &whole);
        for call in whole.calls.iter().filter(|call| call.complete) {
            let arguments = serde_json::from_str::<serde_json::Map<_, serde_json::Value>>(&call.arguments);
            prop_assert!(arguments.is_ok(), "{:?}", call);
        }
    }

    /// Words between parts of calls are still there: as content, reasoning, names or arguments.
    #[test]
    fn no_word_is_lost(
        mut parts in prop::collection::vec(prop::sample::select(PARTS.as_slice()), 0..40),
        tools_format in tool_format(),
        in_reasoning: bool,
    ) {
        // Ids of calls are replaced.
        parts.retain(|part| *part != "[CALL_ID]");
        let word = |index: usize| format!("w{index}w");
        let text: String =
            parts.iter().enumerate().flat_map(|(i, part)| [(*part).to_owned(), word(i)]).collect();
        let answer = parse(format(tools_format), &tools(), in_reasoning, [text.as_str()]);
        let everything = everything(&answer);
        let cut_off = answer.calls.last().is_some_and(|call| !call.complete);
        // The header of a message of gpt-oss is no text.
        let in_header = |index: usize| {
            let headers = ["<|start|>", "<|channel|>", " to=functions.time"];
            let before = parts[..=index].iter().rev();
            let mut marks = before.filter(|part| headers.contains(part) || **part == "<|message|>");
            tools_format == ToolFormat::Harmony && marks.next().is_some_and(|m| *m != "<|message|>")
        };
        let kept = |i: usize| in_header(i) || everything.contains(&word(i));
        let mut lost = (0..parts.len()).filter(|i| !kept(*i));
        // The tag or key in which a call was cut off is not a word of the answer.
        let first_lost = lost.next();
        let only_the_end = cut_off && first_lost.is_some_and(|first| {
            (first..parts.len()).all(|i| !everything.contains(&word(i)))
        });
        prop_assert!(first_lost.is_none() || only_the_end, "{:?} of {} in {:?}", first_lost, text, answer);
    }
}
