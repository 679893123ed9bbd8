//! Structured output and tool calls, which a grammar enforces on the demo model.

use crate::server;
use crate::server::{Setup, TestServer};
use rocmforge::engine::EngineOptions;
use serde_json::{Value, json};

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

/// Random schemas: objects and arrays, limits, enums, references, and names and texts beyond ASCII.
/// Their answers are bounded, so that each one ends.
mod random {
    use rf_testing::SplitMix64 as Random;
    use serde_json::{Map, Value, json};

    fn part(random: &mut Random, depth: usize) -> Value {
        match random.below(if depth == 0 { 7 } else { 10 }) {
            0 => json!({ "type": "string", "minLength": 1, "maxLength": 4 + random.below(8) }),
            1 => json!({ "type": "string", "pattern": "^[a-zà-ÿ]{1,3}-[0-9]{1,4}$" }),
            2 => json!({ "enum": ["red", "grün", 7, null, "a\"b\\c\n", "日本"] }),
            3 => json!({ "type": "integer", "minimum": -5, "maximum": 1200 }),
            4 => json!({ "type": "number", "enum": [0.5, -3, 1e3] }),
            5 => json!({ "type": ["boolean", "null"] }),
            6 => json!({ "$ref": "#/$defs/leaf" }),
            7 => {
                let items = part(random, depth - 1);
                json!({ "type": "array", "items": items, "minItems": 1, "maxItems": 3 })
            }
            8 => json!({ "anyOf": [part(random, depth - 1), part(random, depth - 1)] }),
            _ => object(random, depth),
        }
    }

    fn object(random: &mut Random, depth: usize) -> Value {
        let (mut properties, mut required) = (Map::new(), Vec::new());
        for name in ["id", "naïve name", "🦙", "x\"y"].iter().take(1 + random.below(4)) {
            properties.insert((*name).to_owned(), part(random, depth - 1));
            if random.below(2) == 0 {
                required.push(*name);
            }
        }
        json!({
            "type": "object", "properties": properties, "required": required,
            "additionalProperties": false,
        })
    }

    pub(crate) fn schema(random: &mut Random) -> Value {
        let mut root = object(random, 3);
        root["$defs"] = json!({ "leaf": {
            "type": "object", "properties": { "wert": { "enum": ["ä", "ö"] } },
            "required": ["wert"], "additionalProperties": false,
        }});
        root
    }
}

#[test]
fn answers_to_random_schemas_are_valid() {
    // For a long run, such as 1000.
    let count = std::env::var("ROCFORGE_SCHEMAS").map_or(24, |count| count.parse().unwrap());
    // A model this small fills its answers with white space, which JSON allows.
    let engine =
        EngineOptions::default().with_context_tokens(Some(8192)).with_kv_tokens(Some(65536));
    let server = TestServer::with(Setup { engine, ..Setup::default() });
    let mut random = rf_testing::SplitMix64::new(3);
    let schemas: Vec<_> = (0..count).map(|_| random::schema(&mut random)).collect();
    let address = server.address;
    // Some at a time, of different kinds.
    for (batch, schemas) in schemas.chunks(12).enumerate() {
        let ask = |(index, schema): (usize, &Value)| {
            let body = json!({
                "messages": user(), "max_tokens": 8000, "temperature": 1.0, "seed": batch * 12 + index,
                "stream": false,
                "response_format": {
                    "type": "json_schema", "json_schema": { "name": "x", "schema": schema },
                },
            });
            let body = body.to_string();
            std::thread::spawn(move || {
                server::send(address, "POST", "/v1/chat/completions", &[], &body).ok()
            })
        };
        let threads: Vec<_> = schemas.iter().enumerate().map(ask).collect();
        for (thread, schema) in threads.into_iter().zip(schemas) {
            let answer = thread.join().unwrap();
            let choice = &answer["choices"][0];
            assert_eq!(choice["finish_reason"], "stop", "{schema}: {choice}");
            let text = choice["message"]["content"].as_str().unwrap();
            let value: Value =
                serde_json::from_str(text).unwrap_or_else(|_| panic!("no JSON: {text}"));
            let valid = jsonschema::validator_for(schema).unwrap().validate(&value);
            assert!(valid.is_ok(), "{text} for {schema}: {valid:?}");
        }
    }
}

/// Requests that ended the server or kept it busy, for each route that compiles.
#[test]
fn large_grammars_are_refused_on_every_route_while_others_are_served() {
    let server = TestServer::start();
    let mut definitions = serde_json::Map::new();
    for index in 0..1100 {
        let next = json!({ "$ref": format!("#/$defs/{}", index + 1) });
        definitions.insert(index.to_string(), next);
    }
    definitions.insert("1100".to_owned(), json!({ "type": "integer" }));
    let schema = json!({ "type": "object", "$defs": definitions, "properties": {
        "a": { "$ref": "#/$defs/0" },
    }});
    let user = json!([{ "role": "user", "content": "x" }]);
    let tool = json!({ "type": "function", "function": { "name": "t", "parameters": schema } });
    let format = json!({ "type": "json_schema", "json_schema": { "name": "s", "schema": schema } });
    for (path, body) in [
        ("/v1/chat/completions", json!({ "messages": user, "response_format": format })),
        ("/v1/completions", json!({ "prompt": "x", "json_schema": schema })),
        ("/completion", json!({ "prompt": "x", "grammar": format!("start: %json {schema}") })),
        (
            "/v1/chat/completions",
            json!({ "messages": user, "structured_outputs": { "json": schema } }),
        ),
        (
            "/v1/responses",
            json!({ "input": "x", "text": { "format": {
                "type": "json_schema", "name": "s", "schema": schema,
            }}}),
        ),
        ("/api/chat", json!({ "messages": user, "format": schema })),
        (
            "/v1/chat/completions",
            json!({
                "messages": user, "tools": [tool], "tool_choice": "required",
            }),
        ),
        (
            "/v1/chat/completions",
            json!({
                "messages": user, "tools": [tool],
                "tool_choice": { "type": "function", "function": { "name": "t" } },
            }),
        ),
        (
            "/v1/messages",
            json!({
                "messages": user, "max_tokens": 5, "tool_choice": { "type": "any" },
                "tools": [{ "name": "t", "input_schema": schema }],
            }),
        ),
    ] {
        let response = server.post(path, &body);
        assert_eq!(response.status, 400, "{path}: {}", response.text);
        let names_limit = response.text.contains("depth") && response.text.contains("1000");
        assert!(names_limit, "{path}: {}", response.text);
    }
    let long = "a".repeat(1025);
    for (field, value, limit) in [
        ("stop", json!([long]), "1024"),
        ("stop", json!(vec!["a"; 65]), "64"),
        ("grammar", json!(format!("root ::= \"{}\"", "a".repeat(300_000))), "262144"),
        ("structured_outputs", json!({ "choice": vec!["a"; 10_001] }), "10000"),
    ] {
        let response = server.post("/v1/completions", &json!({ "prompt": "x", field: value }));
        assert_eq!(response.status, 400, "{field}: {}", response.text);
        assert!(response.text.contains(limit), "{field}: {}", response.text);
    }
    let text = "a ".repeat(1 << 20);
    let response = server.post("/v1/completions", &json!({ "prompt": text }));
    assert_eq!(response.status, 400, "{}", response.text);
    assert!(response.text.contains("prompt is too long: "), "{}", response.text);
}

#[test]
fn whole_floats_are_integers_on_every_route() {
    let server = TestServer::start();
    let user = json!([{ "role": "user", "content": "x" }]);
    for (path, mut body) in [
        (
            "/v1/chat/completions",
            json!({ "messages": user, "top_logprobs": 2.0, "logprobs": true }),
        ),
        ("/v1/completions", json!({ "prompt": "x", "logprobs": 2.0, "best_of": 1.0 })),
        ("/v1/responses", json!({ "input": "x", "max_output_tokens": 1e0 })),
        ("/v1/messages", json!({ "messages": user })),
        ("/completion", json!({ "prompt": "x", "n_predict": 2.0, "n_probs": 1.0 })),
        (
            "/api/chat",
            json!({ "messages": user, "options": {
                "num_predict": 2.0, "top_k": 40.0, "seed": 42.0,
            }}),
        ),
    ] {
        for (field, value) in [("max_tokens", 2.0), ("top_k", 40.0), ("seed", 42.0), ("n", 1.0)] {
            body[field] = json!(value);
        }
        let response = server.post(path, &body);
        assert_eq!(response.status, 200, "{path}: {}", response.text);
        if !path.starts_with("/api/") {
            body["max_tokens"] = json!(16.5);
            let response = server.post(path, &body);
            assert_eq!(response.status, 400, "{path}: {}", response.text);
        }
    }
}
