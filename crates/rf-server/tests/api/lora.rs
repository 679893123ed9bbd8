//! `/v1/load_lora_adapter` and `/v1/unload_lora_adapter`: adapters by name.

use std::path::{Path, PathBuf};

use crate::server::{TestServer, engine_of, serving};
use rf_server::{ApiKeys, LoadError, ModelEntry, ModelKind, ModelLoader, ServerOptions};
use rocmforge::engine::EngineOptions;
use rocmforge::engine::sampling::SamplerConfig;
use rocmforge::engine::scheduler::SchedulerOptions;
use rocmforge::gguf::Gguf;
use rocmforge::{Adapter, ModelDetails};
use serde_json::{Value, json};

/// A model that is always loaded with one adapter, which is on.
struct Loader {
    model: PathBuf,
    own: PathBuf,
}

impl ModelLoader for Loader {
    fn load(&self, make_room: &mut dyn FnMut(u64)) -> Result<rocmforge::Model, LoadError> {
        self.load_with_adapters(&[], make_room)
    }

    fn load_with_adapters(
        &self,
        adapters: &[PathBuf],
        _: &mut dyn FnMut(u64),
    ) -> Result<rocmforge::Model, LoadError> {
        let mut all = vec![(Adapter::open(&self.own)?, 1.0)];
        for path in adapters {
            all.push((Adapter::open(path)?, 0.0));
        }
        let model = rocmforge::engine::Model::open(&self.model)?.with_adapters(all)?;
        let options = EngineOptions::default().with_kv_tokens(Some(4096));
        Ok(serving(engine_of(model, options), SchedulerOptions::default()))
    }
}

/// A server whose folder of adapters has two that fit the model, and one of another model.
struct Setup {
    server: TestServer,
    prompt: Vec<u32>,
    folder: tempfile::TempDir,
}

fn start(keys: ApiKeys, has_folder: bool) -> Setup {
    let cases = rf_testing::golden_adapters();
    let case = |name: &str| cases.iter().find(|case| case.name == name).unwrap();
    let (first, second) = (case("llama_attention"), case("llama_unscaled"));
    let folder = tempfile::tempdir().unwrap();
    let copy = |from: &Path, name: &str| {
        std::fs::copy(from, folder.path().join(name)).unwrap();
    };
    copy(&first.adapters[0].0, "first.gguf");
    copy(&second.adapters[0].0, "second.gguf");
    let other = cases.iter().find(|case| !case.name.starts_with("llama")).unwrap();
    copy(&other.adapters[0].0, "other.gguf");
    let loader = Loader { model: first.model.path(), own: first.adapters[0].0.clone() };
    let details = ModelDetails::of(&Gguf::open(&loader.model).unwrap()).unwrap();
    let entry = ModelEntry::on_demand("llama", ModelKind::Text, details, loader);
    let options = ServerOptions::default()
        .with_keys(keys)
        .with_sampling(SamplerConfig::greedy())
        .with_adapter_folder(has_folder.then(|| folder.path().to_owned()));
    let server = TestServer::of(vec![entry], options);
    Setup { server, prompt: first.model.ids(), folder }
}

/// The log probabilities of a greedy text, and the name of the model in the answer.
fn generated(setup: &Setup, model: &str, lora: Option<Value>) -> Value {
    let mut body = json!({
        "model": model, "prompt": setup.prompt, "max_tokens": 8, "logprobs": 0, "ignore_eos": true,
    });
    if let Some(lora) = lora {
        body["lora"] = lora;
    }
    let answer = setup.server.post("/v1/completions", &body).ok();
    assert_eq!(answer["model"], model);
    answer["choices"][0]["logprobs"]["token_logprobs"].clone()
}

fn ids(server: &TestServer) -> Vec<String> {
    let models = server.get("/v1/models").ok();
    let id = |model: &Value| model["id"].as_str().unwrap().to_owned();
    models["data"].as_array().unwrap().iter().map(id).collect()
}

#[test]
fn an_adapter_is_loaded_by_name_and_unloaded() {
    let setup = start(ApiKeys::default(), true);
    let server = &setup.server;
    // The model's own adapter is on.
    let base = generated(&setup, "llama", None);
    let load = json!({ "lora_name": "style", "lora_path": "second.gguf" });
    let response = server.post("/v1/load_lora_adapter", &load);
    assert_eq!(response.status, 200, "{}", response.text);
    assert_eq!(response.text, "Success: LoRA adapter 'style' added successfully.");
    assert!(response.header("content-type").starts_with("text/plain"));
    assert_eq!(ids(server), ["llama", "style"]);
    let card = server.get("/v1/models/style").ok();
    assert_eq!((&card["parent"], &card["root"]), (&json!("llama"), &json!("second.gguf")));

    // By its name it is on alone, and the model is as it was.
    let style = generated(&setup, "style", None);
    assert_ne!(style, base);
    assert_eq!(generated(&setup, "llama", None), base);
    let alone = json!([{ "id": 1, "scale": 1.0 }]);
    assert_eq!(generated(&setup, "llama", Some(alone)), style);
    // A request's own list counts.
    let own = json!([{ "id": 0, "scale": 1.0 }]);
    assert_eq!(generated(&setup, "style", Some(own)), base);

    let more =
        json!({ "lora_name": "more", "lora_path": "first.gguf", "base_model_name": "llama" });
    assert_eq!(server.post("/v1/load_lora_adapter", &more).status, 200);
    assert_eq!(generated(&setup, "more", None), base);
    assert_eq!(generated(&setup, "style", None), style);
    let metrics = server.get("/metrics").text;
    let info = "vllm:lora_requests_info{model_name=\"llama\",engine=\"0\",max_lora=\"16\",\
                waiting_lora_adapters=\"\",running_lora_adapters=\"\"} ";
    let line = metrics.lines().find_map(|line| line.strip_prefix(info)).unwrap();
    assert!(line.parse::<f64>().unwrap() > 1e9, "{line}");

    let unload = json!({ "lora_name": "style" });
    let response = server.post("/v1/unload_lora_adapter", &unload);
    assert_eq!(response.text, "Success: LoRA adapter 'style' removed successfully.");
    assert_eq!(ids(server), ["llama", "more"]);
    assert_eq!(generated(&setup, "more", None), base);
    let body = json!({ "model": "style", "prompt": "x", "max_tokens": 1 });
    assert_eq!(server.post("/v1/completions", &body).status, 404);
    assert_eq!(server.post("/v1/unload_lora_adapter", &unload).status, 404);
}

#[test]
fn what_cannot_be_loaded_leaves_the_model_as_it_was() {
    let setup = start(ApiKeys::default(), true);
    let server = &setup.server;
    let base = generated(&setup, "llama", None);
    let post = |body: Value| server.post("/v1/load_lora_adapter", &body);
    assert_eq!(post(json!({ "lora_name": "a", "lora_path": "second.gguf" })).status, 200);
    for (body, status) in [
        (json!({}), 400),
        (json!({ "lora_name": "x" }), 400),
        (json!({ "lora_name": "x,y", "lora_path": "second.gguf" }), 400),
        (json!({ "lora_name": "x", "lora_path": "missing.gguf" }), 404),
        (json!({ "lora_name": "x", "lora_path": "../../etc/passwd" }), 404),
        // Names of a model and of an adapter.
        (json!({ "lora_name": "llama", "lora_path": "second.gguf" }), 400),
        (json!({ "lora_name": "a", "lora_path": "first.gguf" }), 400),
        // The model refuses it when it is loaded again.
        (json!({ "lora_name": "x", "lora_path": "other.gguf" }), 400),
        (json!({ "lora_name": "x", "lora_path": "first.gguf", "base_model_name": "y" }), 404),
    ] {
        let response = post(body.clone());
        assert_eq!(response.status, status, "{body} {}", response.text);
        let folder = setup.folder.path().display().to_string();
        assert!(!response.text.contains(&folder), "{}", response.text);
        let names_file = response.text.contains("adapter 'other.gguf' is for the architecture");
        assert_eq!(names_file, body["lora_path"] == "other.gguf", "{}", response.text);
    }
    assert_eq!(ids(server), ["llama", "a"]);
    assert_eq!(generated(&setup, "llama", None), base);
    assert_ne!(generated(&setup, "a", None), base);
    let replaced = json!({ "lora_name": "a", "lora_path": "first.gguf", "load_inplace": true });
    assert_eq!(post(replaced).status, 200);
    assert_eq!(generated(&setup, "a", None), base);
}

#[test]
fn a_running_answer_ends_before_the_model_is_loaded_again() {
    let setup = start(ApiKeys::default(), true);
    let body = json!({
        "model": "llama", "prompt": setup.prompt, "max_tokens": 100, "ignore_eos": true,
        "stream": true,
    });
    let stream = setup.server.open("/v1/completions", &body);
    let mut first = [0];
    stream.peek(&mut first).unwrap();
    let load = json!({ "lora_name": "style", "lora_path": "second.gguf" });
    assert_eq!(setup.server.post("/v1/load_lora_adapter", &load).status, 200);
    assert!(crate::server::rest(stream).contains("[DONE]"));
}

#[test]
fn only_those_who_may_manage_models_load_adapters() {
    let load = json!({ "lora_name": "style", "lora_path": "second.gguf" });
    let without = start(ApiKeys::default(), false);
    let response = without.server.post("/v1/load_lora_adapter", &load);
    assert_eq!(response.status, 403);
    assert!(response.text.contains("--lora-dir"), "{}", response.text);
    let keys = start(ApiKeys::new(["sk-one".to_owned()]), true);
    let headers = [("authorization", "Bearer sk-one")];
    for path in ["/v1/load_lora_adapter", "/v1/unload_lora_adapter"] {
        let response = keys.server.send("POST", path, &headers, &load.to_string());
        assert_eq!(response.status, 403, "{}", response.text);
    }
}
