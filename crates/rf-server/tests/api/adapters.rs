//! Adapters (LoRA): the scales of the server, and those of a request.

use crate::server::{TestServer, engine_of, serving};
use rf_server::{ModelEntry, ServerOptions};
use rocmforge::Adapter;
use rocmforge::engine::sampling::SamplerConfig;
use rocmforge::engine::scheduler::SchedulerOptions;
use rocmforge::engine::{EngineOptions, Model};
use serde_json::{Value, json};

/// A server of a model with two adapters, of which the first one is on.
fn start() -> (TestServer, Vec<u32>) {
    let cases = rf_testing::golden_adapters();
    let case = |name: &str| cases.iter().find(|case| case.name == name).unwrap();
    let (first, second) = (case("llama_attention"), case("llama_unscaled"));
    let adapters = [(first, 1.0), (second, 0.0)]
        .map(|(case, scale)| (Adapter::open(&case.adapters[0].0).unwrap(), scale));
    let model = Model::open(first.model.path()).unwrap().with_adapters(adapters.into()).unwrap();
    let options = EngineOptions::default().with_kv_tokens(Some(4096));
    let model = serving(engine_of(model, options), SchedulerOptions::default());
    let sampling = SamplerConfig::greedy();
    let options = ServerOptions::default().with_sampling(sampling);
    (TestServer::of(vec![ModelEntry::loaded("llama", model)], options), first.model.ids())
}

/// The tokens of a greedy text, as the server names them.
fn generated(server: &TestServer, prompt: &[u32], lora: Option<Value>) -> Value {
    let mut body = json!({ "prompt": prompt, "max_tokens": 8, "logprobs": 0, "ignore_eos": true });
    if let Some(lora) = lora {
        body["lora"] = lora;
    }
    let answer = server.post("/v1/completions", &body).ok();
    answer["choices"][0]["logprobs"]["token_logprobs"].clone()
}

#[test]
fn a_request_states_its_adapters_and_others_have_those_of_the_server() {
    let (server, prompt) = start();
    let scales = |server: &TestServer| {
        let list = server.get("/lora-adapters").ok();
        let list = list.as_array().unwrap().clone();
        assert!(list[0]["path"].as_str().unwrap().ends_with("llama_attention.gguf"), "{list:?}");
        assert_eq!((&list[0]["id"], &list[1]["id"]), (&json!(0), &json!(1)));
        list.iter().map(|adapter| adapter["scale"].as_f64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(scales(&server), [1.0, 0.0]);
    let first = generated(&server, &prompt, Some(json!([{ "id": 0, "scale": 1 }])));
    let second = generated(&server, &prompt, Some(json!([{ "id": 1, "scale": 0.5 }])));
    let none = generated(&server, &prompt, Some(json!([])));
    assert!(first != second && second != none && none != first);
    assert_eq!(generated(&server, &prompt, None), first);

    let set = server.post("/lora-adapters", &json!([{ "id": 1, "scale": 0.5 }])).ok();
    assert_eq!(set, json!({ "success": true }));
    assert_eq!(scales(&server), [0.0, 0.5]);
    assert_eq!(generated(&server, &prompt, None), second);
    assert_eq!(generated(&server, &prompt, Some(json!([]))), none);
    server.post("/lora-adapters", &json!([])).ok();
    assert_eq!(generated(&server, &prompt, None), none);
}

#[test]
fn adapters_that_the_model_does_not_have_are_refused() {
    let (server, prompt) = start();
    let message = "`lora`: there is no adapter with id 2: the model was loaded with 2";
    let list = json!([{ "id": 2, "scale": 1.0 }]);
    let body = json!({ "prompt": prompt, "max_tokens": 1, "lora": list });
    for response in [server.post("/v1/completions", &body), server.post("/lora-adapters", &list)] {
        assert_eq!(response.status, 400);
        assert_eq!(response.json()["error"]["message"], message);
    }
    let wrong = server.post("/lora-adapters", &json!({ "id": 0 }));
    assert_eq!(wrong.status, 400);
    assert_eq!(wrong.json()["error"]["message"], "the body is not a JSON array");
    let wrong = server.post("/lora-adapters", &json!([{ "id": 0 }]));
    assert!(wrong.status == 400 && wrong.text.contains("missing field `scale`"), "{}", wrong.text);

    let without = TestServer::start();
    assert_eq!(without.get("/lora-adapters").ok(), json!([]));
    let body = json!({ "prompt": "x", "max_tokens": 1, "lora": [{ "id": 0, "scale": 1.0 }] });
    assert_eq!(without.post("/v1/completions", &body).status, 400);
    let body = json!({ "prompt": "x", "max_tokens": 1, "lora": [] });
    without.post("/v1/completions", &body).ok();
}
