//! `/v1/chat/completions/render` and `/v1/completions/render`.

use crate::server::TestServer;
use serde_json::{Value, json};

#[test]
fn a_rendered_conversation_is_what_the_model_reads() {
    let server = TestServer::start();
    let messages = json!([{ "role": "user", "content": "Count to ten." }]);
    let body = json!({
        "model": "demo", "messages": messages, "max_tokens": 4, "temperature": 0.5, "stop": "x",
        "stream": true, "priority": 3,
    });
    let rendered = server.post("/v1/chat/completions/render", &body).ok();
    let applied = server.post("/apply-template", &json!({ "messages": messages })).ok();
    assert_eq!(rendered["prompt"], applied["prompt"]);
    let tokenized = server.post("/tokenize", &json!({ "messages": messages })).ok();
    assert_eq!(rendered["token_ids"], tokenized["tokens"]);
    assert_eq!((&rendered["model"], &rendered["features"]), (&json!("demo"), &Value::Null));
    assert_eq!((&rendered["stream"], &rendered["priority"]), (&json!(true), &json!(3)));
    let sampling = &rendered["sampling_params"];
    assert_eq!((&sampling["max_tokens"], &sampling["temperature"]), (&json!(4), &json!(0.5)));
    assert_eq!((&sampling["stop"], &sampling["n"]), (&json!(["x"]), &json!(1)));

    // The tokens give the answer to the conversation.
    let answer = json!({ "messages": messages, "max_tokens": 4, "temperature": 0 });
    let answer = server.post("/v1/chat/completions", &answer).ok();
    let prompt = &rendered["token_ids"];
    let text = json!({ "prompt": prompt, "max_tokens": 4, "temperature": 0 });
    let text = server.post("/v1/completions", &text).ok();
    assert_eq!(answer["choices"][0]["message"]["content"], text["choices"][0]["text"]);
}

#[test]
fn rendered_texts_are_a_list() {
    let server = TestServer::start();
    let body = json!({ "prompt": ["One", "One two"], "model": "demo" });
    let rendered = server.post("/v1/completions/render", &body).ok();
    let rendered = rendered.as_array().unwrap();
    for (request, text) in rendered.iter().zip(["One", "One two"]) {
        let tokenized = server.post("/tokenize", &json!({ "prompt": text })).ok();
        assert_eq!(request["prompt"], *text);
        assert_eq!(request["token_ids"], tokenized["tokens"]);
        // Without `max_tokens` it is the room of the context.
        let room =
            tokenized["max_model_len"].as_u64().unwrap() - tokenized["count"].as_u64().unwrap();
        assert_eq!(request["sampling_params"]["max_tokens"], room);
    }
    assert_eq!(rendered.len(), 2);
    assert_ne!(rendered[0]["request_id"], rendered[1]["request_id"]);
}

#[test]
fn what_cannot_be_rendered_is_refused() {
    let server = TestServer::start();
    let image =
        json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,AAAA" } });
    let body = json!({ "messages": [{ "role": "user", "content": [image] }] });
    let response = server.post("/v1/chat/completions/render", &body);
    assert_eq!(response.status, 400, "{}", response.text);
    let most = server.post("/tokenize", &json!({ "prompt": "" })).ok()["max_model_len"].clone();
    let body = json!({ "prompt": vec![1; most.as_u64().unwrap() as usize + 1] });
    let response = server.post("/v1/completions/render", &body);
    assert_eq!(response.status, 400, "{}", response.text);
    assert!(response.text.contains("prompt is too long"), "{}", response.text);
    assert_eq!(server.post("/v1/completions/render", &json!({})).status, 400);
}
