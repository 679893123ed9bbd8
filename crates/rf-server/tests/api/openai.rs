//! The API of `OpenAI` over real sockets, with the demo model.

use std::ops::ControlFlow;

use crate::server::{TestServer, demo, load};
use rocmforge::engine::sampling::SamplerConfig;
use rocmforge::engine::{EngineOptions, GenerateOptions};
use serde_json::{Value, json};

const STORY: &str = "Tell me a story about a fox and a lost key.";

fn chat(extra: &Value) -> Value {
    let mut body = json!({ "model": "demo", "messages": [{ "role": "user", "content": STORY }], "max_tokens": 24 });
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

/// The text that the engine alone generates.
fn alone(prompt: &str, max_tokens: usize) -> String {
    let mut engine = load(&demo(), EngineOptions::default());
    let ids = engine.model().text_ids(prompt);
    let mut session = engine.session();
    let options = GenerateOptions::default()
        .with_sampler(SamplerConfig::greedy())
        .with_max_tokens(max_tokens);
    engine.generate(&mut session, &ids, &options, &mut |_| ControlFlow::Continue(())).unwrap().text
}

#[test]
fn a_greedy_completion_is_the_one_of_the_engine() {
    let server = TestServer::start();
    let body = json!({ "prompt": "Once upon a time", "max_tokens": 40 });
    let answer = server.post("/v1/completions", &body).ok();
    let text = alone("Once upon a time", 40);
    assert_eq!(answer["choices"][0]["text"], text);
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    assert_eq!(answer["object"], "text_completion");
    assert_eq!(answer["usage"]["prompt_tokens"], 4);
    assert_eq!(answer["usage"]["completion_tokens"], 40);
    assert_eq!(answer["usage"]["total_tokens"], 44);

    let body =
        json!({ "prompt": "Once upon a time", "max_tokens": 40, "stream": true, "echo": true });
    let (chunks, done) = server.post("/v1/completions", &body).events();
    let streamed: String =
        chunks.iter().map(|chunk| chunk["choices"][0]["text"].as_str().unwrap()).collect();
    assert_eq!(streamed, format!("Once upon a time{text}"));
    assert!(done);
}

#[test]
fn an_echoed_prompt_comes_with_its_log_probabilities() {
    let server = TestServer::start();
    let tokens = |text: &str| {
        let body = json!({ "prompt": text });
        server.post("/tokenize", &body).ok()["tokens"].as_array().unwrap().len()
    };
    let prompts = ["Once upon a time", "The fox"];
    let mut body = json!({
        "prompt": prompts, "max_tokens": 3, "echo": true, "logprobs": 2, "n": 2, "temperature": 0,
    });
    let answer = server.post("/v1/completions", &body).ok();
    for (index, choice) in answer["choices"].as_array().unwrap().iter().enumerate() {
        let prompt = prompts[index / 2];
        assert_eq!(choice["text"], format!("{prompt}{}", alone(prompt, 3)));
        let logprobs = &choice["logprobs"];
        let values = logprobs["token_logprobs"].as_array().unwrap();
        assert_eq!(values.len(), tokens(prompt) + 3);
        assert!(values[0].is_null() && logprobs["top_logprobs"][0].is_null());
        assert!(values[1..].iter().all(|value| value.as_f64().unwrap() <= 0.0), "{logprobs}");
        assert_eq!(logprobs["top_logprobs"][1].as_object().unwrap().len(), 2);
        assert_eq!(logprobs["text_offset"].as_array().unwrap().len(), values.len());
    }
    // What a token's probability is does not depend on whether it is generated or given.
    let generated = &answer["choices"][0]["logprobs"]["token_logprobs"];
    let full = answer["choices"][0]["text"].clone();
    body["prompt"] = full.clone();
    body["max_tokens"] = json!(0);
    body["n"] = json!(1);
    let given = server.post("/v1/completions", &body).ok();
    assert_eq!(given["choices"][0]["logprobs"]["token_logprobs"], *generated);
    assert_eq!(given["choices"][0]["text"], full);
    assert_eq!(given["usage"]["completion_tokens"], 0);

    body["stream"] = json!(true);
    let (chunks, done) = server.post("/v1/completions", &body).events();
    assert!(done);
    assert_eq!(chunks[0]["choices"][0], {
        let mut choice = given["choices"][0].clone();
        choice["finish_reason"] = Value::Null;
        choice
    });
}

#[test]
fn several_prompts_and_choices_are_numbered_in_order() {
    let server = TestServer::start();
    let prompts = ["Once upon a time", "The fox"];
    let body = json!({ "prompt": prompts, "n": 2, "max_tokens": 8 });
    let answer = server.post("/v1/completions", &body).ok();
    let choices = answer["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 4);
    for (index, choice) in choices.iter().enumerate() {
        assert_eq!(choice["index"], index);
        assert_eq!(choice["text"], alone(prompts[index / 2], 8));
    }
    assert_eq!(answer["usage"]["completion_tokens"], 32);

    let ids =
        server.post("/tokenize", &json!({ "content": "Once upon a time" })).ok()["tokens"].clone();
    let by_ids = server.post("/v1/completions", &json!({ "prompt": ids, "max_tokens": 8 })).ok();
    assert_eq!(by_ids["choices"][0]["text"], choices[0]["text"]);
    let body = json!({ "prompt": [ids, ids], "max_tokens": 8 });
    assert_eq!(server.post("/v1/completions", &body).ok()["choices"].as_array().unwrap().len(), 2);
}

#[test]
fn a_chat_has_the_fields_that_clients_read() {
    let server = TestServer::start();
    let answer = server.post("/v1/chat/completions", &chat(&json!({}))).ok();
    assert_eq!(answer["object"], "chat.completion");
    assert_eq!(answer["model"], "demo");
    assert!(answer["id"].as_str().unwrap().starts_with("chatcmpl-"));
    let choice = &answer["choices"][0];
    assert_eq!(choice["message"]["role"], "assistant");
    assert!(choice["message"]["content"].as_str().unwrap().contains("fox"), "{choice}");
    assert_eq!(choice["finish_reason"], "length");
    assert_eq!(choice["logprobs"], Value::Null);
    assert_eq!(answer["usage"]["completion_tokens"], 24);
    assert_eq!(answer["timings"]["predicted_n"], 24);

    let parts = json!({ "messages": [{ "role": "user", "content": [
        { "type": "text", "text": &STORY[..9] }, { "type": "text", "text": &STORY[9..] },
    ]}]});
    let of_parts = server.post("/v1/chat/completions", &chat(&parts)).ok();
    assert_eq!(of_parts["choices"][0]["message"], choice["message"]);
}

#[test]
fn a_stream_adds_up_to_the_answer() {
    let server = TestServer::start();
    let whole = server.post("/v1/chat/completions", &chat(&json!({ "n": 2 }))).ok();
    let options = json!({ "stream": true, "n": 2, "stream_options": { "include_usage": true } });
    let response = server.post("/v1/chat/completions", &chat(&options));
    assert_eq!(response.header("content-type"), "text/event-stream");
    let (chunks, done) = response.events();
    assert!(done);
    let mut texts = [String::new(), String::new()];
    let mut ends = Vec::new();
    for chunk in &chunks {
        assert_eq!(chunk["object"], "chat.completion.chunk");
        assert_eq!(chunk["id"], chunks[0]["id"]);
        for choice in chunk["choices"].as_array().unwrap() {
            let index = choice["index"].as_u64().unwrap() as usize;
            texts[index] += choice["delta"]["content"].as_str().unwrap_or_default();
            ends.extend(choice["finish_reason"].as_str());
        }
    }
    for (index, text) in texts.iter().enumerate() {
        assert_eq!(whole["choices"][index]["message"]["content"], *text);
    }
    assert_eq!(ends, ["length", "length"]);
    let last = chunks.last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"]["completion_tokens"], 48);
    let without = server.post("/v1/chat/completions", &chat(&json!({ "stream": true })));
    assert!(without.events().0.iter().all(|chunk| chunk.get("usage").is_none()));
}

#[test]
fn a_repeated_prompt_is_cached_and_the_answer_stays() {
    let server = TestServer::start();
    let prompt = "Once upon a time there was a fox. ".repeat(12);
    let body = json!({ "prompt": prompt, "max_tokens": 8 });
    let first = server.post("/v1/completions", &body).ok();
    let second = server.post("/v1/completions", &body).ok();
    assert_eq!(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    let cached = second["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    assert!(cached > 32, "{cached}");
    assert_eq!(second["timings"]["cache_n"], cached);
    assert_eq!(first["choices"][0]["text"], second["choices"][0]["text"]);
    let body = json!({ "prompt": prompt, "max_tokens": 8, "cache_prompt": false });
    let without = server.post("/v1/completions", &body).ok();
    assert_eq!(without["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
}

#[test]
fn parameters_of_sampling_have_their_effect() {
    let server = TestServer::start();
    let text = |extra: &Value| {
        let answer = server.post("/v1/chat/completions", &chat(extra)).ok();
        answer["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
    };
    let greedy = text(&json!({}));
    let seeded = |seed: i64| text(&json!({ "temperature": 1.5, "seed": seed }));
    assert_eq!(seeded(7), seeded(7));
    assert_ne!(seeded(7), seeded(8));
    // Rules out the first token of the greedy answer, in both forms.
    let body = json!({ "content": greedy });
    let first = server.post("/tokenize", &body).ok()["tokens"][0].as_u64().unwrap();
    for bias in [json!({ first.to_string(): -100 }), json!([[first, false]])] {
        assert_ne!(text(&json!({ "logit_bias": bias }))[..2], greedy[..2]);
    }
    let stop = &greedy[10..16];
    assert_eq!(text(&json!({ "stop": [stop] })), greedy[..greedy.find(stop).unwrap()]);
    assert_eq!(text(&json!({ "stop": stop })), greedy[..greedy.find(stop).unwrap()]);
    assert_eq!(text(&json!({ "max_completion_tokens": 1, "max_tokens": 5 })), "Once");
    let body = chat(&json!({ "ignore_eos": true, "max_tokens": 600 }));
    let answer = server.post("/v1/chat/completions", &body).ok();
    assert_eq!(answer["usage"]["completion_tokens"], 600);
}

#[test]
fn log_probabilities_are_those_of_the_tokens() {
    let server = TestServer::start();
    let body = chat(&json!({ "logprobs": true, "top_logprobs": 3, "max_tokens": 6 }));
    let answer = server.post("/v1/chat/completions", &body).ok();
    let choice = &answer["choices"][0];
    let entries = choice["logprobs"]["content"].as_array().unwrap();
    assert_eq!(entries.len(), 6);
    let text: String = entries.iter().map(|entry| entry["token"].as_str().unwrap()).collect();
    assert_eq!(choice["message"]["content"], text);
    for entry in entries {
        let top = entry["top_logprobs"].as_array().unwrap();
        assert_eq!(top.len(), 3);
        // Greedy: the token is the most probable one.
        assert_eq!(top[0]["token"], entry["token"]);
        assert_eq!(top[0]["logprob"], entry["logprob"]);
        assert!(top[0]["logprob"].as_f64() >= top[1]["logprob"].as_f64());
        assert!(entry["logprob"].as_f64().unwrap() <= 0.0);
    }
    let mut streaming = body.clone();
    streaming["stream"] = json!(true);
    let (chunks, _) = server.post("/v1/chat/completions", &streaming).events();
    let streamed: Vec<_> = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["logprobs"]["content"].as_array())
        .flatten()
        .collect();
    assert_eq!(streamed, entries.iter().collect::<Vec<_>>());

    let body = json!({ "prompt": "Once upon", "logprobs": 2, "max_tokens": 3 });
    let answer = server.post("/v1/completions", &body).ok();
    let logprobs = &answer["choices"][0]["logprobs"];
    for field in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
        assert_eq!(logprobs[field].as_array().unwrap().len(), 3, "{field}");
    }
    assert_eq!(logprobs["top_logprobs"][0].as_object().unwrap().len(), 2);
}

#[test]
fn a_message_of_the_assistant_is_continued() {
    let server = TestServer::start();
    let greedy = server.post("/v1/chat/completions", &chat(&json!({}))).ok();
    let greedy = greedy["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
    let begun = &greedy[.."Once upon".len()];
    let body = chat(&json!({
        "messages": [{ "role": "user", "content": STORY }, { "role": "assistant", "content": begun }],
        "continue_final_message": true, "add_generation_prompt": false,
    }));
    let answer = server.post("/v1/chat/completions", &body).ok();
    let rest = answer["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
    assert!(format!("{begun}{rest}").starts_with(&greedy), "{rest}");
}

#[test]
fn models_are_listed_and_found_by_name() {
    let server = TestServer::start();
    let list = server.get("/v1/models").ok();
    assert_eq!(list["object"], "list");
    assert_eq!(list["data"][0]["id"], "demo");
    assert_eq!(list["data"][0]["object"], "model");
    assert_eq!(server.get("/v1/models/demo").ok(), list["data"][0]);
    assert_eq!(server.get("/v1/models/gpt-4o").status, 404);
    assert_eq!(server.get("/health").ok(), json!({ "status": "ok" }));
}
