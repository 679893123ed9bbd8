//! Mutated bodies of real requests, sent through the router without a socket: every one gets an
//! answer, and none the status 500.

use axum::Router;
use axum::body::to_bytes;
use axum::http::Request as HttpRequest;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use rf_server::{ModelEntry, ServerOptions};
use rf_testing::SplitMix64;
use rocmforge::engine::scheduler::Handle;
use rocmforge::{Loader, Purpose};
use serde_json::{Value, json};

use crate::fixed;

/// Set it to the number of bodies for a long run, such as 100000.
const COUNT: &str = "ROCFORGE_FUZZ_BODIES";
const DEFAULT_COUNT: usize = 3000;

/// The routes of other models than that of the test.
const UNANSWERED: [&str; 5] = ["/infill", "/api/embed", "/api/embeddings", "/v1/rerank", "/score"];

/// The routes of a server with one model, and the queue of the model.
fn app() -> (Router, Handle) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fixed.gguf");
    let template = "{% for message in messages %}{{ message.content }}{% endfor %}{{ tools }}\
        <|answer|>{# <tool_call> <think> #}";
    let answer = "<think>\nHm.\n</think>\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>";
    fixed::write(&path, template, &[("<|answer|>", answer)]).unwrap();
    let backend = rf_testing::engine::cpu(1);
    let loader = Loader::new(path).purpose(Purpose::Texts).context_tokens(512).kv_tokens(2048);
    let open = loader.open(&mut |_| ()).unwrap();
    let model = open.load_on_backend(&backend, &mut |_| ()).unwrap().start().unwrap();
    let handle = model.handle().unwrap().clone();
    let models = [ModelEntry::loaded("fixed", model)];
    (rf_server::routes(models, ServerOptions::default()).unwrap(), handle)
}

/// Bodies as clients send them.
#[expect(clippy::too_many_lines, reason = "a list")]
fn requests() -> Vec<(&'static str, Value)> {
    let function = json!({
        "name": "f", "description": "d",
        "parameters": { "type": "object", "properties": { "x": { "type": "integer" } }, "required": ["x"] },
    });
    let tools = json!([{ "type": "function", "function": function }]);
    let call = json!({ "id": "c1", "type": "function", "function": { "name": "f", "arguments": "{\"x\":1}" } });
    let messages = json!([
        { "role": "system", "content": "Be brief." },
        { "role": "user", "content": [{ "type": "text", "text": "Hi é" }] },
        { "role": "assistant", "content": null, "tool_calls": [call] },
        { "role": "tool", "tool_call_id": "c1", "content": "4" },
        { "role": "user", "content": "And?" },
    ]);
    let schema = json!({
        "type": "object", "properties": { "a": { "enum": ["b", 1] } }, "required": ["a"],
        "additionalProperties": false,
    });
    vec![
        (
            "/v1/chat/completions",
            json!({
                "model": "fixed", "messages": messages, "tools": tools, "tool_choice": "auto",
                "max_tokens": 6, "temperature": 0.5, "top_p": 0.9, "top_k": 5, "seed": 1, "n": 2,
                "stop": ["x", "y"], "logprobs": true, "top_logprobs": 2, "stream": true,
                "stream_options": { "include_usage": true }, "logit_bias": { "7": -1.5 },
                "reasoning_effort": "low", "chat_template_kwargs": { "a": 1 }, "user": "me",
            }),
        ),
        (
            "/v1/chat/completions",
            json!({
                "messages": messages, "max_completion_tokens": 8, "tools": tools,
                "tool_choice": { "type": "function", "function": { "name": "f" } },
            }),
        ),
        (
            "/v1/chat/completions",
            json!({
                "messages": [{ "role": "user", "content": "x" }], "max_tokens": 12,
                "response_format": { "type": "json_schema", "json_schema": { "name": "s", "schema": schema } },
            }),
        ),
        (
            "/v1/completions",
            json!({
                "model": "fixed", "prompt": ["Once", "Twice"], "max_tokens": 4, "echo": true,
                "logprobs": 1, "best_of": 1, "presence_penalty": 0.5, "repeat_penalty": 1.1,
            }),
        ),
        (
            "/v1/completions",
            json!({
                "prompt": [1, 2, 3], "max_tokens": 4, "stream": true, "grammar": "root ::= \"a\" [b-d]*",
            }),
        ),
        (
            "/v1/responses",
            json!({
                "model": "fixed", "instructions": "Be brief.", "max_output_tokens": 4, "stream": true,
                "input": [
                    { "role": "user", "content": [{ "type": "input_text", "text": "Hi" }] },
                    { "type": "function_call", "call_id": "c", "name": "f", "arguments": "{}" },
                    { "type": "function_call_output", "call_id": "c", "output": "4" },
                ],
                "tools": [{ "type": "function", "name": "f", "parameters": schema }],
                "text": { "format": { "type": "json_object" } }, "reasoning": { "effort": "low" },
            }),
        ),
        (
            "/v1/messages",
            json!({
                "model": "fixed", "max_tokens": 6, "system": [{ "type": "text", "text": "Be brief." }],
                "messages": [
                    { "role": "user", "content": "Hi" },
                    { "role": "assistant", "content": [
                        { "type": "thinking", "thinking": "Hm", "signature": "" },
                        { "type": "tool_use", "id": "t", "name": "f", "input": { "x": 1 } },
                    ]},
                    { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "t", "content": "4" }] },
                ],
                "tools": [{ "name": "f", "input_schema": schema }], "tool_choice": { "type": "any" },
                "stop_sequences": ["x"], "stream": true, "thinking": { "type": "disabled" },
            }),
        ),
        (
            "/v1/messages/count_tokens",
            json!({
                "model": "fixed", "messages": [{ "role": "user", "content": "Hi" }],
            }),
        ),
        (
            "/api/chat",
            json!({
                "model": "fixed:latest", "messages": [{ "role": "user", "content": "Hi", "images": [] }],
                "options": { "num_predict": 4, "temperature": 0.1, "stop": ["x"] }, "format": schema,
                "think": true, "keep_alive": "5m", "tools": tools,
            }),
        ),
        (
            "/api/generate",
            json!({
                "model": "fixed", "prompt": "Hi", "system": "Be brief.", "raw": false, "stream": false,
                "options": { "num_predict": 4 }, "suffix": "", "keep_alive": -1,
            }),
        ),
        (
            "/v1/completions",
            json!({
                "prompt": "Once", "max_tokens": 4, "stop_token_ids": [5], "min_tokens": 2,
                "bad_words": ["x y"], "allowed_token_ids": [65, 66, 67], "reasoning_budget": 1,
            }),
        ),
        (
            "/v1/responses",
            json!({
                "max_output_tokens": 4, "store": true,
                "input": [
                    { "type": "reasoning", "summary": [] },
                    { "type": "custom_tool_call", "call_id": "c", "name": "p", "input": "x" },
                    { "type": "custom_tool_call_output", "call_id": "c", "output": [{ "type": "input_image" }] },
                    { "type": "message", "role": "user", "content": "Hi", "id": "m" },
                ],
                "tools": [
                    { "type": "custom", "name": "p", "description": "d" },
                    { "type": "namespace", "name": "n", "tools": [{ "type": "function", "name": "f" }] },
                ],
            }),
        ),
        ("/v1/responses/input_tokens", json!({ "input": "Hi", "instructions": "Be brief." })),
        (
            "/v1/chat/completions/input_tokens",
            json!({ "messages": [{ "role": "user", "content": "Hi" }] }),
        ),
        (
            "/v1/messages",
            json!({
                "max_tokens": 4, "thinking": { "type": "enabled", "budget_tokens": 2 },
                "output_config": { "effort": "low", "format": { "type": "json_schema", "schema": schema } },
                "messages": [{ "role": "user", "content": [
                    { "type": "document", "source": { "type": "text", "data": "x" }, "title": "t" },
                    { "type": "tool_result", "tool_use_id": "t", "content": [{ "type": "image", "source": {} }] },
                ]}],
            }),
        ),
        ("/v1/rerank", json!({ "query": "a", "documents": ["b", { "text": "c" }], "top_n": 1 })),
        ("/score", json!({ "text_1": "a", "text_2": ["b"] })),
        ("/api/embeddings", json!({ "model": "fixed", "prompt": "a" })),
        ("/models/load", json!({ "model": "fixed" })),
        ("/models/unload", json!({ "model": "fixed" })),
        ("/api/show", json!({ "model": "fixed" })),
        ("/api/embed", json!({ "model": "fixed", "input": ["a", "b"], "truncate": true })),
        (
            "/completion",
            json!({
                "prompt": ["Once", 5], "n_predict": 4, "n_probs": 2, "cache_prompt": false,
                "ignore_eos": true, "logit_bias": [[7, false]],
            }),
        ),
        ("/infill", json!({ "input_prefix": "a", "input_suffix": "b", "n_predict": 2 })),
        ("/tokenize", json!({ "content": "Hi", "with_pieces": true, "add_special": true })),
        (
            "/tokenize",
            json!({ "model": "fixed", "messages": [{ "role": "user", "content": "Hi" }] }),
        ),
        ("/detokenize", json!({ "tokens": [1, 2, 3] })),
        ("/apply-template", json!({ "messages": [{ "role": "user", "content": "Hi" }] })),
    ]
}

/// Random numbers and values.
struct Random(SplitMix64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0.below(limit)
    }

    fn value(&mut self) -> Value {
        const TEXTS: [&str; 8] =
            ["", "a", "\u{0}", "é\u{202e}🦙", "<|im_end|>", "<|answer|>", "{{ x }}", "function"];
        match self.below(14) {
            0 => Value::Null,
            1 => json!(self.below(2) == 0),
            2 => json!(-1),
            3 => json!(0),
            4 => json!(self.below(2000)),
            5 => json!(u64::MAX),
            6 => json!(i64::MIN),
            7 => json!(1e308),
            8 => json!(0.5),
            9 => json!([]),
            10 => json!({}),
            11 => json!("x".repeat(self.below(3000))),
            12 => json!([self.value(), self.value()]),
            _ => json!(TEXTS[self.below(TEXTS.len())]),
        }
    }

    /// Changes one node of a value.
    fn mutate(&mut self, value: &mut Value) {
        let goes_on = self.below(4) > 0;
        match value {
            Value::Object(map) if goes_on && !map.is_empty() => {
                let index = self.below(map.len());
                let Some(key) = map.keys().nth(index).cloned() else { return };
                match self.below(8) {
                    0 => drop(map.remove(&key)),
                    1 => drop(map.insert("unknown".to_owned(), self.value())),
                    _ => {
                        if let Some(child) = map.get_mut(&key) {
                            self.mutate(child);
                        }
                    }
                }
            }
            Value::Array(list) if goes_on && !list.is_empty() => {
                let index = self.below(list.len());
                match self.below(6) {
                    0 => drop(list.remove(index)),
                    1 => list.push(list[index].clone()),
                    2 => list.reverse(),
                    _ => self.mutate(&mut list[index]),
                }
            }
            other => *other = self.value(),
        }
    }

    /// Changes some bytes.
    fn damage(&mut self, bytes: &mut Vec<u8>) {
        const BYTES: &[u8] = b"\"{}[]:,\\u0eE-+. \n\0\xff\xc3\xed";
        for _ in 0..=self.below(3) {
            let at = self.below(bytes.len());
            match self.below(5) {
                _ if bytes.is_empty() => return,
                0 => bytes.truncate(at),
                1 => drop(bytes.remove(at)),
                2 => bytes.insert(at, BYTES[self.below(BYTES.len())]),
                3 => bytes[at] = BYTES[self.below(BYTES.len())],
                _ => {
                    let piece = bytes[at..bytes.len().min(at + self.below(40))].to_vec();
                    bytes.extend(piece);
                }
            }
        }
    }

    fn body(&mut self, request: &Value) -> Vec<u8> {
        let mut request = request.clone();
        let structural = self.below(4) > 0;
        if structural {
            for _ in 0..=self.below(3) {
                self.mutate(&mut request);
            }
        }
        let mut bytes = request.to_string().into_bytes();
        if !structural || self.below(8) == 0 {
            self.damage(&mut bytes);
        }
        bytes
    }
}

#[test]
fn every_mutated_body_gets_an_answer() {
    let count = std::env::var(COUNT).map_or(DEFAULT_COUNT, |count| count.parse().unwrap());
    let (routes, handle) = app();
    let service = TowerToHyperService::new(routes);
    let requests = requests();
    let mut random = Random(SplitMix64::new(14));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let send = |path: &str, body: Vec<u8>| {
        let request = HttpRequest::post(path).body(Full::new(Bytes::from(body))).unwrap();
        runtime.block_on(async {
            let response = service.call(request).await.unwrap();
            let status = response.status().as_u16();
            let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
            (status, bytes)
        })
    };
    // The bodies are good before they are mutated, except those that the model cannot answer.
    for (path, request) in &requests {
        let (status, answer) = send(path, request.to_string().into_bytes());
        let is_answered = !UNANSWERED.contains(path);
        assert_eq!(status == 200, is_answered, "{path}: {}", String::from_utf8_lossy(&answer));
    }
    let mut answered = 0;
    for index in 0..count {
        let (path, request) = &requests[random.below(requests.len())];
        let body = random.body(request);
        let (status, answer) = send(path, body.clone());
        let shown = String::from_utf8_lossy(&body);
        assert!(
            matches!(status, 200 | 400 | 404 | 501),
            "{index}: {status} for {path} {shown}: {}",
            String::from_utf8_lossy(&answer)
        );
        answered += usize::from(status == 200);
        if status != 200 {
            let error: Value = serde_json::from_slice(&answer).unwrap();
            assert!(!error["error"].is_null(), "{index}: {error} for {shown}");
        }
    }
    assert!(answered > count / 10, "{answered} of {count}: the mutations are too strong");
    let stats = handle.stats();
    assert_eq!((stats.running, stats.kv_pages_used), (0, 0));
}
