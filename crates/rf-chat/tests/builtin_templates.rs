//! Built-in chat templates write the documented text of each family for a conversation of a system
//! message, a question, an answer and another question.
//!
//! The texts are those of the vendors' templates in `transformers`, or of `llama.cpp`'s tests where
//! the vendor has no system message.

use std::collections::BTreeMap;

use chrono::{Local, TimeZone};
use rf_chat::{ChatTemplate, Error, Message, RenderOptions};
use serde_json::{Value, json};

const EXPECTED: &[(&str, &str)] = &[
    (
        "chatml",
        "<|im_start|>system\nSYS<|im_end|>\n<|im_start|>user\nU1 <|im_end|>\n\
         <|im_start|>assistant\nA1<|im_end|>\n<|im_start|>user\nU2<|im_end|>\n\
         <|im_start|>assistant\n",
    ),
    (
        "command-r",
        "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>SYS<|END_OF_TURN_TOKEN|>\
         <|START_OF_TURN_TOKEN|><|USER_TOKEN|>U1<|END_OF_TURN_TOKEN|>\
         <|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>A1<|END_OF_TURN_TOKEN|>\
         <|START_OF_TURN_TOKEN|><|USER_TOKEN|>U2<|END_OF_TURN_TOKEN|>\
         <|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
    ),
    (
        "command-r7b",
        "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>SYS<|END_OF_TURN_TOKEN|>\
         <|START_OF_TURN_TOKEN|><|USER_TOKEN|>U1<|END_OF_TURN_TOKEN|>\
         <|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|><|START_RESPONSE|>A1<|END_RESPONSE|>\
         <|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|USER_TOKEN|>U2<|END_OF_TURN_TOKEN|>\
         <|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|><|START_RESPONSE|>",
    ),
    (
        "chatglm4",
        "[gMASK]<sop><|system|>\nSYS<|user|>\nU1 <|assistant|>\nA1<|user|>\nU2<|assistant|>\n",
    ),
    (
        "glm4",
        "[gMASK]<sop><|system|>\nSYS<|user|>\nU1 <|assistant|>\nA1<|user|>\nU2<|assistant|>\n",
    ),
    (
        "glm4.5",
        "[gMASK]<sop><|system|>\nSYS<|user|>\nU1 <|assistant|>\n<think></think>\nA1<|user|>\nU2\
         <|assistant|>",
    ),
    (
        "deepseek3",
        "SYS\n\n<｜User｜>U1 <｜Assistant｜>A1<｜end▁of▁sentence｜><｜User｜>U2<｜Assistant｜>",
    ),
    (
        "ernie4.5",
        "<|begin_of_sentence|>SYS\nUser: U1 \nAssistant: A1<|end_of_sentence|>User: U2\nAssistant: ",
    ),
    (
        "exaone4",
        "[|system|]\nSYS[|endofturn|]\n[|user|]\nU1 [|endofturn|]\n[|assistant|]\n\
         <think>\n\n</think>\n\nA1[|endofturn|]\n[|user|]\nU2[|endofturn|]\n[|assistant|]\n\
         <think>\n\n</think>\n\n",
    ),
    ("falcon3", "<|system|>\nSYS\n<|user|>\nU1 \n<|assistant|>\nA1\n<|user|>\nU2\n<|assistant|>\n"),
    (
        "gemma",
        "<start_of_turn>user\nSYS\n\nU1<end_of_turn>\n<start_of_turn>model\nA1<end_of_turn>\n\
         <start_of_turn>user\nU2<end_of_turn>\n<start_of_turn>model\n",
    ),
    (
        "gemma4",
        "<|turn>system\nSYS<turn|>\n<|turn>user\nU1<turn|>\n<|turn>model\nA1<turn|>\n\
         <|turn>user\nU2<turn|>\n<|turn>model\n<|channel>thought\n<channel|>",
    ),
    (
        "gpt-oss",
        "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n\
         Knowledge cutoff: 2024-06\nCurrent date: 2026-09-22\n\nReasoning: medium\n\n\
         # Valid channels: analysis, commentary, final. Channel must be included for every message.\
         <|end|><|start|>developer<|message|># Instructions\n\nSYS\n\n<|end|>\
         <|start|>user<|message|>U1 <|end|><|start|>assistant<|channel|>final<|message|>A1<|end|>\
         <|start|>user<|message|>U2<|end|><|start|>assistant",
    ),
    (
        "granite",
        "<|start_of_role|>system<|end_of_role|>SYS<|end_of_text|>\n\
         <|start_of_role|>user<|end_of_role|>U1 <|end_of_text|>\n\
         <|start_of_role|>assistant<|end_of_role|>A1<|end_of_text|>\n\
         <|start_of_role|>user<|end_of_role|>U2<|end_of_text|>\n\
         <|start_of_role|>assistant<|end_of_role|>",
    ),
    (
        "hunyuan-dense",
        "<｜hy_begin▁of▁sentence｜>SYS<｜hy_place▁holder▁no▁3｜><｜hy_User｜>U1 <｜hy_Assistant｜>A1\
         <｜hy_place▁holder▁no▁2｜><｜hy_User｜>U2<｜hy_Assistant｜>",
    ),
    ("llama2", "[INST] SYS\nU1  [/INST]A1</s>[INST] U2 [/INST]"),
    ("llama2-sys", "[INST] <<SYS>>\nSYS\n<</SYS>>\n\nU1  [/INST]A1</s>[INST] U2 [/INST]"),
    ("llama2-sys-bos", "[INST] <<SYS>>\nSYS\n<</SYS>>\n\nU1  [/INST]A1</s><s>[INST] U2 [/INST]"),
    ("llama2-sys-strip", "[INST] <<SYS>>\nSYS\n<</SYS>>\n\nU1 [/INST]A1</s>[INST] U2 [/INST]"),
    (
        "llama3",
        "<|start_header_id|>system<|end_header_id|>\n\nSYS<|eot_id|>\
         <|start_header_id|>user<|end_header_id|>\n\nU1<|eot_id|>\
         <|start_header_id|>assistant<|end_header_id|>\n\nA1<|eot_id|>\
         <|start_header_id|>user<|end_header_id|>\n\nU2<|eot_id|>\
         <|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
    (
        "llama4",
        "<|header_start|>system<|header_end|>\n\nSYS<|eot|><|header_start|>user<|header_end|>\n\n\
         U1<|eot|><|header_start|>assistant<|header_end|>\n\nA1<|eot|>\
         <|header_start|>user<|header_end|>\n\nU2<|eot|>\
         <|header_start|>assistant<|header_end|>\n\n",
    ),
    ("minicpm", "SYS<用户>U1<AI>A1<用户>U2<AI>"),
    ("mistral-v1", " [INST] SYS\n\nU1  [/INST] A1</s> [INST] U2 [/INST]"),
    ("mistral-v3", "[INST] SYS\n\nU1 [/INST] A1</s>[INST] U2[/INST]"),
    ("mistral-v3-tekken", "[INST]SYS\n\nU1 [/INST]A1</s>[INST]U2[/INST]"),
    ("mistral-v7", "[SYSTEM_PROMPT] SYS[/SYSTEM_PROMPT][INST] U1 [/INST] A1</s>[INST] U2[/INST]"),
    (
        "mistral-v7-tekken",
        "[SYSTEM_PROMPT]SYS[/SYSTEM_PROMPT][INST]U1 [/INST]A1</s>[INST]U2[/INST]",
    ),
    (
        "olmo2",
        "<|endoftext|><|system|>\nSYS\n<|user|>\nU1 \n<|assistant|>\nA1<|endoftext|>\n\
         <|user|>\nU2\n<|assistant|>\n",
    ),
    (
        "phi3",
        "<|system|>\nSYS<|end|>\n<|user|>\nU1 <|end|>\n<|assistant|>\nA1<|end|>\n\
         <|user|>\nU2<|end|>\n<|assistant|>\n",
    ),
    (
        "phi4",
        "<|im_start|>system<|im_sep|>SYS<|im_end|><|im_start|>user<|im_sep|>U1 <|im_end|>\
         <|im_start|>assistant<|im_sep|>A1<|im_end|><|im_start|>user<|im_sep|>U2<|im_end|>\
         <|im_start|>assistant<|im_sep|>",
    ),
    (
        "phi4-mini",
        "<|system|>SYS<|end|><|user|>U1 <|end|><|assistant|>A1<|end|><|user|>U2<|end|><|assistant|>",
    ),
    (
        "seed_oss",
        "<seed:bos>system\nSYS<seed:eos><seed:bos>user\nU1 <seed:eos><seed:bos>assistant\nA1\
         <seed:eos><seed:bos>user\nU2<seed:eos><seed:bos>assistant\n",
    ),
    // The vendor's template has no end of the system's turn.
    (
        "smollm3",
        "<|im_start|>system\n## Metadata\n\nKnowledge Cutoff Date: June 2025\n\
         Today Date: 22 September 2026\nReasoning Mode: /think\n\n## Custom Instructions\n\nSYS\n\n\
         <|im_start|>user\nU1 <|im_end|>\n<|im_start|>assistant\nA1<|im_end|>\n\
         <|im_start|>user\nU2<|im_end|>\n<|im_start|>assistant\n",
    ),
    ("vicuna", "SYS\n\nUSER: U1 \nASSISTANT: A1</s>\nUSER: U2\nASSISTANT:"),
    (
        "zephyr",
        "<|system|>\nSYS<|endoftext|>\n<|user|>\nU1 <|endoftext|>\n<|assistant|>\nA1\
         <|endoftext|>\n<|user|>\nU2<|endoftext|>\n<|assistant|>\n",
    ),
];

fn conversation() -> Vec<Message> {
    [("system", "SYS"), ("user", "U1 "), ("assistant", "A1"), ("user", "U2")]
        .map(|(role, content)| Message::new(role, content))
        .into()
}

fn options(variables: &[(&str, Value)]) -> RenderOptions {
    RenderOptions::default()
        .with_add_generation_prompt(true)
        .with_now(Local.with_ymd_and_hms(2026, 9, 22, 12, 0, 0).single())
        .with_variables(variables.iter().map(|(name, v)| ((*name).to_owned(), v.clone())).collect())
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes under Miri")]
fn every_template_writes_the_documented_text() {
    let texts: BTreeMap<&str, &str> = EXPECTED.iter().copied().collect();
    for name in ChatTemplate::builtin_names() {
        let template = ChatTemplate::builtin(name).unwrap();
        let text = template.render(&conversation(), &options(&[])).unwrap();
        assert_eq!(Some(text.as_str()), texts.get(name).copied(), "{name}");
    }
    assert_eq!(ChatTemplate::builtin_names().count(), texts.len());
}

#[test]
fn a_conversation_without_a_system_message_starts_with_the_question() {
    let messages = &conversation()[3..];
    for (name, expected) in [
        ("gemma", "<start_of_turn>user\nU2<end_of_turn>\n<start_of_turn>model\n"),
        ("mistral-v1", " [INST] U2 [/INST]"),
        ("llama2-sys-bos", "[INST] U2 [/INST]"),
        ("hunyuan-dense", "<｜hy_begin▁of▁sentence｜><｜hy_User｜>U2<｜hy_Assistant｜>"),
    ] {
        let template = ChatTemplate::builtin(name).unwrap();
        assert_eq!(template.render(messages, &options(&[])).unwrap(), expected, "{name}");
    }
}

#[test]
fn variables_switch_reasoning() {
    let thinking = options(&[("enable_thinking", json!(true))]);
    let effort = options(&[("reasoning_effort", json!("high"))]);
    let no_thinking = options(&[("enable_thinking", json!(false))]);
    for (name, options, part) in [
        ("smollm3", &no_thinking, "U2<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n"),
        ("gemma4", &thinking, "<|turn>system\n<|think|>SYS<turn|>\n"),
        ("exaone4", &thinking, "[|assistant|]\n<think>\n"),
        ("gpt-oss", &effort, "\n\nReasoning: high\n\n"),
    ] {
        let text = ChatTemplate::builtin(name).unwrap().render(&conversation(), options).unwrap();
        assert!(text.contains(part), "{name}: {text}");
    }
}

#[test]
fn unknown_names_are_refused_with_the_known_ones() {
    let error = ChatTemplate::builtin("nonesuch").unwrap_err();
    assert!(matches!(&error, Error::UnknownTemplate { name, .. } if name == "nonesuch"));
    assert!(error.to_string().contains("chatml, command-r"), "{error}");
}
