//! Bad requests: the status, the field, and the form of each API.

use crate::server::{Setup, TestServer};
use rocmforge::engine::EngineOptions;
use rocmforge::engine::scheduler::SchedulerOptions;
use serde_json::{Value, json};

/// The mistake, the body, and the field that the error names.
const CHAT: &[(&str, &str, &str)] = &[
    ("empty messages", r#"{"messages":[]}"#, "messages"),
    ("no messages", "{}", "messages"),
    ("empty body", "", "messages"),
    ("a role that is no text", r#"{"messages":[{"role":1,"content":"x"}]}"#, "messages[0].role"),
    (
        "a content that is no text",
        r#"{"messages":[{"role":"user","content":3}]}"#,
        "messages[0].content",
    ),
    (
        "an image that is no base64",
        r#"{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]}"#,
        "messages[0].content[0].image_url.url",
    ),
    (
        "an image for a model of texts",
        r#"{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,aGk="}}]}]}"#,
        "messages",
    ),
    (
        "a part that is a video",
        r#"{"messages":[{"role":"user","content":[{"type":"input_video","input_video":{}}]}]}"#,
        "messages[0].content[0].type",
    ),
    (
        "a sound without data",
        r#"{"messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{}}]}]}"#,
        "messages[0].content[0].input_audio.data",
    ),
    (
        "a sound for a model of texts",
        r#"{"messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"aGk="}}]}]}"#,
        "messages",
    ),
    (
        "a part without its type",
        r#"{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"text":"b"}]}]}"#,
        "messages[0].content[1]",
    ),
    (
        "a wrong type",
        r#"{"messages":[{"role":"user","content":"x"}],"temperature":"hot"}"#,
        "temperature",
    ),
    (
        "a value out of range",
        r#"{"messages":[{"role":"user","content":"x"}],"top_p":1.5}"#,
        "top_p",
    ),
    ("no choice", r#"{"messages":[{"role":"user","content":"x"}],"n":0}"#, "n"),
    ("too many choices", r#"{"messages":[{"role":"user","content":"x"}],"n":1000}"#, "n"),
    (
        "a negative count",
        r#"{"messages":[{"role":"user","content":"x"}],"top_logprobs":-1}"#,
        "top_logprobs",
    ),
    (
        "too many alternatives",
        r#"{"messages":[{"role":"user","content":"x"}],"top_logprobs":21}"#,
        "top_logprobs",
    ),
    (
        "a stop that is no text",
        r#"{"messages":[{"role":"user","content":"x"}],"stop":["a",1]}"#,
        "stop[1]",
    ),
    (
        "an unknown token",
        r#"{"messages":[{"role":"user","content":"x"}],"logit_bias":{"999999":1}}"#,
        "logit_bias",
    ),
    (
        "a bias of no token",
        r#"{"messages":[{"role":"user","content":"x"}],"logit_bias":{"the":1}}"#,
        "logit_bias",
    ),
    (
        "a nested wrong type",
        r#"{"messages":[{"role":"user","content":"x"}],"stream_options":{"include_usage":"yes"}}"#,
        "stream_options.include_usage",
    ),
    (
        "nothing to continue",
        r#"{"messages":[{"role":"user","content":"x"}],"continue_final_message":true}"#,
        "continue_final_message",
    ),
];

#[test]
fn bad_requests_are_refused_with_the_name_of_the_field() {
    let server = TestServer::start();
    for (what, body, field) in CHAT {
        let response = server.send("POST", "/v1/chat/completions", &[], body);
        assert_eq!(response.status, 400, "{what}: {}", response.text);
        let error = &response.json()["error"];
        assert_eq!(error["type"], "invalid_request_error", "{what}");
        assert_eq!(error["param"], *field, "{what}: {error}");
        let names_field = error["message"].as_str().unwrap().starts_with(&format!("`{field}`: "));
        assert!(names_field, "{what}: {error}");
        assert!(error.as_object().unwrap().contains_key("code"), "{what}");
    }
    // The server goes on.
    let body = json!({ "messages": [{ "role": "user", "content": "x" }], "max_tokens": 1 });
    server.post("/v1/chat/completions", &body).ok();
}

/// A template from a stranger can neither stop nor fill the server.
#[test]
fn a_template_that_fails_is_a_bad_request() {
    let body = json!({ "messages": [{ "role": "user", "content": "x" }], "max_tokens": 1 });
    for (template, expected) in [
        ("{{ raise_exception('no users') }}", "refused the messages: no users"),
        ("{{ messages.x.y }}", "the chat template failed: line 1"),
        (
            "{% set ns = namespace(s='x' * 999) %}{% for i in range(60) %}\
             {% set ns.s = ns.s ~ ns.s %}{% endfor %}",
            "the template needs too much memory",
        ),
        (
            "{% set l = range(9999) | list %}{% for i in range(99999) %}{% set x = l | sum %}{% endfor %}",
            "the template runs for too long",
        ),
    ] {
        let server = TestServer::with(Setup { template: Some(template), ..Setup::default() });
        let response = server.post("/v1/chat/completions", &body);
        assert_eq!(response.status, 400, "{template}: {}", response.text);
        assert!(response.text.contains(expected), "{template}: {}", response.text);
        // The server goes on.
        server.post("/v1/completions", &json!({ "prompt": "x", "max_tokens": 1 })).ok();
    }
}

#[test]
fn broken_json_is_a_bad_request_on_every_route() {
    let server = TestServer::start();
    let deep = "[".repeat(100_000);
    let messages = format!(r#"{{"messages":{deep}"#);
    for path in [
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/api/chat",
        "/api/generate",
        "/api/show",
        "/completion",
        "/infill",
        "/tokenize",
        "/detokenize",
        "/apply-template",
    ] {
        for body in ["{", "[]", "null", "{\"a\":}", "nope", "{\"a\":\"\\ud800\"}", &messages] {
            let response = server.send("POST", path, &[], body);
            assert_eq!(response.status, 400, "{path}: {}", response.text);
            let error = &response.json()["error"];
            match path {
                "/v1/messages" | "/v1/messages/count_tokens" => {
                    assert_eq!(response.json()["type"], "error");
                    assert_eq!(error["type"], "invalid_request_error");
                }
                "/api/chat" | "/api/generate" | "/api/show" => assert!(error.is_string()),
                _ => assert_eq!(error["type"], "invalid_request_error"),
            }
        }
    }
}

#[test]
fn a_form_that_cannot_be_transcribed_is_refused() {
    let server = TestServer::start();
    let part = |name: &str, value: &str| {
        format!("--b\r\ncontent-disposition: form-data; name={name}\r\n\r\n{value}\r\n")
    };
    let file = part("file; filename=a.wav", "RIFF");
    let form = [("content-type", "multipart/form-data; boundary=b")];
    for (body, status, param) in [
        (format!("{file}--b--"), 400, json!("file")),
        (format!("{}--b--", part("model", "demo")), 400, json!("file")),
        (format!("{}--b--", part("file; filename=a.wav", "")), 400, json!("file")),
        (format!("{file}{}--b--", part("response_format", "srt")), 400, json!("response_format")),
        (format!("{file}{}--b--", part("temperature", "hot")), 400, json!("temperature")),
        (format!("{file}{}--b--", part("n", "2")), 400, json!("n")),
        (format!("{file}{}--b--", part("model", "gpt-9")), 404, json!("model")),
        (file.clone(), 400, Value::Null),
        ("--b".to_owned(), 400, Value::Null),
    ] {
        let response = server.send("POST", "/v1/audio/transcriptions", &form, &body);
        assert_eq!(response.status, status, "{body}: {}", response.text);
        assert_eq!(response.json()["error"]["param"], param, "{body}: {}", response.text);
    }
    let response = server.post("/v1/audio/transcriptions", &json!({ "file": "a" }));
    assert_eq!(response.status, 415, "{}", response.text);
    assert!(response.text.contains("multipart/form-data"), "{}", response.text);
}

#[test]
fn an_unknown_model_is_not_found_by_its_name() {
    let server = TestServer::start();
    let messages = json!([{ "role": "user", "content": "x" }]);
    let body = json!({ "model": "gpt-9", "messages": messages, "prompt": "x", "input": "x" });
    for path in [
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/v1/messages",
        "/api/chat",
        "/api/generate",
        "/api/show",
        "/tokenize",
    ] {
        let response = server.post(path, &body);
        assert_eq!(response.status, 404, "{path}: {}", response.text);
        assert!(response.text.contains("gpt-9"), "{path}: {}", response.text);
    }
    let error = server.post("/v1/chat/completions", &body).json();
    assert_eq!(error["error"]["code"], "model_not_found");
    assert_eq!(server.post("/v1/messages", &body).json()["error"]["type"], "not_found_error");
}

#[test]
fn unknown_routes_and_methods_have_a_json_body() {
    let server = TestServer::start();
    for (method, path, status) in [
        ("GET", "/v1/unknown", 404),
        ("GET", "/versions", 404),
        ("GET", "/v1/chat/completions", 405),
        ("POST", "/health", 405),
    ] {
        let response = server.send(method, path, &[], "");
        assert_eq!(response.status, status, "{path}");
        assert!(response.json()["error"]["message"].is_string(), "{path}");
        assert!(!response.header("x-request-id").is_empty(), "{path}");
    }
    assert_eq!(
        server.get("/api/unknown").json()["error"].as_str().unwrap(),
        "there is no GET /api/unknown"
    );
}

#[test]
fn a_wrong_query_or_path_has_a_json_body() {
    let server = TestServer::start();
    for (path, named) in
        [("/slots?model=a&model=b", "duplicate field `model`"), ("/v1/models/%FF", "UTF-8")]
    {
        let answer = server.get(path);
        assert_eq!(answer.status, 400, "{path}");
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(named), "{path}: {message}");
    }
}

#[test]
fn a_prompt_that_cannot_fit_is_refused_and_a_long_answer_is_cut() {
    let engine = EngineOptions::default().with_context_tokens(Some(128)).with_kv_tokens(Some(256));
    let server = TestServer::with(Setup { engine, ..Setup::default() });
    let body = json!({ "prompt": "word ".repeat(200) });
    let response = server.post("/v1/completions", &body);
    assert_eq!(response.status, 400);
    assert_eq!(response.json()["error"]["type"], "exceed_context_size_error");
    // Agents shorten their conversation if they know the message.
    let error = response.json()["error"].clone();
    let tokens = error["n_prompt_tokens"].as_u64().unwrap();
    assert_eq!(error["n_ctx"], 128);
    let message = error["message"].as_str().unwrap();
    for words in [
        "exceeds the available context size".to_owned(),
        "maximum context length is 128 tokens".to_owned(),
        format!("prompt is too long: {tokens} tokens > 128 maximum"),
    ] {
        assert!(message.contains(&words), "{message}");
    }
    let messages = json!([{ "role": "user", "content": "word ".repeat(200) }]);
    let body = json!({ "messages": messages, "max_tokens": 4 });
    let error = server.post("/v1/messages", &body).json();
    assert!(error["error"]["message"].as_str().unwrap().starts_with("prompt is too long: "));
    let body = json!({ "prompt": "Once upon", "max_tokens": 100_000, "ignore_eos": true });
    let answer = server.post("/v1/completions", &body).ok();
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    assert!(answer["usage"]["total_tokens"].as_u64().unwrap() >= 128);
}

#[test]
fn a_prompt_that_is_too_long_to_tokenize_has_the_same_error_on_every_route() {
    let engine = EngineOptions::default().with_context_tokens(Some(128)).with_kv_tokens(Some(256));
    let server = TestServer::with(Setup { engine, embedder: true, ..Setup::default() });
    // Tokens of the demo model have far fewer than 1000 bytes.
    let text = "word ".repeat(200_000);
    let user = json!([{ "role": "user", "content": text }]);
    let chat = json!({ "messages": user, "max_tokens": 4 });
    for (route, body) in [
        ("/v1/completions", json!({ "prompt": text })),
        ("/v1/completions", json!({ "prompt": ["x", text] })),
        ("/v1/completions/render", json!({ "prompt": text })),
        ("/v1/chat/completions", chat.clone()),
        ("/v1/chat/completions/input_tokens", chat.clone()),
        ("/v1/chat/completions/render", chat.clone()),
        ("/v1/responses", json!({ "input": text })),
        ("/v1/responses/input_tokens", json!({ "input": text })),
        ("/v1/messages", chat.clone()),
        ("/v1/messages/count_tokens", chat.clone()),
        ("/completion", json!({ "prompt": text })),
        ("/completion", json!({ "prompt": [1, text] })),
        ("/tokenize", json!({ "content": text })),
        ("/tokenize", chat.clone()),
        ("/apply-template", chat.clone()),
        ("/api/chat", chat),
        ("/api/generate", json!({ "prompt": text })),
        ("/api/generate", json!({ "prompt": text, "raw": true })),
        ("/v1/embeddings", json!({ "model": "embedder", "input": text })),
        ("/api/embed", json!({ "model": "embedder", "input": [text], "truncate": false })),
    ] {
        for stream in [false, true] {
            let mut body = body.clone();
            body["stream"] = stream.into();
            let response = server.post(route, &body);
            assert_eq!(response.status, 400, "{route}: {}", response.text);
            let json = response.json();
            // Ollama's error is a text.
            let error = &json["error"];
            let message = error.as_str().or_else(|| error["message"].as_str()).unwrap();
            let rest = message.strip_prefix("prompt is too long: ");
            let rest = rest.unwrap_or_else(|| panic!("{route}: {message}"));
            let (tokens, rest) = rest.split_once(" tokens > ").unwrap();
            let (most, rest) = rest.split_once(" maximum (at least: ").unwrap();
            // Embedding models have another context here.
            let context = if body["model"].is_null() { "128" } else { most };
            assert_eq!(most, context, "{route}");
            let (tokens, most): (usize, usize) = (tokens.parse().unwrap(), most.parse().unwrap());
            assert!(most < tokens && tokens < text.len(), "{route}: {message}");
            assert!(rest.contains("exceeds the available context size"), "{route}: {rest}");
            let words = format!("maximum context length is {most} tokens");
            assert!(rest.contains(&words), "{route}: {rest}");
            if error["code"].is_string() {
                assert_eq!(error["code"], "context_length_exceeded", "{route}");
                assert_eq!(
                    (&error["n_prompt_tokens"], &error["n_ctx"]),
                    (&json!(tokens), &json!(most))
                );
            }
        }
    }
}

#[test]
fn a_full_queue_asks_to_come_back() {
    let scheduler = SchedulerOptions::default().with_max_num_seqs(1).with_max_queued(1);
    let server = TestServer::with(Setup { scheduler, ..Setup::default() });
    let long = json!({ "prompt": "Once", "ignore_eos": true, "stream": true });
    let running = server.open("/v1/completions", &long);
    server.wait_for("the first runs", |stats| stats.running == 1);
    let waiting = server.open("/v1/completions", &long);
    server.wait_for("the second waits", |stats| stats.waiting == 1);
    for path in ["/v1/completions", "/v1/messages"] {
        let body = json!({ "prompt": "x", "messages": [{ "role": "user", "content": "x" }] });
        let response = server.post(path, &body);
        assert_eq!(response.status, 429, "{}", response.text);
        assert_eq!(response.header("retry-after"), "1");
        assert_eq!(response.json()["error"]["type"], "rate_limit_error");
    }
    drop((running, waiting));
    server.wait_for("both are gone", |stats| stats.running + stats.waiting == 0);
    let body = json!({ "prompt": "x", "max_tokens": 1 });
    server.post("/v1/completions", &body).ok();
}

#[test]
fn unknown_fields_are_ignored_and_null_is_absent() {
    let server = TestServer::start();
    let body = json!({
        "messages": [{ "role": "user", "content": "x", "cache_control": { "type": "ephemeral" } }],
        "max_tokens": 1, "temperature": null, "stop": null, "stream": null, "user": "me",
        "metadata": { "a": [1, 2] }, "service_tier": "auto", "logit_bias": null, "n": null,
    });
    let answer: Value = server.post("/v1/chat/completions", &body).ok();
    assert_eq!(answer["usage"]["completion_tokens"], 1);
}

#[test]
fn fields_that_would_change_the_answer_are_refused_by_name() {
    let server = TestServer::start();
    let messages = json!([{ "role": "user", "content": "x" }]);
    for (path, field, value) in [
        ("/v1/chat/completions", "functions", json!([{ "name": "f" }])),
        ("/v1/chat/completions", "modalities", json!(["text", "audio"])),
        ("/v1/completions", "use_beam_search", json!(true)),
        ("/v1/responses", "background", json!(true)),
        ("/v1/messages", "mcp_servers", json!([{ "url": "x" }])),
        ("/api/generate", "context", json!([1, 2])),
        ("/v1/embeddings", "truncate_prompt_tokens", json!(8)),
    ] {
        let mut body = json!({ "messages": messages, "prompt": "x", "input": "x" });
        body[field] = value;
        let error = server.post(path, &body);
        assert_eq!(error.status, 400, "{path} {field}: {}", error.text);
        assert!(error.text.contains(&format!("`{field}`: it is not supported")), "{}", error.text);
    }
}

/// Go's clients, and some of other languages, send null for what is empty.
#[test]
fn null_is_absent_in_every_message() {
    let server = TestServer::start();
    let messages = json!([
        { "role": "assistant", "content": null, "tool_calls": null, "images": null, "name": null },
        { "role": "user", "content": "x", "images": null },
    ]);
    for (path, body) in [
        (
            "/v1/chat/completions",
            json!({ "messages": messages, "tools": null, "tool_choice": null }),
        ),
        ("/api/chat", json!({ "messages": messages, "options": null, "format": null })),
        ("/api/generate", json!({ "prompt": "x", "images": null, "system": null, "raw": null })),
        ("/v1/messages", json!({ "messages": messages, "tools": null, "thinking": null })),
        (
            "/v1/responses",
            json!({ "input": [
            { "role": "user", "content": "x", "id": null, "call_id": null },
        ], "reasoning": null, "previous_response_id": null }),
        ),
        ("/infill", json!({ "input_prefix": "a", "input_suffix": "b", "input_extra": null })),
    ] {
        let mut body = body;
        body["stream"] = json!(false);
        body["max_tokens"] = json!(1);
        body["options"] = json!({ "num_predict": 1, "seed": null });
        let response = server.post(path, &body);
        // The demo model has no tokens for gaps.
        let expected = if path == "/infill" { 400 } else { 200 };
        assert_eq!(response.status, expected, "{path}: {}", response.text);
    }
    for path in ["/api/chat", "/api/generate"] {
        let load = server.post(path, &json!({ "messages": null, "prompt": null })).ok();
        assert_eq!(load["done_reason"], "load");
    }
}

#[test]
fn every_list_of_a_request_has_a_limit() {
    let server = TestServer::start();
    let bias: serde_json::Map<String, Value> =
        (0..10_000).map(|id| (id.to_string(), json!(1))).collect();
    let tool = json!({ "type": "function", "function": { "name": "f" } });
    for (field, value) in [
        ("logit_bias", json!(bias)),
        ("logit_bias", json!([["x".repeat(257), 1]])),
        ("logit_bias", json!(vec![json!(["one two ".repeat(32), 1]); 500])),
        ("samplers", json!(vec!["top_k"; 33])),
        ("dry_sequence_breakers", json!(vec!["x"; 65])),
        ("dry_sequence_breakers", json!(["x".repeat(257)])),
        ("tools", json!(vec![tool; 1025])),
    ] {
        let messages = json!([{ "role": "user", "content": "x" }]);
        let body = json!({ "messages": messages, field: value });
        let error = server.post("/v1/chat/completions", &body);
        assert_eq!((error.status, &error.json()["error"]["param"]), (400, &json!(field)));
    }
}
