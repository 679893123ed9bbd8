//! API keys: every route that reads or generates needs one.

use crate::server::{Setup, TestServer};
use rf_server::ApiKeys;
use serde_json::json;

/// All routes that need a key, and one that does not exist.
pub(crate) const ROUTES: &[(&str, &str)] = &[
    ("GET", "/v1/models"),
    ("GET", "/v1/models/demo"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("POST", "/v1/responses"),
    ("POST", "/v1/embeddings"),
    ("POST", "/v1/audio/transcriptions"),
    ("POST", "/audio/transcriptions"),
    ("POST", "/v1/responses/input_tokens"),
    ("GET", "/v1/responses/demo"),
    ("DELETE", "/v1/responses/demo"),
    ("POST", "/v1/rerank"),
    ("POST", "/rerank"),
    ("POST", "/v2/rerank"),
    ("POST", "/score"),
    ("POST", "/v1/load_lora_adapter"),
    ("POST", "/v1/unload_lora_adapter"),
    ("POST", "/v1/messages"),
    ("POST", "/v1/messages/count_tokens"),
    ("GET", "/v1/loads"),
    ("POST", "/completion"),
    ("POST", "/completions"),
    ("POST", "/chat/completions"),
    ("GET", "/load"),
    ("GET", "/version"),
    ("GET", "/mcp-servers"),
    ("POST", "/infill"),
    ("POST", "/tokenize"),
    ("POST", "/detokenize"),
    ("POST", "/apply-template"),
    ("GET", "/models"),
    ("POST", "/models"),
    ("DELETE", "/models"),
    ("POST", "/models/load"),
    ("POST", "/models/unload"),
    ("POST", "/v1/chat/completions/input_tokens"),
    ("POST", "/v1/chat/completions/render"),
    ("POST", "/v1/completions/render"),
    ("GET", "/props"),
    ("GET", "/tokenizer_info"),
    ("GET", "/lora-adapters"),
    ("POST", "/lora-adapters"),
    ("GET", "/slots"),
    ("POST", "/slots/0"),
    ("POST", "/api/chat"),
    ("POST", "/api/generate"),
    ("POST", "/api/embed"),
    ("POST", "/api/embeddings"),
    ("GET", "/api/tags"),
    ("POST", "/api/show"),
    ("GET", "/api/ps"),
    ("GET", "/api/version"),
    ("POST", "/api/pull"),
    ("POST", "/api/create"),
    ("POST", "/api/copy"),
    ("DELETE", "/api/delete"),
    ("GET", "/v1/unknown"),
];

fn server(metrics_key: bool) -> TestServer {
    let mut setup = Setup::default();
    setup.server.keys = ApiKeys::new(["sk-one".to_owned(), "sk-two".to_owned()]);
    setup.server.metrics_key = metrics_key;
    TestServer::with(setup)
}

#[test]
fn no_route_answers_without_a_key() {
    let server = server(false);
    let wrong: &[&[(&str, &str)]] = &[
        &[],
        &[("authorization", "Bearer sk-on")],
        &[("authorization", "Bearer sk-one1")],
        &[("authorization", "Bearer ")],
        &[("authorization", "Basic sk-one")],
        &[("x-api-key", "SK-ONE")],
        &[("x-api-key", "")],
        &[("authorization", "Bearer none"), ("x-api-key", "none")],
    ];
    for (method, path) in ROUTES {
        for headers in wrong {
            // A body that is not JSON: it must not be read.
            let response = server.send(method, path, headers, "{");
            assert_eq!(response.status, 401, "{method} {path} {headers:?}: {}", response.text);
            assert_eq!(response.header("www-authenticate"), "Bearer");
            assert!(!response.header("x-request-id").is_empty());
        }
        let right: &[&[(&str, &str)]] = &[
            &[("authorization", "Bearer sk-one")],
            &[("authorization", "bearer sk-two")],
            &[("x-api-key", "sk-two")],
            // Clients that need a key in one header send a placeholder there.
            &[("authorization", "Bearer none"), ("x-api-key", "sk-two")],
            &[("authorization", "Bearer sk-one"), ("x-api-key", "none")],
        ];
        for headers in right {
            let response = server.send(method, path, headers, "{");
            assert_ne!(response.status, 401, "{method} {path} {headers:?}");
            assert_ne!(response.status, 500, "{method} {path} {headers:?}");
        }
    }
}

#[test]
fn a_refusal_has_the_form_of_the_api() {
    let server = server(false);
    let error = |path| server.post(path, &json!({})).json()["error"].clone();
    assert_eq!(error("/v1/chat/completions")["code"], "invalid_api_key");
    assert_eq!(error("/v1/chat/completions")["type"], "authentication_error");
    assert_eq!(error("/v1/messages")["type"], "authentication_error");
    assert!(error("/api/chat").is_string());
}

#[test]
fn health_and_the_document_need_no_key_and_metrics_if_asked() {
    let open = server(false);
    assert_eq!(open.get("/health").status, 200);
    for path in ["/v1/health", "/ready", "/health/ready", "/ping", "/openapi.json"] {
        assert_eq!(open.get(path).status, 200, "{path}");
    }
    assert_eq!(open.get("/metrics").status, 200);
    let closed = server(true);
    assert_eq!(closed.get("/health").status, 200);
    assert_eq!(closed.get("/metrics").status, 401);
    let key = [("x-api-key", "sk-one")];
    assert_eq!(closed.send("GET", "/metrics", &key, "").status, 200);
}

#[test]
fn web_pages_of_other_origins_are_refused_unless_allowed() {
    let server = TestServer::start();
    let origin = [("origin", "https://example.org")];
    let response = server.send("GET", "/v1/models", &origin, "");
    assert_eq!(response.header("access-control-allow-origin"), "");
    // Without a key, a local server does not even read what other pages send.
    assert_eq!(response.status, 403, "{}", response.text);
    let typed = |media_type| [("origin", "http://localhost:1"), ("content-type", media_type)];
    let body = r#"{"prompt":"x","max_tokens":1}"#;
    let post =
        |headers: &[(&str, &str)]| server.send("POST", "/v1/completions", headers, body).status;
    assert_eq!(post(&typed("text/plain")), 415);
    assert_eq!(post(&typed("application/json")), 200);
    assert_eq!(post(&[]), 200);

    let mut setup = Setup::default();
    setup.server.keys = ApiKeys::new(["sk-one".to_owned()]);
    setup.server.cors_origins = vec!["https://example.org".to_owned()];
    let server = TestServer::with(setup);
    let preflight = [
        ("origin", "https://example.org"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization"),
    ];
    let response = server.send("OPTIONS", "/v1/chat/completions", &preflight, "");
    assert_eq!(response.status, 200);
    assert_eq!(response.header("access-control-allow-origin"), "https://example.org");
    assert_eq!(response.header("access-control-allow-headers"), "authorization");
    let other = [("origin", "https://example.com")];
    let response = server.send("GET", "/v1/models", &other, "");
    assert_eq!(response.header("access-control-allow-origin"), "");
}
