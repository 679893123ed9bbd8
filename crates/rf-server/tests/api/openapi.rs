//! The document at `/openapi.json`.

use crate::keys::ROUTES;
use crate::server::{Setup, TestServer};
use serde_json::{Value, json};

#[test]
fn the_document_has_every_route() {
    let document = TestServer::start().get("/openapi.json").ok();
    assert_eq!(document["openapi"], "3.1.0");
    let open = [
        ("GET", "/"),
        ("GET", "/health"),
        ("GET", "/health/ready"),
        ("GET", "/metrics"),
        // It needs a key, and its answer does not end.
        ("GET", "/models/sse"),
        ("GET", "/openapi.json"),
        ("GET", "/ping"),
        ("GET", "/ready"),
        ("GET", "/v1/health"),
    ];
    let known = ROUTES.iter().chain(&open).filter(|(_, path)| *path != "/v1/unknown");
    for (method, path) in known.clone() {
        let path = path.replace("/demo", "/{id}").replace("/slots/0", "/slots/{id}");
        let operation = &document["paths"][&path][method.to_lowercase()];
        assert!(operation["responses"]["200"].is_object(), "{method} {path}");
        let has_body = *method == "POST" || path == "/api/delete";
        assert_eq!(operation["requestBody"].is_object(), has_body, "{method} {path}");
    }
    // The table of the tests has every operation.
    let operations = document["paths"].as_object().unwrap().values();
    let count: usize = operations.map(|path| path.as_object().unwrap().len()).sum();
    assert_eq!(count, known.count());
}

#[test]
fn every_reference_of_the_document_resolves() {
    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str));
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let document = TestServer::start().get("/openapi.json").ok();
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 50, "{found:?}");
    for reference in found {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some_and(Value::is_object), "{reference}");
    }
}

/// Checks a body against the schema of a route's answer.
fn assert_fits(document: &Value, path: &str, media_type: &str, body: &Value) {
    let path = &document["paths"][path];
    let operation = path.get("post").unwrap_or(&path["get"]);
    let mut schema = operation["responses"]["200"]["content"][media_type]["schema"].clone();
    schema["components"] = document["components"].clone();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    if let Err(error) = validator.validate(body) {
        panic!("{error} in {body}");
    }
    let wrong = json!({ "unlike": "any answer" });
    assert!(!validator.is_valid(&wrong) && !validator.is_valid(&json!(1)), "{schema}");
}

#[test]
fn answers_and_streams_fit_their_schemas() {
    const JSON: &str = "application/json";
    let server = TestServer::start();
    let document = server.get("/openapi.json").ok();
    for path in
        ["/v1/models", "/v1/loads", "/props", "/slots", "/tokenizer_info", "/api/tags", "/api/ps"]
    {
        assert_fits(&document, path, JSON, &server.get(path).ok());
    }
    assert_fits(&document, "/v1/models/{id}", JSON, &server.get("/v1/models/demo").ok());
    let messages = json!([{ "role": "user", "content": "Hi" }]);
    for (path, body) in [
        ("/v1/chat/completions", json!({ "messages": messages, "top_logprobs": 2 })),
        ("/v1/completions", json!({ "prompt": "Hi", "logprobs": 2, "echo": true })),
        ("/v1/responses", json!({ "input": "Hi" })),
        ("/v1/messages", json!({ "messages": messages })),
        ("/completion", json!({ "prompt": "Hi", "n_probs": 2 })),
        ("/api/chat", json!({ "messages": messages })),
        ("/api/generate", json!({ "prompt": "Hi" })),
    ] {
        let mut body = body;
        body["max_tokens"] = json!(6);
        body["options"] = json!({ "num_predict": 6 });
        body["stream"] = json!(false);
        assert_fits(&document, path, JSON, &server.post(path, &body).ok());
        body["stream"] = json!(true);
        let response = server.post(path, &body);
        let lines = response.text.lines();
        let (media_type, objects): (_, Vec<Value>) = if path.starts_with("/api/") {
            (
                "application/x-ndjson",
                lines.map(|line| serde_json::from_str(line).unwrap()).collect(),
            )
        } else {
            ("text/event-stream", response.events().0)
        };
        assert!(objects.len() > 2, "{}", response.text);
        for object in &objects {
            assert_fits(&document, path, media_type, object);
        }
    }
    for (path, body) in [
        ("/v1/messages/count_tokens", json!({ "messages": messages })),
        ("/tokenize", json!({ "content": "Hi", "with_pieces": true })),
        ("/tokenize", json!({ "prompt": "Hi", "return_token_strs": true })),
        ("/detokenize", json!({ "tokens": [300] })),
        ("/apply-template", json!({ "messages": messages })),
        ("/api/show", json!({ "model": "demo" })),
    ] {
        assert_fits(&document, path, JSON, &server.post(path, &body).ok());
    }
    let server = TestServer::with(Setup { embedder: true, ..Setup::default() });
    for path in ["/v1/embeddings", "/api/embed"] {
        assert_fits(&document, path, JSON, &server.post(path, &json!({ "input": "Hi" })).ok());
    }
}
