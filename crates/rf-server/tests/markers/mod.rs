//! Requests with a text that must not be anywhere but in their answers.

use serde_json::{Value, json};

use crate::server::TestServer;

pub(crate) const MARKER: &str = "bank_pin_9471";

/// Bodies with the marker in fields of a wrong type, and in places that errors quote.
pub(crate) fn bodies() -> Vec<Value> {
    let user = json!([{ "role": "user", "content": MARKER }]);
    let function = json!({ "name": MARKER, "parameters": { "type": MARKER } });
    let tools = json!([{ "type": "function", "function": function }]);
    let mut bodies = vec![
        json!({ "messages": user, "prompt": MARKER, "input": MARKER, "content": MARKER }),
        json!({ "messages": MARKER, "prompt": { MARKER: 1 }, "input": { MARKER: 1 } }),
        json!({ "messages": [MARKER], "prompt": [MARKER, 1], "input": [{ "type": MARKER }] }),
        json!({ "messages": [{ "role": MARKER, "content": [{ "type": MARKER }] }] }),
        json!({ "messages": user, "tools": tools, "tool_choice": "required" }),
        json!({ "messages": user, "tools": tools, "tool_choice": { "type": MARKER } }),
        json!({ "messages": user, "input": "x", "prompt": "x", "grammar": format!("root ::= {MARKER}") }),
        json!({ "messages": user, "input": "x", "prompt": "x", "format": { "type": MARKER } }),
        json!({ "model": MARKER }),
        json!({ "messages": user, "prompt": "x", "input": "x", MARKER: MARKER, "metadata": 1 }),
        json!({ "query": MARKER, "documents": MARKER, "text_1": [MARKER], "text_2": { MARKER: 1 } }),
        json!({ "system": { MARKER: 1 }, "instructions": [MARKER], "images": [MARKER] }),
        json!(MARKER),
    ];
    for field in [
        "seed",
        "n",
        "stop",
        "temperature",
        "logit_bias",
        "stream",
        "samplers",
        "response_format",
        "json_schema",
        "keep_alive",
        "options",
        "max_tokens",
        "tokens",
        "dimensions",
        "chat_template_kwargs",
    ] {
        for value in [json!(MARKER), json!([MARKER]), json!({ MARKER: MARKER })] {
            bodies.push(json!({ "messages": user, "prompt": "x", "input": "x", field: value }));
        }
    }
    bodies
}

/// The routes that read JSON, by the document of the server.
fn routes(server: &TestServer) -> Vec<String> {
    let document = server.get("/openapi.json").ok();
    let paths = document["paths"].as_object().unwrap();
    let reads_json = |path: &&String| {
        paths[*path].pointer("/post/requestBody/content/application~1json").is_some()
    };
    paths.keys().filter(reads_json).map(|path| path.replace("{id}", "0")).collect()
}

/// Sends the marker in every place to every route.
pub(crate) fn send_all(server: &TestServer) {
    for route in &routes(server) {
        let mut refused = 0;
        for mut body in bodies() {
            if let Some(body) = body.as_object_mut() {
                body.entry("max_tokens").or_insert(json!(1));
            }
            let status = server.post(route, &body).status;
            assert_ne!(status, 500, "{route} {body}");
            refused += usize::from(status >= 400);
        }
        assert!(refused > 1, "{route} refused {refused} bodies");
        assert!(server.send("POST", route, &[], &format!("{{{MARKER}")).status >= 400);
    }
}
