//! Rules for the tokens of an answer, and a budget of reasoning.

use crate::answers::{ARGUMENTS, PLAIN};
use crate::server::{TestServer, demo, load, serving};
use crate::tools;
use rf_server::{Error, GenerationDefaults, ModelEntry, ModelSettings, ServerOptions};
use rocmforge::engine::EngineOptions;
use rocmforge::engine::sampling::SamplerConfig;
use rocmforge::engine::scheduler::SchedulerOptions;
use serde_json::{Value, json};

/// The tokens of a greedy text.
fn generated(server: &TestServer, fields: &Value) -> (String, Vec<String>, String) {
    let mut body = json!({ "prompt": "Once upon a time", "max_tokens": 12, "logprobs": 0 });
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let choice = server.post("/v1/completions", &body).ok()["choices"][0].clone();
    let tokens = choice["logprobs"]["tokens"].as_array().unwrap().iter();
    let tokens = tokens.map(|token| token.as_str().unwrap().to_owned()).collect();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&choice["text"]), tokens, text(&choice["finish_reason"]))
}

fn id(server: &TestServer, token: &str) -> u64 {
    let ids = server.post("/tokenize", &json!({ "content": token })).ok()["tokens"].clone();
    assert_eq!(ids.as_array().unwrap().len(), 1, "{token:?} is one token");
    ids[0].as_u64().unwrap()
}

#[test]
fn a_stop_token_ends_the_answer() {
    let server = TestServer::start();
    let (text, tokens, _) = generated(&server, &json!({}));
    let stop = tokens.iter().skip(2).find(|token| !tokens[..2].contains(token)).unwrap();
    let count = tokens.iter().position(|token| token == stop).unwrap() + 1;
    let fields = json!({ "stop_token_ids": [id(&server, stop)] });
    let (stopped, found, reason) = generated(&server, &fields);
    assert_eq!((&found[..], reason.as_str()), (&tokens[..count], "stop"));
    assert!(text.starts_with(&stopped));
    // Before the least number of tokens, another one takes its place.
    let mut fields = fields;
    fields["min_tokens"] = json!(count + 3);
    let (_, found, _) = generated(&server, &fields);
    assert!(found.len() >= count + 3, "{found:?}");
    assert_ne!(found[count - 1], *stop);
    assert!(!found[..count + 3].contains(stop));
}

#[test]
fn an_answer_has_no_bad_words_and_only_allowed_tokens() {
    let server = TestServer::start();
    let (text, tokens, _) = generated(&server, &json!({}));
    let words: Vec<&str> = text.split_whitespace().filter(|word| word.len() > 2).collect();
    let bad = words[1].trim_matches(|c: char| !c.is_alphanumeric());
    let (found, ..) = generated(&server, &json!({ "bad_words": [bad] }));
    assert!(text.contains(bad) && !found.contains(bad), "{bad}: {text} / {found}");

    let allowed = [id(&server, &tokens[0]), id(&server, &tokens[1])];
    let (_, found, _) = generated(&server, &json!({ "allowed_token_ids": allowed }));
    assert!(found.iter().all(|token| tokens[..2].contains(token)), "{found:?}");
    // The rules hold with a structure, too.
    let fields = json!({ "grammar": "root ::= \"yes\" | \"no\"", "bad_words": ["yes"] });
    assert_eq!(generated(&server, &fields).0, "no");
    let fields = json!({ "grammar": "root ::= \"yes\"", "bad_words": ["yes", "y", "ye"] });
    let mut body = json!({ "prompt": "x", "max_tokens": 4 });
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    assert_eq!(server.post("/v1/completions", &body).status, 400);
}

#[test]
fn rules_of_a_model_are_those_of_requests_without_any() {
    let server = TestServer::start();
    let (text, tokens, _) = generated(&server, &json!({}));
    let defaults = GenerationDefaults::default()
        .with_max_tokens(5)
        .with_ignore_eos(true)
        .with_stop(vec![tokens[2].clone()]);
    assert!(defaults.validate().is_ok());
    let settings =
        ModelSettings::default().with_sampling(SamplerConfig::greedy()).with_generation(defaults);
    let engine = load(&demo(), EngineOptions::default().with_kv_tokens(Some(4096)));
    let model = serving(engine, SchedulerOptions::default());
    let entry = ModelEntry::loaded("m", model).with_settings(settings);
    let server = TestServer::of(vec![entry], ServerOptions::default());
    let (stopped, _, reason) = generated(&server, &json!({}));
    let before = text.split(&tokens[2]).next().unwrap();
    assert_eq!((stopped.as_str(), reason.as_str()), (before, "stop"));
    let (all, _, reason) = generated(&server, &json!({ "stop": [] }));
    assert_eq!((all, reason.as_str()), (text, "length"));
    let body = json!({ "prompt": "Once upon a time", "stop": [] });
    let answer = server.post("/v1/completions", &body).ok();
    assert_eq!(answer["usage"]["completion_tokens"], 5);

    let bad = GenerationDefaults::default().with_bad_words(vec![String::new()]);
    let error = bad.validate().unwrap_err();
    assert!(matches!(error, Error::Default { ref name, .. } if name == "bad_words[0]"), "{error}");
}

#[test]
fn min_tokens_keeps_an_answer_from_ending() {
    let server = tools::start();
    let answer = |fields: &Value| {
        let mut body =
            json!({ "messages": [{ "role": "user", "content": "Hi" }], "max_tokens": 60 });
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        server.post("/v1/chat/completions", &body).ok()["usage"]["completion_tokens"].as_u64()
    };
    let alone = answer(&json!({})).unwrap();
    assert!(alone < 40);
    assert!(answer(&json!({ "min_tokens": 50 })).unwrap() >= 50);
}

#[test]
fn bad_rules_name_their_field() {
    let server = TestServer::start();
    let many: Vec<_> = (0..1025).collect();
    for (name, value, field) in [
        ("stop_token_ids", json!([999_999]), "stop_token_ids"),
        ("stop_token_ids", json!(many), "stop_token_ids"),
        ("stop_token_ids", json!(["x"]), "stop_token_ids[0]"),
        ("allowed_token_ids", json!([]), "allowed_token_ids"),
        ("allowed_token_ids", json!([999_999]), "allowed_token_ids"),
        ("bad_words", json!(["x", ""]), "bad_words[1]"),
        ("bad_words", json!(["x".repeat(257)]), "bad_words[0]"),
        ("min_tokens", json!(-1), "min_tokens"),
    ] {
        let error = server.post("/v1/completions", &json!({ "prompt": "x", name: value }));
        assert_eq!((error.status, &error.json()["error"]["param"]), (400, &json!(field)), "{name}");
    }
}

/// The model thinks six tokens, and then calls the tool.
#[test]
fn reasoning_ends_at_its_budget() {
    let server = tools::start();
    let reasoning = |path: &str, fields: &Value| {
        let mut body = json!({
            "messages": [{ "role": "user", "content": "Weather?" }], "max_tokens": 200,
            "tools": tools::function(),
        });
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        server.post(path, &body).ok()
    };
    let tokens = |answer: &Value| {
        answer["usage"]["completion_tokens_details"]["reasoning_tokens"].as_u64().unwrap()
    };
    let chat = "/v1/chat/completions";
    let free = reasoning(chat, &json!({}));
    let call = &free["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"];
    assert_eq!(call, ARGUMENTS);
    for name in ["thinking_token_budget", "reasoning_budget", "thinking_budget_tokens"] {
        let short = reasoning(chat, &json!({ name: 2 }));
        assert!(tokens(&short) < tokens(&free), "{name}: {short}");
        // The marker leads the model of the tests to its plain answer.
        let content = short["choices"][0]["message"]["content"].as_str().unwrap();
        assert_eq!(content.trim(), PLAIN);
        assert_eq!(tokens(&reasoning(chat, &json!({ name: -1 }))), tokens(&free));
    }
    let tools = json!([{ "name": "weather", "input_schema": { "type": "object" } }]);
    let thinking = json!({ "type": "enabled", "budget_tokens": 2 });
    let answer = reasoning("/v1/messages", &json!({ "tools": tools, "thinking": thinking }));
    assert_eq!(answer["content"][1]["text"].as_str().unwrap().trim(), PLAIN);
}
