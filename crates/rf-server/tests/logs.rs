//! What the log has of requests: never their text.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

mod markers;
#[expect(dead_code, reason = "the tests of the APIs use the rest of it")]
mod server;

#[path = "logs/operation.rs"]
mod operation;

use std::io::Write;
use std::sync::{Arc, Mutex};

use markers::MARKER;
use operation::operations;
use serde_json::json;
use server::{Setup, TestServer};

/// The text of the log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// One test, because the log is that of the process.
#[test]
fn the_log_never_has_text_of_a_request() {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .with_max_level(tracing::Level::DEBUG)
        .init();
    let server = TestServer::with(Setup { embedder: true, ..Setup::default() });
    markers::send_all(&server);
    for operation in operations(&server) {
        operation.send_all(&server);
    }
    let user = json!([{ "role": "user", "content": "x" }]);
    for (route, body) in [
        ("/v1/completions", json!({ "prompt": "x", "maxTokens": 1, "top_p2": 1 })),
        ("/api/chat", json!({ "messages": user, "options": { "num_predict": 1, "numCtx": 1 } })),
        ("/slots/0?action=erase", json!({ "fileName": "x" })),
        ("/v1/responses/input_tokens", json!({ "input": [{ "type": "web_call_x" }] })),
        ("/v1/responses/input_tokens", json!({ "input": [{ "type": "web_call_x" }] })),
    ] {
        server.post(route, &body);
    }
    for path in ["/slots", "/v1/models", "/v1/responses", "/nowhere"] {
        server.get(&format!("{path}/{MARKER}"));
    }
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(text.contains("invalid_request_error in `messages`"), "{text}");
    for field in ["metadata", "maxTokens", "top_p2", "options.numCtx", "fileName"] {
        let named = format!("a field that is not known is ignored field=\"{field}\"");
        assert_eq!(text.matches(&named).count(), 1, "{field} is named once");
    }
    let left_out = "an item of this type is left out kind=\"web_call_x\"";
    assert_eq!(text.matches(left_out).count(), 1, "{text}");
    assert!(!text.contains("field=\"options.num_predict\""), "{text}");
    assert!(text.contains("peer=127.0.0.1"), "{text}");
    assert!(text.contains("model=\"demo\" status=200"), "{text}");
    assert!(text.contains("path=\"/slots/{id}\""), "{text}");
    let path_bytes = "/nowhere/".len() + MARKER.len();
    let unmatched = format!("path=\"(no route)\" path_bytes={path_bytes}");
    assert!(text.contains(&unmatched), "{text}");
    let leak = text.lines().find(|line| line.contains(MARKER));
    assert_eq!(leak, None);
}
