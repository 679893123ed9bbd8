//! `/v1/responses` as agents use it: stored responses, and conversations with items of every type.

use crate::fixed;
use crate::server::{Setup, TestServer};
use rocmforge::engine::EngineOptions;
use serde_json::{Value, json};

/// The prompt shows roles, contents, calls and tools, and the first answer calls a tool.
const TEMPLATE: &str = "\
{%- for tool in tools or [] %}<tool {{ tool.function.name }}>{% endfor -%}
{%- for m in messages -%}<{{ m.role }}>
{%- if m.reasoning_content %}<thought {{ m.reasoning_content }}>{% endif -%}
{{ m.content }}
{%- for c in m.tool_calls or [] %}<call {{ c.function.name }} {{ c.function.arguments|tojson }}>{% endfor -%}
{%- endfor -%}
{%- if tools and messages[-1].role != 'tool' -%}<|call|>{%- else -%}<|plain|>{%- endif -%}
{#- <tool_call> -#}";

const TEXT: &str = "Every prompt gets this answer.";

fn start(call: &str) -> TestServer {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("fixed.gguf");
    let call = format!("<tool_call>\n{call}\n</tool_call>");
    fixed::write(&model, TEMPLATE, &[("<|plain|>", TEXT), ("<|call|>", &call)]).unwrap();
    let engine = EngineOptions::default().with_kv_tokens(Some(8192));
    TestServer::with(Setup { model, engine, ..Setup::default() })
}

fn input_tokens(server: &TestServer, body: &Value) -> u64 {
    let counted = server.post("/v1/responses/input_tokens", body).ok();
    assert_eq!(counted["object"], "response.input_tokens");
    counted["input_tokens"].as_u64().unwrap()
}

#[test]
fn a_response_continues_an_earlier_one() {
    let server = start("{}");
    let first = server.post("/v1/responses", &json!({ "input": "one" })).ok();
    assert_eq!(first["store"], true);
    let id = first["id"].as_str().unwrap();
    let second = json!({ "input": "two", "previous_response_id": id });
    let whole = json!({ "input": [
        { "role": "user", "content": "one" },
        { "role": "assistant", "content": TEXT },
        { "role": "user", "content": "two" },
    ]});
    assert_eq!(input_tokens(&server, &second), input_tokens(&server, &whole));
    let mut streamed = second.clone();
    streamed["stream"] = json!(true);
    let (events, _) = server.post("/v1/responses", &streamed).events();
    let last = &events.last().unwrap()["response"];
    assert_eq!(last["previous_response_id"], id);
    // A streamed response is stored, too, with the conversation before it.
    let third = json!({ "input": "three", "previous_response_id": last["id"] });
    let grown = input_tokens(&server, &third);
    assert!(grown > input_tokens(&server, &whole) + TEXT.len() as u64 / 8, "{grown}");

    let path = format!("/v1/responses/{id}");
    assert_eq!(server.get(&path).ok(), first);
    assert_eq!(server.send("DELETE", &path, &[], "").ok()["deleted"], true);
    assert_eq!(server.get(&path).status, 404);
    let error = server.post("/v1/responses", &second);
    assert_eq!(error.status, 404);
    assert_eq!(error.json()["error"]["param"], "previous_response_id");
    let unstored = server.post("/v1/responses", &json!({ "input": "x", "store": false })).ok();
    let path = format!("/v1/responses/{}", unstored["id"].as_str().unwrap());
    assert_eq!((server.get(&path).status, &unstored["store"]), (404, &json!(false)));
}

#[test]
fn a_response_repeats_the_settings_of_its_request() {
    let server = start("{}");
    let plain = server.post("/v1/responses", &json!({ "input": "x" })).ok();
    assert!(plain["completed_at"].as_u64() >= plain["created_at"].as_u64());
    let expected = json!({
        "background": false, "instructions": null, "max_output_tokens": null,
        "max_tool_calls": null, "metadata": {}, "parallel_tool_calls": true,
        "reasoning": { "effort": null, "summary": null }, "service_tier": "default",
        "store": true, "text": { "format": { "type": "text" } }, "tool_choice": "auto",
        "tools": [], "truncation": "disabled", "user": null,
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&plain[name], value, "{name}");
    }
    assert!(plain["temperature"].is_number() && plain["top_p"].is_number(), "{plain}");

    let function = json!({ "type": "function", "name": "f", "description": "d", "strict": true,
        "parameters": { "type": "object" } });
    let custom = json!({ "type": "custom", "name": "c", "format": { "type": "text" } });
    let settings = json!({
        "instructions": "Be short.", "max_output_tokens": 90, "max_tool_calls": 3,
        "metadata": { "topic": "a", "user": "b" }, "parallel_tool_calls": false,
        "reasoning": { "effort": "low", "summary": "auto" }, "temperature": 0.7, "top_p": 0.9,
        "text": { "format": { "type": "text" }, "verbosity": "low" }, "truncation": "auto",
        "tool_choice": "none", "tools": [function, custom], "user": "me", "store": true,
        "prompt_cache_key": "k", "safety_identifier": "s", "presence_penalty": 0.25,
        "frequency_penalty": 0.5,
    });
    let mut body = settings.clone();
    body["input"] = json!("x");
    let answer = server.post("/v1/responses", &body).ok();
    let path = format!("/v1/responses/{}", answer["id"].as_str().unwrap());
    body["stream"] = json!(true);
    let (events, _) = server.post("/v1/responses", &body).events();
    let (first, last) = (&events[0]["response"], &events.last().unwrap()["response"]);
    for (name, value) in settings.as_object().unwrap() {
        for response in [&answer, &server.get(&path).ok(), first, last] {
            assert_eq!(&response[name], value, "{name}");
        }
    }
    let wrong = server.post("/v1/responses", &json!({ "input": "x", "metadata": 3 }));
    assert_eq!((wrong.status, &wrong.json()["error"]["param"]), (400, &json!("metadata")));
    // Clients expect all fields of a function.
    let body = json!({ "input": "x", "tools": [{ "type": "function", "name": "f" }] });
    let expected = json!([{ "type": "function", "name": "f", "description": null,
        "parameters": null, "strict": null }]);
    assert_eq!(server.post("/v1/responses", &body).ok()["tools"], expected);
}

/// The second step of the AI SDK refers to the call of the first one.
#[test]
fn items_of_stored_responses_can_be_referred_to() {
    let server = start(r#"{"name": "weather", "arguments": {"city": "Oslo"}}"#);
    let tools =
        json!([{ "type": "function", "name": "weather", "parameters": { "type": "object" } }]);
    let first = server.post("/v1/responses", &json!({ "input": "x", "tools": tools })).ok();
    let call = &first["output"][0];
    assert_eq!(
        (call["type"].as_str(), call["name"].as_str()),
        (Some("function_call"), Some("weather"))
    );
    let result =
        json!({ "type": "function_call_output", "call_id": call["call_id"], "output": "4" });
    let user = json!({ "role": "user", "content": "x" });
    let referred = json!({ "tools": tools, "input": [
        user, { "type": "item_reference", "id": call["id"] }, result,
    ]});
    let whole = json!({ "tools": tools, "input": [user, call, result] });
    assert_eq!(input_tokens(&server, &referred), input_tokens(&server, &whole));
    let answer = server.post("/v1/responses", &referred).ok();
    assert_eq!(answer["output"][0]["content"][0]["text"], TEXT);
    let unknown = json!({ "input": [{ "type": "item_reference", "id": "fc_0" }] });
    let error = server.post("/v1/responses", &unknown);
    assert_eq!((error.status, &error.json()["error"]["param"]), (404, &json!("input[0].id")));
}

#[test]
fn tools_of_namespaces_and_custom_tools_are_called_by_their_own_names() {
    let tools = json!([
        { "type": "web_search" },
        { "type": "custom", "name": "apply_patch", "description": "d",
          "format": { "type": "grammar", "syntax": "lark", "definition": "start: /.+/" } },
        { "type": "namespace", "name": "mcp__fs", "tools": [
            { "type": "function", "name": "read", "parameters": { "type": "object" } },
        ]},
    ]);
    let server = start(r#"{"name": "mcp__fs__read", "arguments": {"p": "a"}}"#);
    let body = json!({ "input": "x", "tools": tools });
    let call = server.post("/v1/responses", &body).ok()["output"][0].clone();
    assert_eq!(call["type"], "function_call");
    assert_eq!((&call["name"], &call["namespace"]), (&json!("read"), &json!("mcp__fs")));
    assert_eq!(call["arguments"], r#"{"p": "a"}"#);

    let server = start(r#"{"name": "apply_patch", "arguments": {"input": "*** Begin\nx"}}"#);
    let call = server.post("/v1/responses", &body).ok()["output"][0].clone();
    assert_eq!(
        (&call["type"], &call["input"]),
        (&json!("custom_tool_call"), &json!("*** Begin\nx"))
    );
    let mut streamed = body.clone();
    streamed["stream"] = json!(true);
    let (events, _) = server.post("/v1/responses", &streamed).events();
    let of = |kind: &str| {
        let mut found = events.iter().filter(|event| event["type"] == kind);
        found.next().unwrap_or_else(|| panic!("no {kind} in {events:?}")).clone()
    };
    assert_eq!(of("response.custom_tool_call_input.delta")["delta"], "*** Begin\nx");
    assert_eq!(of("response.custom_tool_call_input.done")["input"], "*** Begin\nx");
    let item = of("response.output_item.done")["item"].clone();
    assert_eq!((&item["type"], &item["name"]), (&json!("custom_tool_call"), &json!("apply_patch")));
    // The client sends both items again.
    let result =
        json!({ "type": "custom_tool_call_output", "call_id": item["call_id"], "output": "ok" });
    let user = json!({ "role": "user", "content": "x" });
    let body = json!({ "tools": tools, "input": [user, item, result] });
    assert_eq!(server.post("/v1/responses", &body).ok()["output"][0]["content"][0]["text"], TEXT);
}

#[test]
fn a_thought_is_part_of_the_message_that_follows() {
    let server = start(r#"{"name": "f", "arguments": {}}"#);
    let user = json!({ "type": "message", "role": "user", "content": "x" });
    let thought = |text: &str| {
        let content = json!([{ "type": "reasoning_text", "text": text }]);
        json!({ "type": "reasoning", "id": "r", "summary": [], "content": content })
    };
    let said = json!({ "type": "message", "role": "assistant", "content": "word" });
    let call = json!({ "type": "function_call", "call_id": "c", "name": "f", "arguments": "{}" });
    let input = json!([user, thought("one"), said, call, thought("two"), user, thought("three")]);
    let calls = json!([{ "id": "c", "function": { "name": "f", "arguments": "{}" } }]);
    let messages = json!([
        { "role": "user", "content": "x" },
        { "role": "assistant", "reasoning_content": "one", "content": "word", "tool_calls": calls },
        { "role": "user", "content": "x" },
    ]);
    let body = json!({ "messages": messages });
    let rendered = server.post("/v1/chat/completions/render", &body).ok();
    assert!(rendered["prompt"].as_str().unwrap().contains("<thought one>word<call f"));
    let tokens = rendered["token_ids"].as_array().unwrap().len() as u64;
    assert_eq!(input_tokens(&server, &json!({ "input": input })), tokens);
}

/// Refused once, an item would be refused in each later turn.
#[test]
fn no_item_of_a_replayed_conversation_is_refused() {
    let server = start("{}");
    let image = json!({ "type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=" });
    let user = json!({ "type": "message", "role": "user", "content": "x" });
    let alone = input_tokens(&server, &json!({ "input": [user] }));
    for (item, adds) in [
        (
            json!({ "type": "reasoning", "id": "r", "summary": [], "encrypted_content": null }),
            false,
        ),
        (json!({ "type": "web_search_call", "id": "w", "action": { "query": "q" } }), false),
        (
            json!({ "type": "compaction_summary", "encrypted_content": "x", "content": { "a": 1 } }),
            false,
        ),
        (json!({ "type": "tool_search_call", "call_id": "c", "arguments": {} }), false),
        (json!({ "type": "mcp_call", "name": "m", "arguments": "{}", "output": "o" }), false),
        (json!({ "type": "file_search_call", "queries": ["q"], "results": null }), false),
        (json!({ "type": "image_generation_call", "result": "aGk=" }), false),
        (json!({ "type": "not_invented_yet", "content": 3, "role": "r" }), false),
        (
            json!({ "type": "agent_message", "content": [{ "type": "input_text", "text": "hi" }] }),
            true,
        ),
        (
            json!({ "type": "message", "role": "assistant",
                 "content": [{ "type": "refusal", "refusal": "I will not." }] }),
            true,
        ),
        (
            json!({ "type": "function_call_output", "call_id": "c",
                 "output": [{ "type": "input_text", "text": "ok" }, image] }),
            true,
        ),
        (json!({ "type": "function_call_output", "call_id": "c", "output": { "a": [1] } }), true),
        (
            json!({ "type": "custom_tool_call", "call_id": "d", "name": "p", "input": "*** Begin" }),
            true,
        ),
        (json!({ "type": "custom_tool_call_output", "call_id": "d", "output": "done" }), true),
        (
            json!({ "type": "local_shell_call", "call_id": "e", "action": { "command": ["ls"] } }),
            true,
        ),
        (json!({ "type": "local_shell_call_output", "call_id": "e", "output": "a" }), true),
    ] {
        let found = input_tokens(&server, &json!({ "input": [user, item, user] }));
        let without = input_tokens(&server, &json!({ "input": [user, user] }));
        assert!(without > alone);
        assert_eq!(found > without, adds, "{item}");
    }
    let seen = json!({ "type": "message", "role": "user", "content": [image] });
    let error = server.post("/v1/responses", &json!({ "input": [user, seen] }));
    assert_eq!(error.status, 400);
    assert_eq!(error.json()["error"]["param"], "input");
}
