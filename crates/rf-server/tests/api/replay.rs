//! Conversations that agents replay through Anthropic's API, and the fields by which they steer it.

use crate::answers::{ARGUMENTS, REASONING};
use crate::server::{Setup, TestServer};
use crate::{fixed, tools};
use rocmforge::engine::EngineOptions;
use serde_json::{Value, json};

fn count(server: &TestServer, content: &Value) -> u64 {
    let body = json!({ "messages": [
        { "role": "user", "content": "x" },
        { "role": "assistant", "content": [{ "type": "tool_use", "id": "t", "name": "f", "input": {} }] },
        { "role": "user", "content": content },
    ]});
    server.post("/v1/messages/count_tokens", &body).ok()["input_tokens"].as_u64().unwrap()
}

/// Refused once, a block would be refused in each later turn.
#[test]
fn no_block_of_a_replayed_conversation_is_refused() {
    let server = tools::start();
    let image = json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "aGk=" } });
    let text = json!({ "type": "text", "text": "ok" });
    let result =
        |content: Value| json!([{ "type": "tool_result", "tool_use_id": "t", "content": content }]);
    let plain = count(&server, &result(json!([text])));
    for block in [
        image.clone(),
        json!({ "type": "tool_reference", "tool_name": "read" }),
        json!({ "type": "document", "source": { "type": "text", "media_type": "text/plain", "data": "doc" } }),
        json!({ "type": "document", "source": { "type": "base64", "data": "aGk=" } }),
        json!({ "type": "search_result", "title": "T", "source": "s", "content": [text] }),
        json!({ "type": "not_invented_yet" }),
    ] {
        let found = count(&server, &result(json!([text, block])));
        assert!(found > plain, "{block} is shown or noted");
    }
    assert!(count(&server, &result(json!({ "type": "error" }))) > 0);
    for block in [
        json!({ "type": "server_tool_use", "id": "s", "name": "web_search", "input": { "query": "q" } }),
        json!({ "type": "web_search_tool_result", "tool_use_id": "s", "content": { "type": "error" } }),
        json!({ "type": "redacted_thinking", "data": "x" }),
        json!({ "type": "container_upload", "file_id": "f" }),
        json!({ "type": "not_invented_yet", "title": 3 }),
    ] {
        assert_eq!(
            count(&server, &json!([text, block])),
            count(&server, &json!([text])),
            "{block}"
        );
    }
    let document = json!({ "type": "document", "source": { "type": "text", "data": "doc" } });
    assert!(count(&server, &json!([text, document])) > count(&server, &json!([text])));
    let body =
        json!({ "messages": [{ "role": "user", "content": [text, image] }], "max_tokens": 1 });
    let error = server.post("/v1/messages", &body);
    assert_eq!(error.status, 400);
    assert!(error.text.contains("the model reads no pictures"), "{}", error.text);

    // The results of tools in OpenAI's form.
    let part = json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,aGk=" } });
    let body = json!({ "max_tokens": 1, "messages": [
        { "role": "user", "content": "x" },
        { "role": "assistant", "tool_calls": [{ "function": { "name": "f", "arguments": "" } }] },
        { "role": "tool", "content": [{ "type": "text", "text": "ok" }, part] },
        { "role": "assistant", "content": [{ "type": "refusal", "refusal": "no" }] },
        { "role": "user", "content": "x" },
    ]});
    server.post("/v1/chat/completions", &body).ok();
}

#[test]
fn reasoning_has_a_signature() {
    let server = tools::start();
    let tools = json!([{ "name": "weather", "input_schema": { "type": "object" } }]);
    let user = json!([{ "role": "user", "content": "Weather?" }]);
    let mut body = json!({ "messages": user, "tools": tools, "max_tokens": 200 });
    let block = server.post("/v1/messages", &body).ok()["content"][0].clone();
    assert_eq!(block["thinking"], REASONING);
    let signature = block["signature"].as_str().unwrap();
    assert_eq!(signature.len(), 44);
    body["stream"] = json!(true);
    let (events, _) = server.post("/v1/messages", &body).events();
    let deltas: Vec<_> = events.iter().filter(|event| event["index"] == 0).collect();
    let [.., signed, stop] = deltas.as_slice() else { panic!("{deltas:?}") };
    assert_eq!(signed["delta"], json!({ "type": "signature_delta", "signature": signature }));
    assert_eq!(stop["type"], "content_block_stop");
}

#[test]
fn an_answer_has_one_call_if_parallel_ones_are_disabled() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("fixed.gguf");
    let call =
        format!("<tool_call>\n{{\"name\": \"weather\", \"arguments\": {ARGUMENTS}}}\n</tool_call>");
    let other =
        "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>";
    let template =
        "{% for m in messages %}{{ m.content }}{% endfor %}{{ tools }}<|a|>{# <tool_call> #}";
    fixed::write(&model, template, &[("<|a|>", &format!("{call}\n{other}"))]).unwrap();
    let engine = EngineOptions::default().with_kv_tokens(Some(8192));
    let server = TestServer::with(Setup { model, engine, ..Setup::default() });
    let calls = |disable: bool| {
        let tools = json!([{ "name": "weather", "input_schema": { "type": "object" } }]);
        let choice = json!({ "type": "auto", "disable_parallel_tool_use": disable });
        let user = json!([{ "role": "user", "content": "x" }]);
        let body =
            json!({ "messages": user, "tools": tools, "tool_choice": choice, "max_tokens": 200 });
        server.post("/v1/messages", &body).ok()["content"].as_array().unwrap().len()
    };
    assert_eq!((calls(false), calls(true)), (2, 1));
    let body = json!({
        "messages": [{ "role": "user", "content": "x" }], "tools": tools::function(),
        "parallel_tool_calls": false, "stream": true,
    });
    let (chunks, _) = server.post("/v1/chat/completions", &body).events();
    let is_second =
        |chunk: &&Value| chunk.pointer("/choices/0/delta/tool_calls/0/index") == Some(&json!(1));
    assert_eq!(chunks.iter().filter(is_second).count(), 0);
}

#[test]
fn the_format_of_an_answer_is_that_of_its_output_config() {
    let server = TestServer::start();
    let schema = json!({
        "type": "object", "properties": { "a": { "enum": ["b"] } }, "required": ["a"],
        "additionalProperties": false,
    });
    let format = json!({ "type": "json_schema", "schema": schema });
    let user = json!([{ "role": "user", "content": "x" }]);
    for fields in
        [json!({ "output_config": { "format": format } }), json!({ "output_format": format })]
    {
        let mut body = json!({ "messages": user, "max_tokens": 60 });
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let text = server.post("/v1/messages", &body).ok()["content"][0]["text"].clone();
        let answer: Value = serde_json::from_str(text.as_str().unwrap()).unwrap();
        assert_eq!(answer, json!({ "a": "b" }));
    }
    let format = json!({ "format": { "type": "json_schema" } });
    let body = json!({ "messages": user, "max_tokens": 6, "output_config": format });
    let error = server.post("/v1/messages", &body);
    assert!(error.text.contains("`output_config.format.schema`"), "{}", error.text);
}
