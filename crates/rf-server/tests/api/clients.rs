//! Keys with limits: what each client may do.

use std::io::Read;

use crate::server::{Response, Setup, TestServer};
use rf_server::ApiKeys;
use rocmforge::engine::EngineOptions;
use serde_json::{Value, json};

const KEYS: &str = r#"
[[key]]
name = "free"
key = "sk-free"
priority = true

[[key]]
name = "small"
key = "sk-small"
max_requests = 1
max_sequences = 4

[[key]]
name = "poor"
key = "sk-poor"
tokens_per_minute = 20

[[key]]
name = "embeds"
key = "sk-embeds"
models = ["embedder"]

[[key]]
name = "single"
key = "sk-single"
max_sequences = 1

[[key]]
name = "old"
key = "sk-old"
expires = 2020-01-01T00:00:00Z
"#;

fn start() -> TestServer {
    let engine =
        EngineOptions::default().with_context_tokens(Some(16384)).with_kv_tokens(Some(65536));
    let mut setup = Setup { embedder: true, engine, ..Setup::default() };
    setup.server.keys = ApiKeys::from_toml(KEYS).unwrap();
    setup.server.adapter_folder = Some(std::env::temp_dir());
    TestServer::with(setup)
}

fn post(server: &TestServer, key: &str, path: &str, body: &Value) -> Response {
    server.send("POST", path, &[("x-api-key", key)], &body.to_string())
}

fn complete(server: &TestServer, key: &str, more: &Value) -> Response {
    let mut body = json!({ "prompt": "Once upon a time", "max_tokens": 4, "ignore_eos": true });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    post(server, key, "/v1/completions", &body)
}

#[test]
fn a_key_has_its_own_rights() {
    let server = start();
    let status = |key, more: Value| complete(&server, key, &more).status;
    assert_eq!(status("sk-old", json!({})), 401);
    // A priority.
    assert_eq!(status("sk-free", json!({ "priority": 3 })), 200);
    assert_eq!(status("sk-small", json!({ "priority": 3 })), 403);
    assert_eq!(status("sk-small", json!({ "priority": 0 })), 200);
    // Models.
    assert_eq!(status("sk-embeds", json!({})), 403);
    let input = json!({ "input": "x", "model": "embedder" });
    assert_eq!(post(&server, "sk-embeds", "/v1/embeddings", &input).status, 200);
    let chat = json!({ "model": "demo", "messages": [{ "role": "user", "content": "x" }] });
    for path in ["/v1/chat/completions", "/api/chat", "/v1/messages/count_tokens"] {
        let refused = post(&server, "sk-embeds", path, &chat);
        assert_eq!(refused.status, 403, "{path}: {}", refused.text);
        assert!(refused.text.contains("may not use the model"), "{}", refused.text);
    }
    let get = |key, path| server.send("GET", path, &[("x-api-key", key)], "");
    for (key, expected) in
        [("sk-embeds", json!(["embedder"])), ("sk-free", json!(["demo", "embedder"]))]
    {
        for (path, list, name) in [("/v1/models", "data", "id"), ("/api/tags", "models", "name")] {
            let listed = get(key, path).ok();
            let listed = listed[list].as_array().unwrap().iter().map(|model| model[name].clone());
            assert_eq!(listed.collect::<Value>(), expected, "{key} {path}");
        }
    }
    assert_eq!(get("sk-embeds", "/v1/models/demo").status, 403);
    // Sequences.
    assert_eq!(status("sk-small", json!({ "n": 4 })), 200);
    assert_eq!(status("sk-small", json!({ "n": 5 })), 400);
    assert_eq!(status("sk-small", json!({ "n": 2, "prompt": ["a", "b", "c"] })), 400);
    // Requests that need a key, one that is known, and a right.
    for key in ["sk-unknown", "sk-none"] {
        assert_eq!(get(key, "/v1/models").status, 401);
    }
    assert_eq!(server.get("/v1/models").status, 401);
    let adapter = json!({ "lora_name": "a", "lora_path": "a.gguf" });
    let load = post(&server, "sk-free", "/v1/load_lora_adapter", &adapter);
    assert_eq!(load.status, 403, "{}", load.text);
    let metrics = server.get("/metrics").text;
    for (reason, count) in [("key_limit", 0), ("forbidden", 1), ("invalid_request", 2)] {
        let labels = format!("model_name=\"demo\",engine=\"0\",reason=\"{reason}\"");
        let rejected = format!("rocmforge:admission_rejections_total{{{labels}}} {count}\n");
        assert!(metrics.contains(&rejected), "{rejected}: {metrics}");
    }
    for (reason, count) in [
        ("missing_key", 1),
        ("invalid_key", 2),
        ("expired_key", 1),
        ("requests", 0),
        ("sequences", 2),
        ("tokens", 0),
        ("model", 5),
        ("priority", 1),
        ("manage_models", 1),
    ] {
        assert_eq!(key_rejections(&metrics, reason), count, "{reason}");
    }
}

/// Requests that were refused because of their key for this reason.
fn key_rejections(metrics: &str, reason: &str) -> usize {
    let name = format!("rocmforge:key_rejections_total{{reason=\"{reason}\"}} ");
    let count = metrics.lines().find_map(|line| line.strip_prefix(&name));
    count.unwrap().parse().unwrap()
}

#[test]
fn tokens_per_minute_are_counted() {
    let server = start();
    // 4 tokens of the prompt, and the prefix cache does not save a page.
    complete(&server, "sk-poor", &json!({ "max_tokens": 40 })).ok();
    let refused = complete(&server, "sk-poor", &json!({}));
    assert_eq!(refused.status, 429, "{}", refused.text);
    let wait: u64 = refused.header("retry-after").parse().unwrap();
    // 44 of 20 tokens are spent, and one is needed.
    assert!((60..=75).contains(&wait), "{wait}");
    complete(&server, "sk-free", &json!({})).ok();
    assert_eq!(key_rejections(&server.get("/metrics").text, "tokens"), 1);
}

#[test]
fn embeddings_are_one_sequence_of_a_key_whatever_the_number_of_texts() {
    let server = start();
    let embed = || {
        let body = json!({ "model": "embedder", "input": ["a", "b", "c"] });
        post(&server, "sk-single", "/v1/embeddings", &body)
    };
    embed().ok();
    let body =
        json!({ "prompt": "Once", "max_tokens": 16_000, "ignore_eos": true, "stream": true });
    let mut stream = server.open_with("/v1/completions", "x-api-key: sk-single\r\n", &body);
    let mut first = [0; 12];
    stream.read_exact(&mut first).unwrap();
    let refused = embed();
    assert_eq!((refused.status, refused.header("retry-after")), (429, "1"), "{}", refused.text);
    let metrics = server.get("/metrics").text;
    assert_eq!(key_rejections(&metrics, "sequences"), 1);
    let other = complete(&server, "sk-single", &json!({}));
    assert_eq!(other.status, 429, "{}", other.text);
    let labels = "model_name=\"demo\",engine=\"0\",reason=\"key_limit\"";
    let rejected = format!("rocmforge:admission_rejections_total{{{labels}}} 1\n");
    assert!(server.get("/metrics").text.contains(&rejected));
}

#[test]
fn requests_of_a_key_run_one_at_a_time_if_it_says_so() {
    let server = start();
    let body =
        json!({ "prompt": "Once", "max_tokens": 100_000, "ignore_eos": true, "stream": true });
    let mut stream = server.open_with("/v1/completions", "x-api-key: sk-small\r\n", &body);
    let mut first = [0; 12];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    let refused = complete(&server, "sk-small", &json!({}));
    assert_eq!((refused.status, refused.header("retry-after")), (429, "1"), "{}", refused.text);
    assert_eq!(key_rejections(&server.get("/metrics").text, "requests"), 1);
    // Questions that cost nothing are not counted.
    assert_eq!(server.send("GET", "/v1/models", &[("x-api-key", "sk-small")], "").status, 200);
    complete(&server, "sk-free", &json!({})).ok();
    drop(stream);
    server.wait_for("it is gone", |stats| stats.running == 0);
    let started = std::time::Instant::now();
    while complete(&server, "sk-small", &json!({})).status != 200 {
        assert!(started.elapsed() < std::time::Duration::from_mins(1));
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn keys_change_while_the_server_runs() {
    let server = start();
    let status = |key| complete(&server, key, &json!({})).status;
    assert_eq!((status("sk-free"), status("sk-new")), (200, 401));
    let keys = ApiKeys::from_toml(&KEYS.replace("sk-free", "sk-new")).unwrap();
    server.control.set_keys(keys);
    assert_eq!((status("sk-free"), status("sk-new")), (401, 200));
}
