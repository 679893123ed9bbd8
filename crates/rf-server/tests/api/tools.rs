//! Tool calls and reasoning through every API, by a model whose answers are fixed.

use crate::answers::{ARGUMENTS, EDIT, PLAIN, REASONING, RESULT};
use crate::server::{Setup, TestServer};
use crate::{answers, fixed};
use rocmforge::engine::EngineOptions;
use serde_json::{Value, json};

pub(crate) fn start() -> TestServer {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("fixed.gguf");
    answers::answers(|answers| fixed::write(&model, answers::TEMPLATE, answers)).unwrap();
    let engine = EngineOptions::default().with_kv_tokens(Some(8192));
    TestServer::with(Setup { model, engine, ..Setup::default() })
}

fn parameters() -> Value {
    json!({
        "type": "object",
        "properties": { "city": { "type": "string" }, "days": { "type": "integer" } },
    })
}

pub(crate) fn function() -> Value {
    json!([{ "type": "function", "function": { "name": "weather", "parameters": parameters() } }])
}

fn user(text: &str) -> Value {
    json!({ "role": "user", "content": text })
}

#[test]
fn each_prompt_gets_its_answer() {
    let server = start();
    for (message, answer) in [("Hello", PLAIN), ("Change greeting.py", EDIT)] {
        let body = json!({ "messages": [user(message)] });
        let found = server.post("/v1/chat/completions", &body).ok();
        let choice = &found["choices"][0];
        // White space at the end of an answer is not part of it.
        assert_eq!(choice["message"]["content"].as_str().unwrap().trim_end(), answer.trim_end());
        assert_eq!(choice["finish_reason"], "stop");
        assert_eq!(found["usage"]["completion_tokens_details"]["reasoning_tokens"], 0);
    }
}

#[test]
fn openai_calls_a_tool_and_gets_its_result() {
    let server = start();
    let mut body = json!({ "messages": [user("Weather?")], "tools": function() });
    let answer = server.post("/v1/chat/completions", &body).ok();
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    let message = &choice["message"];
    assert_eq!(message["content"], Value::Null);
    assert_eq!(message["reasoning_content"], REASONING);
    let call = &message["tool_calls"][0];
    assert_eq!(call["function"], json!({ "name": "weather", "arguments": ARGUMENTS }));
    let usage = &answer["usage"];
    let reasoning = usage["completion_tokens_details"]["reasoning_tokens"].as_u64().unwrap();
    // Tokens have five bytes on average.
    let expected = REASONING.len() as u64 / 5;
    assert!((expected..expected + 6).contains(&reasoning), "{usage}");
    assert!(reasoning < usage["completion_tokens"].as_u64().unwrap() / 2, "{usage}");

    body["messages"].as_array_mut().unwrap().push(message.clone());
    let result = json!({ "role": "tool", "tool_call_id": call["id"], "content": "sunny" });
    body["messages"].as_array_mut().unwrap().push(result);
    let answer = server.post("/v1/chat/completions", &body).ok();
    assert_eq!(answer["choices"][0]["message"]["content"], RESULT);
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
}

#[test]
fn openai_streams_the_arguments_of_a_call() {
    let server = start();
    let body = json!({
        "messages": [user("Weather?")], "tools": function(), "stream": true,
        "stream_options": { "include_usage": true },
    });
    let (chunks, is_done) = server.post("/v1/chat/completions", &body).events();
    assert!(is_done);
    let text = |path: &str| -> String {
        let deltas = chunks.iter().filter_map(|chunk| chunk.pointer("/choices/0/delta"));
        deltas.filter_map(|delta| delta.pointer(path)?.as_str().map(str::to_owned)).collect()
    };
    assert_eq!(text("/reasoning_content"), REASONING);
    assert_eq!(text("/tool_calls/0/function/name"), "weather");
    assert_eq!(text("/tool_calls/0/function/arguments"), ARGUMENTS);
    let arguments = |chunk: &&Value| {
        chunk.pointer("/choices/0/delta/tool_calls/0/function/arguments").is_some()
    };
    assert!(chunks.iter().filter(arguments).count() > 3, "the arguments come in pieces");
    let usage = &chunks.last().unwrap()["usage"];
    assert!(usage["completion_tokens_details"]["reasoning_tokens"].as_u64().unwrap() > 3);
}

/// A model that calls a tool, or answers with a text after the result of one.
fn start_with_call(call: &str) -> TestServer {
    const TEMPLATE: &str = "\
        {%- for m in messages %}<{{ m.role }}>{{ m.content }}\
        {%- for c in m.tool_calls or [] %}<{{ c.function.name }} {{ c.function.arguments|tojson }}>\
        {%- endfor %}{% endfor -%}\
        {%- if tools and messages[-1].role != 'tool' -%}<|call|>{%- else -%}<|plain|>{%- endif -%}\
        {#- <tool_call> <think> -#}";
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("fixed.gguf");
    let call = format!("<think>\nHm.\n</think>\n<tool_call>\n{call}\n</tool_call>");
    fixed::write(&model, TEMPLATE, &[("<|plain|>", PLAIN), ("<|call|>", &call)]).unwrap();
    let engine = EngineOptions::default().with_kv_tokens(Some(8192));
    TestServer::with(Setup { model, engine, ..Setup::default() })
}

#[test]
fn custom_tools_of_chats_are_called_with_a_text() {
    let chat = "/v1/chat/completions";
    let server = start_with_call(r#"{"name": "patch", "arguments": {"input": "*** Begin\nx"}}"#);
    let format = json!({ "type": "grammar",
        "grammar": { "syntax": "lark", "definition": "start: /.+/" } });
    let tool = json!({ "type": "custom",
        "custom": { "name": "patch", "description": "d", "format": format } });
    let choice = json!({ "type": "custom", "custom": { "name": "patch" } });
    let body = json!({ "messages": [user("x")], "tools": [tool] });
    let answer = server.post(chat, &body).ok();
    assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls");
    let message = answer["choices"][0]["message"].clone();
    let call = &message["tool_calls"][0];
    let custom = json!({ "name": "patch", "input": "*** Begin\nx" });
    let expected = json!([{ "id": call["id"], "type": "custom", "custom": custom }]);
    assert_eq!(message["tool_calls"], expected);

    let mut streamed = body.clone();
    streamed["stream"] = json!(true);
    let (chunks, _) = server.post(chat, &streamed).events();
    let calls: Vec<_> =
        chunks.iter().filter_map(|chunk| chunk.pointer("/choices/0/delta/tool_calls/0")).collect();
    assert_eq!(calls[0]["type"], "custom");
    assert_eq!(calls[0]["custom"], json!({ "name": "patch", "input": "" }));
    let rest = json!({ "index": 0, "custom": { "input": "*** Begin\nx" } });
    assert_eq!(calls[1..], [&rest]);

    // The client sends the call again, with its result.
    let result = json!({ "role": "tool", "tool_call_id": call["id"], "content": "ok" });
    let next = json!({ "messages": [user("x"), message, result], "tools": [tool] });
    let rendered = server.post("/v1/chat/completions/render", &next).ok();
    let prompt = rendered["prompt"].as_str().unwrap();
    assert!(prompt.contains(r#"<patch {"input": "*** Begin\nx"}>"#), "{prompt}");
    let answer = server.post(chat, &next).ok();
    assert_eq!(answer["choices"][0]["message"]["content"].as_str().unwrap().trim_end(), PLAIN);

    let mut demanded = body.clone();
    demanded["tool_choice"] = choice;
    demanded["max_tokens"] = json!(200);
    let answer = server.post(chat, &demanded).ok();
    let call = &answer["choices"][0]["message"]["tool_calls"][0];
    assert_eq!((&call["type"], &call["custom"]["name"]), (&json!("custom"), &json!("patch")));
    demanded["tool_choice"]["custom"]["name"] = json!("other");
    let error = server.post(chat, &demanded);
    assert_eq!((error.status, &error.json()["error"]["param"]), (400, &json!("tool_choice")));
    for (field, value, param) in [
        ("tools", json!([{ "type": "custom", "custom": {} }]), "tools[0].custom.name"),
        (
            "messages",
            json!([{ "role": "assistant", "tool_calls": [{ "type": "custom" }] }, user("x")]),
            "messages[0].tool_calls[0].function",
        ),
    ] {
        let mut wrong = body.clone();
        wrong[field] = value;
        let error = server.post(chat, &wrong);
        assert_eq!((error.status, &error.json()["error"]["param"]), (400, &json!(param)));
    }
}

#[test]
fn reasoning_can_be_left_out() {
    let server = start();
    let mut body = json!({ "messages": [user("Weather?")], "tools": function() });
    let with = server.post("/v1/chat/completions", &body).ok();
    body["include_reasoning"] = json!(false);
    let without = server.post("/v1/chat/completions", &body).ok();
    let message = &without["choices"][0]["message"];
    assert!(message.get("reasoning_content").is_none(), "{message}");
    let call =
        |answer: &Value| answer["choices"][0]["message"]["tool_calls"][0]["function"].clone();
    assert_eq!(call(&without), call(&with));
    assert_eq!(
        without["usage"]["completion_tokens_details"],
        with["usage"]["completion_tokens_details"]
    );
    body["stream"] = json!(true);
    let streamed = server.post("/v1/chat/completions", &body);
    assert!(!streamed.text.contains("reasoning_content"), "{}", streamed.text);
    let chunks = streamed.events().0;
    let texts = chunks.iter().filter_map(|chunk| {
        chunk.pointer("/choices/0/delta/tool_calls/0/function/arguments")?.as_str()
    });
    assert_eq!(texts.collect::<String>(), ARGUMENTS);
    let error = server.post("/v1/responses", &json!({ "input": "x", "include_reasoning": false }));
    assert_eq!(error.json()["error"]["param"], "include_reasoning");
}

#[test]
fn anthropic_and_ollama_have_the_call_in_their_form() {
    let server = start();
    let tools = json!([{ "name": "weather", "input_schema": parameters() }]);
    let body = json!({ "messages": [user("Weather?")], "tools": tools, "max_tokens": 200 });
    let answer = server.post("/v1/messages", &body).ok();
    assert_eq!(answer["stop_reason"], "tool_use");
    assert_eq!(answer["content"][0]["thinking"], REASONING);
    assert_eq!(answer["content"][1]["name"], "weather");
    let arguments: Value = serde_json::from_str(ARGUMENTS).unwrap();
    assert_eq!(answer["content"][1]["input"], arguments);

    let body = json!({ "messages": [user("Weather?")], "tools": function(), "stream": false });
    let message = server.post("/api/chat", &body).ok()["message"].clone();
    assert_eq!(message["thinking"], REASONING);
    assert_eq!(message["tool_calls"][0]["function"]["arguments"], arguments);
}

/// Parsed into an `f64`, the first number would lose digits, and the second one is out of range.
#[test]
fn numbers_of_arguments_keep_the_digits_of_the_model() {
    const NUMBERS: &str = r#"{"n": 12345678901234567890123, "x": 1e400, "text": "a\nb"}"#;
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("fixed.gguf");
    let call = NUMBERS.replace(", \"x\"", ",\n\"x\"");
    let call = format!("<tool_call>\n{{\"name\": \"f\", \"arguments\": {call}}}\n</tool_call>");
    let template =
        "{% for m in messages %}{{ m.content }}{% endfor %}{{ tools }}<|a|>{# <tool_call> #}";
    fixed::write(&model, template, &[("<|a|>", &call)]).unwrap();
    let engine = EngineOptions::default().with_kv_tokens(Some(8192));
    let server = TestServer::with(Setup { model, engine, ..Setup::default() });
    let anthropic = json!([{ "name": "f", "input_schema": { "type": "object" } }]);
    let ollama = json!([{ "type": "function", "function": { "name": "f" } }]);
    for (path, tools, stream) in [
        ("/v1/messages", &anthropic, false),
        ("/api/chat", &ollama, false),
        ("/api/chat", &ollama, true),
    ] {
        let body = json!({
            "messages": [user("x")], "tools": tools, "max_tokens": 200, "stream": stream,
        });
        let answer = server.post(path, &body);
        assert_eq!(answer.status, 200, "{path}");
        let line = answer.text.lines().find(|line| line.contains(NUMBERS));
        assert!(line.is_some(), "{path}, stream {stream}: {}", answer.text);
    }
}

#[test]
fn responses_count_the_reasoning() {
    let server = start();
    let tools = json!([{ "type": "function", "name": "weather", "parameters": parameters() }]);
    let body = json!({ "input": "Weather?", "tools": tools });
    let answer = server.post("/v1/responses", &body).ok();
    assert_eq!(answer["output"][0]["content"][0]["text"], REASONING);
    assert_eq!(answer["output"][1]["arguments"], ARGUMENTS);
    let usage = &answer["usage"];
    assert!(usage["output_tokens_details"]["reasoning_tokens"].as_u64().unwrap() > 3, "{usage}");
}

#[test]
fn anthropic_names_the_stop_sequence_that_ended_the_answer() {
    let server = start();
    let mut body = json!({
        "messages": [user("Hello")], "max_tokens": 100,
        "stop_sequences": ["never", "two", "this answer", "answer"],
    });
    let answer = server.post("/v1/messages", &body).ok();
    assert_eq!(answer["content"][0]["text"], "Every prompt gets ");
    assert_eq!(answer["stop_reason"], "stop_sequence");
    assert_eq!(answer["stop_sequence"], "this answer");
    body["stream"] = json!(true);
    let (events, _) = server.post("/v1/messages", &body).events();
    let delta = events.iter().find(|event| event["type"] == "message_delta").unwrap();
    assert_eq!(delta["delta"]["stop_sequence"], "this answer");
    body["stop_sequences"] = json!(["never"]);
    let (events, _) = server.post("/v1/messages", &body).events();
    let delta = events.iter().find(|event| event["type"] == "message_delta").unwrap();
    assert_eq!(delta["delta"], json!({ "stop_reason": "end_turn", "stop_sequence": null }));
}
