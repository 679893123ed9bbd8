//! Structured output and tool calls, which a grammar enforces on the demo model.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

mod server;

use serde_json::{Value, json};
use server::TestServer;

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "animal": { "enum": ["fox", "owl"] },
            "keys": { "type": "integer", "minimum": 1, "maximum": 9 },
        },
        "required": ["animal", "keys"],
        "additionalProperties": false,
    })
}

fn check(text: &str) {
    let value: Value = serde_json::from_str(text).unwrap_or_else(|_| panic!("no JSON: {text}"));
    assert!(["fox", "owl"].map(Value::from).contains(&value["animal"]), "{text}");
    assert!((1..=9).contains(&value["keys"].as_u64().unwrap()), "{text}");
    assert_eq!(value.as_object().unwrap().len(), 2, "{text}");
}

fn user() -> Value {
    json!([{ "role": "user", "content": "Tell me a story about a fox and a lost key." }])
}

fn chat(server: &TestServer, extra: &Value) -> Value {
    let mut body = json!({ "messages": user(), "max_tokens": 120 });
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    server.post("/v1/chat/completions", &body).ok()["choices"][0].clone()
}

#[test]
fn every_field_constrains_the_answer() {
    let server = TestServer::start();
    let content =
        |extra: &Value| chat(&server, extra)["message"]["content"].as_str().unwrap().to_owned();
    let named =
        json!({ "type": "json_schema", "json_schema": { "name": "x", "schema": schema() } });
    check(&content(&json!({ "response_format": named })));
    check(&content(&json!({ "json_schema": schema(), "temperature": 1.0, "seed": 3 })));
    check(&content(&json!({ "structured_outputs": { "json": schema() } })));
    assert_eq!(content(&json!({ "grammar": "root ::= \"no \" [k] \"ey\"" })), "no key");
    assert_eq!(
        content(
            &json!({ "structured_outputs": { "grammar": "start: \"a\" /b+c/" }, "logit_bias": {} })
        )[..1],
        *"a"
    );
    let choice = content(&json!({ "structured_outputs": { "choice": ["owl", "bear"] } }));
    assert!(["owl", "bear"].contains(&choice.as_str()), "{choice}");
    let year = content(&json!({ "structured_outputs": { "regex": "[12][0-9]{3}" } }));
    assert!(year.len() == 4 && year.parse::<u32>().is_ok(), "{year}");

    let body = json!({ "prompt": "A fox: ", "json_schema": schema(), "max_tokens": 120 });
    check(server.post("/completion", &body).ok()["content"].as_str().unwrap());
    let body = json!({ "messages": user(), "format": schema(), "stream": false });
    check(server.post("/api/chat", &body).ok()["message"]["content"].as_str().unwrap());
    let format = json!({ "type": "json_schema", "name": "x", "schema": schema() });
    let body = json!({ "input": "A fox", "text": { "format": format }, "max_output_tokens": 120 });
    let answer = server.post("/v1/responses", &body).ok();
    check(answer["output"][0]["content"][0]["text"].as_str().unwrap());
}

#[test]
fn a_grammar_that_does_not_compile_is_named() {
    let server = TestServer::start();
    for (fields, field) in [
        (json!({ "grammar": "root ::= (" }), "grammar"),
        (json!({ "json_schema": { "type": "nothing" } }), "json_schema"),
        (json!({ "structured_outputs": { "regex": "(" } }), "structured_outputs"),
        (json!({ "structured_outputs": { "choice": [] } }), "structured_outputs"),
        (json!({ "response_format": { "type": "xml" } }), "response_format.type"),
        (json!({ "tools": [{ "type": "function", "function": {} }] }), "tools[0].function.name"),
        (json!({ "tool_choice": "required" }), "tool_choice"),
    ] {
        let mut body = json!({ "messages": user() });
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let response = server.post("/v1/chat/completions", &body);
        assert_eq!(response.status, 400, "{fields}: {}", response.text);
        assert_eq!(response.json()["error"]["param"], field, "{fields}: {}", response.text);
    }
}

#[test]
fn a_demanded_call_is_made_and_streamed() {
    let server = TestServer::start();
    let function = json!({ "name": "find", "description": "Finds keys.", "parameters": schema() });
    let tools = json!([{ "type": "function", "function": function }]);
    let named = json!({ "type": "function", "function": { "name": "find" } });
    for choice in [json!("required"), named] {
        let extra = json!({ "tools": tools, "tool_choice": choice, "parallel_tool_calls": false });
        let answer = chat(&server, &extra);
        assert_eq!(answer["finish_reason"], "tool_calls", "{answer}");
        let call = &answer["message"]["tool_calls"][0];
        assert_eq!(call["type"], "function");
        assert_eq!(call["function"]["name"], "find");
        check(call["function"]["arguments"].as_str().unwrap());

        let mut body = json!({ "messages": user(), "stream": true });
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let (chunks, _) = server.post("/v1/chat/completions", &body).events();
        let calls: Vec<_> = chunks
            .iter()
            .filter_map(|chunk| chunk["choices"][0]["delta"]["tool_calls"].as_array())
            .flatten()
            .collect();
        assert_eq!(calls[0]["function"]["name"], "find");
        assert!(calls[0]["id"].is_string());
        let arguments: String =
            calls.iter().filter_map(|call| call["function"]["arguments"].as_str()).collect();
        assert_eq!(arguments, call["function"]["arguments"].as_str().unwrap());
    }
    let cut = json!({ "tools": tools, "tool_choice": "required", "max_tokens": 8 });
    assert_eq!(chat(&server, &cut)["finish_reason"], "length");

    // The call and its result go back to the model.
    let call = json!({ "id": "c1", "type": "function", "function": { "name": "find", "arguments": "{\"animal\":\"fox\"}" } });
    let messages = json!([
        user()[0],
        { "role": "assistant", "content": null, "tool_calls": [call] },
        { "role": "tool", "tool_call_id": "c1", "content": "under the bridge" },
    ]);
    let body = json!({ "messages": messages, "tools": tools });
    let prompt = server.post("/apply-template", &body).ok()["prompt"].to_string();
    assert!(prompt.contains("under the bridge") && prompt.contains("Finds keys."), "{prompt}");
}

#[test]
fn the_other_apis_have_calls_in_their_own_form() {
    let server = TestServer::start();
    let tools = json!([{ "name": "find", "input_schema": schema() }]);
    let mut body = json!({
        "messages": user(), "tools": tools, "tool_choice": { "type": "any" }, "max_tokens": 120,
    });
    let answer = server.post("/v1/messages", &body).ok();
    assert_eq!(answer["stop_reason"], "tool_use", "{answer}");
    assert_eq!(answer["content"][0]["type"], "tool_use");
    check(&answer["content"][0]["input"].to_string());
    body["stream"] = json!(true);
    let (events, _) = server.post("/v1/messages", &body).events();
    let arguments: String =
        events.iter().filter_map(|event| event["delta"]["partial_json"].as_str()).collect();
    check(&arguments);

    let tools = json!([{ "type": "function", "name": "find", "parameters": schema() }]);
    let body =
        json!({ "input": "A fox", "tools": tools, "tool_choice": "required", "stream": true });
    let (events, _) = server.post("/v1/responses", &body).events();
    let types: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert!(types.contains(&"response.function_call_arguments.delta"), "{types:?}");
    assert!(types.contains(&"response.function_call_arguments.done"), "{types:?}");
    let output = &events.last().unwrap()["response"]["output"][0];
    assert_eq!(output["type"], "function_call");
    check(output["arguments"].as_str().unwrap());
}
