//! The APIs of Anthropic, Ollama and llama.cpp, and `/v1/responses`, with the demo model.

use crate::server::{Response, Setup, TestServer};
use serde_json::{Value, json};

const STORY: &str = "Tell me a story about a fox and a lost key.";

fn user() -> Value {
    json!([{ "role": "user", "content": STORY }])
}

/// The greedy answer of 24 tokens.
fn greedy(server: &TestServer) -> String {
    let body = json!({ "messages": user(), "max_tokens": 24 });
    let answer = server.post("/v1/chat/completions", &body).ok();
    answer["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
}

/// The names of events, each of which is the type of its data.
fn names(response: &Response) -> Vec<String> {
    let names = response.text.lines().filter_map(|line| line.strip_prefix("event: "));
    let names: Vec<String> = names.map(str::to_owned).collect();
    let (events, _) = response.events();
    let types: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(names, types);
    names
}

#[test]
fn messages_of_anthropic_are_answered_and_streamed() {
    let server = TestServer::start();
    let mut body = json!({ "model": "demo", "max_tokens": 24, "messages": user() });
    let answer = server.post("/v1/messages?beta=true", &body).ok();
    let text = greedy(&server);
    assert_eq!(answer["type"], "message");
    assert_eq!(answer["content"], json!([{ "type": "text", "text": text }]));
    assert_eq!(answer["stop_reason"], "max_tokens");
    assert_eq!(answer["usage"]["output_tokens"], 24);
    let count = server.post("/v1/messages/count_tokens", &body).ok()["input_tokens"].clone();
    assert_eq!(answer["usage"]["input_tokens"], count);

    body["stream"] = json!(true);
    let response = server.post("/v1/messages", &body);
    let names = names(&response);
    assert_eq!(names[..2], ["message_start", "content_block_start"]);
    assert_eq!(names[names.len() - 3..], ["content_block_stop", "message_delta", "message_stop"]);
    let (events, _) = response.events();
    let streamed: String =
        events.iter().filter_map(|event| event["delta"]["text"].as_str()).collect();
    assert_eq!(streamed, text);
    assert_eq!(events[0]["message"]["usage"]["input_tokens"], count);
    assert_eq!(events[events.len() - 2]["usage"]["output_tokens"], 24);
    assert_eq!(events[events.len() - 2]["delta"]["stop_reason"], "max_tokens");

    body["stream"] = json!(false);
    body["stop_sequences"] = json!([&text[10..15]]);
    let answer = server.post("/v1/messages", &body).ok();
    assert_eq!(answer["stop_reason"], "stop_sequence");
}

#[test]
fn a_changing_billing_line_does_not_change_the_prompt() {
    let server = TestServer::start();
    let ask = |hash: &str| {
        let line = format!("x-anthropic-billing-header: cc_version=2.1; cch={hash};");
        let rules = "Tell stories about animals and keep them short and kind. ".repeat(6);
        let system = json!([{ "type": "text", "text": line }, { "type": "text", "text": rules }]);
        let body = json!({ "system": system, "messages": user(), "max_tokens": 4 });
        server.post("/v1/messages", &body).ok()["usage"].clone()
    };
    let (first, second) = (ask("a1b2"), ask("c3d4"));
    assert_eq!(first["cache_read_input_tokens"], 0);
    let cached = second["cache_read_input_tokens"].as_u64().unwrap();
    let computed = second["input_tokens"].as_u64().unwrap();
    // All but the last, incomplete page.
    assert!(computed <= 32, "{second}");
    assert_eq!(first["input_tokens"].as_u64().unwrap(), cached + computed);
}

#[test]
fn ollama_streams_lines_unless_told_otherwise() {
    let server = TestServer::start();
    let text = greedy(&server);
    let mut body = json!({
        "model": "demo:latest", "messages": user(), "options": { "num_predict": 24 },
    });
    let response = server.post("/api/chat", &body);
    assert_eq!(response.header("content-type"), "application/x-ndjson");
    let lines: Vec<Value> =
        response.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let streamed: String =
        lines.iter().map(|line| line["message"]["content"].as_str().unwrap()).collect();
    assert_eq!(streamed, text);
    let (last, rest) = lines.split_last().unwrap();
    assert!(rest.iter().all(|line| line["done"] == false));
    assert_eq!(last["done"], true);
    assert_eq!(last["done_reason"], "length");
    assert_eq!(last["eval_count"], 24);
    for duration in ["total_duration", "prompt_eval_duration", "eval_duration"] {
        assert!(last[duration].as_u64().unwrap() > 0, "{duration}");
    }
    body["stream"] = json!(false);
    assert_eq!(server.post("/api/chat", &body).ok()["message"]["content"], text);

    let body = json!({ "prompt": STORY, "options": { "num_predict": 24 }, "stream": false });
    assert_eq!(server.post("/api/generate", &body).ok()["response"], text);
    let body =
        json!({ "prompt": "Once", "raw": true, "options": { "num_predict": 3 }, "stream": false });
    let plain = json!({ "prompt": "Once", "max_tokens": 3 });
    let plain = server.post("/v1/completions", &plain).ok()["choices"][0]["text"].clone();
    assert_eq!(server.post("/api/generate", &body).ok()["response"], plain);
    let body = json!({
        "prompt": STORY, "options": { "num_predict": 3 }, "logprobs": true, "top_logprobs": 2,
        "stream": false,
    });
    let logprobs = server.post("/api/generate", &body).ok()["logprobs"].clone();
    let tokens: Vec<_> = logprobs.as_array().unwrap().iter().collect();
    assert_eq!(tokens.len(), 3);
    assert!(tokens.iter().all(|token| token["top_logprobs"].as_array().unwrap().len() == 2));
    // A greedy token is the first of its alternatives.
    assert_eq!(tokens[0]["token"], tokens[0]["top_logprobs"][0]["token"]);
    let load = server.post("/api/generate", &json!({ "model": "demo" })).ok();
    assert_eq!(load["done_reason"], "load");
    let body = json!({ "messages": user(), "options": { "temperature": "hot" } });
    let error = server.post("/api/chat", &body);
    assert_eq!(error.status, 400);
    assert!(error.json()["error"].as_str().unwrap().starts_with("`options.temperature`: "));
}

#[test]
fn ollama_knows_the_model() {
    let server = TestServer::start();
    let tags = server.get("/api/tags").ok();
    assert_eq!(tags["models"][0]["name"], "demo");
    assert_eq!(tags["models"][0]["details"]["quantization_level"], "Q8_0");
    assert_eq!(server.get("/api/ps").ok()["models"][0]["model"], "demo");
    let show = server.post("/api/show", &json!({ "model": "demo" })).ok();
    assert_eq!(show["model_info"]["llama.context_length"], 1024);
    assert_eq!(show["details"]["parameter_size"], "7.3M");
    assert!(server.get("/api/version").ok()["version"].is_string());
}

#[test]
fn the_template_in_use_is_shown() {
    let template = "{% for m in messages %}{{ m.content }}{% endfor %}{# tools #}";
    let server = TestServer::with(Setup { template: Some(template), ..Setup::default() });
    let show = server.post("/api/show", &json!({ "model": "demo" })).ok();
    assert_eq!(show["template"], template);
    assert!(show["capabilities"].as_array().unwrap().contains(&json!("tools")));
    assert_eq!(server.get("/props").ok()["chat_template"], template);
    let tokenizer = server.get("/tokenizer_info").ok();
    assert_eq!(tokenizer["chat_template"], template);
    assert_eq!(tokenizer["eos_token"], server.get("/props").ok()["eos_token"]);
    assert!(tokenizer["tokenizer_class"].as_str().is_some_and(|class| !class.is_empty()));
}

#[test]
fn responses_have_numbered_events() {
    let server = TestServer::start();
    let text = greedy(&server);
    let mut body = json!({ "input": STORY, "max_output_tokens": 24 });
    let answer = server.post("/v1/responses", &body).ok();
    assert_eq!(answer["object"], "response");
    assert_eq!(answer["status"], "incomplete");
    assert_eq!(answer["incomplete_details"]["reason"], "max_output_tokens");
    assert_eq!(answer["output"][0]["content"][0]["text"], text);
    assert_eq!(answer["usage"]["output_tokens"], 24);

    body["input"] =
        json!([{ "role": "user", "content": [{ "type": "input_text", "text": STORY }] }]);
    body["stream"] = json!(true);
    let response = server.post("/v1/responses", &body);
    let names = names(&response);
    let (events, _) = response.events();
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number);
    }
    let parts = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
    ];
    assert_eq!(names[..5], parts);
    let parts = [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.incomplete",
    ];
    assert_eq!(names[names.len() - 4..], parts);
    let streamed: String = events.iter().filter_map(|event| event["delta"].as_str()).collect();
    assert_eq!(streamed, text);
    let last = events.last().unwrap();
    assert_eq!(last["response"]["output"][0]["content"][0]["text"], text);

    let body = json!({ "input": "x", "previous_response_id": "resp_1" });
    let error = server.post("/v1/responses", &body).json();
    assert_eq!(error["error"]["param"], "previous_response_id");
}

#[test]
fn llama_cpp_completes_and_converts_text() {
    let server = TestServer::start();
    let plain = json!({ "prompt": "Once upon", "max_tokens": 8 });
    let text = server.post("/v1/completions", &plain).ok()["choices"][0]["text"].clone();
    let body = json!({ "prompt": "Once upon", "n_predict": 8, "n_probs": 2 });
    let answer = server.post("/completion", &body).ok();
    assert_eq!(answer["content"], text);
    assert_eq!(answer["stop"], true);
    assert_eq!(answer["stop_type"], "limit");
    assert_eq!(answer["tokens_predicted"], 8);
    let probabilities = answer["completion_probabilities"].as_array().unwrap();
    assert_eq!(probabilities.len(), 8);
    assert_eq!(probabilities[0]["top_logprobs"].as_array().unwrap().len(), 2);
    assert_eq!(answer["stopping_word"], "");
    let word = &text.as_str().unwrap()[3..6];
    for stream in [false, true] {
        let body = json!({ "prompt": "Once upon", "n_predict": 8, "stop": ["zzz", word], "stream": stream });
        let response = server.post("/completion", &body);
        let ended = if stream { response.events().0.pop().unwrap() } else { response.ok() };
        assert_eq!((&ended["stop_type"], &ended["stopping_word"]), (&json!("word"), &json!(word)));
    }
    let body = json!({ "prompt": "Once upon", "n_predict": 8, "stream": true });
    let (chunks, _) = server.post("/completion", &body).events();
    let streamed: String = chunks.iter().map(|chunk| chunk["content"].as_str().unwrap()).collect();
    assert_eq!(streamed, text);

    let body = json!({ "content": "Once upon a time", "with_pieces": true });
    let tokens = server.post("/tokenize", &body).ok()["tokens"].clone();
    assert_eq!(tokens[0], json!({ "id": 903, "piece": "Once" }));
    let ids = server.post("/tokenize", &json!({ "prompt": "Once upon a time" })).ok();
    assert_eq!(ids["count"], 4);
    assert_eq!(ids["max_model_len"], 1024);
    let back = server.post("/detokenize", &json!({ "tokens": ids["tokens"] })).ok();
    assert_eq!(back["content"], "Once upon a time");
    let chat = server.post("/tokenize", &json!({ "messages": user() })).ok();
    let prompt = server.post("/apply-template", &json!({ "messages": user() })).ok();
    let prompt = prompt["prompt"].as_str().unwrap().to_owned();
    assert!(prompt.contains(STORY) && prompt.ends_with("assistant\n"), "{prompt}");
    let again = server.post("/tokenize", &json!({ "content": prompt })).ok();
    assert_eq!(chat["tokens"], again["tokens"]);

    let error = server.post("/infill", &json!({ "input_prefix": "a", "input_suffix": "b" }));
    assert_eq!(error.status, 400);
    assert!(error.text.contains("cannot fill gaps"), "{}", error.text);
    assert_eq!(server.get("/props").ok()["default_generation_settings"]["n_ctx"], 1024);
    assert_eq!(server.get("/slots").ok().as_array().unwrap().len(), 64);
}
