//! Models that clients of Ollama's API download, make, copy and remove.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rf_server::{
    ApiKeys, LoadError, ManageError, Manager, ModelChange, ModelEntry, ModelKind, ModelManager,
    ModelSettings,
};
use rocmforge::engine::EngineOptions;
use rocmforge::engine::scheduler::SchedulerOptions;
use rocmforge::gguf::Gguf;
use rocmforge::{Model, ModelDetails};
use serde_json::{Value, json};

use crate::server::{self, Setup, TestServer, serving};

/// A model that is loaded on demand.
fn entry(name: &str) -> ModelEntry {
    let details = ModelDetails::of(&Gguf::open(server::demo()).unwrap()).unwrap();
    let load = |_: &mut dyn FnMut(u64)| -> Result<Model, LoadError> {
        let engine = EngineOptions::default().with_kv_tokens(Some(4096));
        Ok(serving(server::load(&server::demo(), engine), SchedulerOptions::default()))
    };
    ModelEntry::on_demand(name, ModelKind::Text, details, load)
}

/// A manager that knows one model, and notes what it is asked for.
#[derive(Clone, Default)]
struct Stub {
    calls: Arc<Mutex<Vec<String>>>,
}

impl Stub {
    fn note(&self, call: String) {
        self.calls.lock().unwrap().push(call);
    }

    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut *self.calls.lock().unwrap())
    }
}

impl ModelManager for Stub {
    fn pull(
        &self,
        name: &str,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<ModelEntry, ManageError> {
        self.note(format!("pull {name}"));
        match name {
            "known" => {
                progress(5, 10);
                progress(10, 10);
                Ok(entry(name))
            }
            _ => Err(ManageError::Unknown("there is no such model".into())),
        }
    }

    fn make(
        &self,
        from: &str,
        name: &str,
        change: &ModelChange,
    ) -> Result<ModelEntry, ManageError> {
        self.note(format!("make {name} of {from}"));
        if !change.parameters.is_empty() {
            return Err(ManageError::Refused("no parameters here".into()));
        }
        let settings = ModelSettings::default().with_system(change.system.clone());
        Ok(entry(name).with_settings(settings))
    }

    fn remove(&self, name: &str) -> Result<(), ManageError> {
        self.note(format!("remove {name}"));
        match name {
            "first" => Err(ManageError::Refused("it is not mine".into())),
            _ => Ok(()),
        }
    }
}

fn managed(keys: ApiKeys) -> (TestServer, Stub) {
    let stub = Stub::default();
    let manager = Some(Manager::new(stub.clone()));
    let options = Setup::default().server.with_manager(manager).with_keys(keys);
    (TestServer::of(vec![entry("first")], options), stub)
}

fn names(server: &TestServer) -> Vec<String> {
    let models = server.get("/api/tags").ok();
    let name = |model: &Value| model["name"].as_str().unwrap().to_owned();
    models["models"].as_array().unwrap().iter().map(name).collect()
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The tokens of a conversation with a model.
fn prompt_tokens(server: &TestServer, model: &str) -> u64 {
    let body = json!({ "model": model, "stream": false, "options": { "num_predict": 2 },
        "messages": [{ "role": "user", "content": "Hello" }] });
    server.post("/api/chat", &body).ok()["prompt_eval_count"].as_u64().unwrap()
}

#[test]
fn a_pulled_model_is_listed_and_answers() {
    let (server, stub) = managed(ApiKeys::default());
    let response = server.post("/api/pull", &json!({ "model": "known" }));
    assert_eq!(response.header("content-type"), "application/x-ndjson");
    let progress = |completed: u64| json!({ "status": "pulling known", "digest": "known", "total": 10, "completed": completed });
    assert_eq!(
        lines(&response.text),
        [
            json!({ "status": "pulling manifest" }),
            progress(5),
            progress(10),
            json!({ "status": "writing manifest" }),
            json!({ "status": "success" }),
        ]
    );
    assert_eq!(names(&server), ["first", "known"]);
    assert!(prompt_tokens(&server, "known:latest") > 0);
    // It may be asked for again, also by its old field.
    let again = server.post("/api/pull", &json!({ "name": "known", "stream": false })).ok();
    assert_eq!(again, json!({ "status": "success" }));
    assert_eq!(names(&server), ["first", "known"]);
    assert_eq!(stub.calls(), ["pull known", "pull known"]);
}

/// Reads a stream of events until each of these names has come for a model.
fn read_until(stream: &mut BufReader<TcpStream>, model: &str, names: &[&str]) -> Vec<Value> {
    let mut events = Vec::<Value>::new();
    let mut line = String::new();
    let has = |events: &[Value], name: &str| {
        events.iter().any(|event| event["event"] == name && event["model"] == model)
    };
    while !names.iter().all(|name| has(&events, name)) {
        line.clear();
        assert!(stream.read_line(&mut line).unwrap() > 0, "not all of {names:?} in {events:?}");
        if let Some(json) = line.strip_prefix("data: ") {
            events.push(serde_json::from_str(json).unwrap());
        }
    }
    events.retain(|event| event["model"] == model);
    events
}

#[test]
fn clients_of_llama_cpp_download_and_remove_models_and_get_events() {
    let (server, stub) = managed(ApiKeys::default());
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    stream.write_all(b"GET /models/sse HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").unwrap();
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while head.lines().last() != Some("") {
        stream.read_line(&mut head).unwrap();
    }
    assert!(head.contains("text/event-stream"), "{head}");
    let post = |model: &str| server.post("/models", &json!({ "model": model }));
    assert_eq!(post("known").ok(), json!({ "success": true }));
    let mut events = read_until(&mut stream, "known", &["download_finished", "model_status"]);
    let status =
        json!({ "model": "known", "event": "model_status", "data": { "status": "unloaded" } });
    assert!(events.contains(&status), "{events:?}");
    events.retain(|event| event["event"] == "download_progress");
    let progress = |done: u64| {
        json!({ "model": "known", "event": "download_progress",
            "data": { "known": { "done": done, "total": 10 } } })
    };
    assert_eq!(events, [progress(5), progress(10)]);
    assert_eq!(names(&server), ["first", "known"]);

    assert_eq!(post("missing").status, 200);
    let events = read_until(&mut stream, "missing", &["download_failed"]);
    assert_eq!(events.last().unwrap()["data"]["error"], "there is no such model");
    assert_eq!(post("").json()["error"]["param"], "model");

    let delete = |path: &str| server.send("DELETE", path, &[], "");
    assert_eq!(delete("/models?model=known").ok(), json!({ "success": true }));
    read_until(&mut stream, "known", &["model_remove"]);
    assert_eq!(names(&server), ["first"]);
    assert_eq!(delete("/models?model=known").status, 404);
    assert_eq!(delete("/models").status, 400);
    assert_eq!(delete("/models?model=first").status, 400);
    assert_eq!(stub.calls(), ["pull known", "pull missing", "remove known", "remove first"]);

    assert_eq!(server.get("/models?reload=1").ok()["data"][0]["id"], "first");
    read_until(&mut stream, "*", &["models_reload"]);
    // The stream does not keep the server from stopping.
    let mut server = server;
    server.stop();
    server.join();
    assert_eq!(stream.lines().map_while(Result::ok).last().as_deref(), Some(""));
}

#[test]
fn a_failure_is_the_last_line_or_the_status() {
    let (server, _) = managed(ApiKeys::default());
    let response = server.post("/api/pull", &json!({ "model": "other" }));
    assert_eq!(response.status, 200);
    let last = lines(&response.text).pop().unwrap();
    assert_eq!(last, json!({ "error": "there is no such model" }));
    let response = server.post("/api/pull", &json!({ "model": "other", "stream": false }));
    assert_eq!((response.status, response.json()), (404, last));
    for body in [json!({}), json!({ "model": "" }), json!({ "name": 3 })] {
        assert_eq!(server.post("/api/pull", &body).status, 400, "{body}");
    }
}

#[test]
fn a_made_model_has_its_system_prompt_unless_a_conversation_has_one() {
    let (server, _) = managed(ApiKeys::default());
    let system = "You tell stories about foxes, and about nothing else.";
    let body = json!({ "model": "teller", "from": "first", "system": system, "stream": false });
    assert_eq!(server.post("/api/create", &body).ok()["status"], "success");
    assert_eq!(server.post("/api/show", &json!({ "model": "teller" })).ok()["system"], system);
    assert!(server.post("/api/show", &json!({ "model": "first" })).ok().get("system").is_none());
    let plain = prompt_tokens(&server, "first");
    assert!(prompt_tokens(&server, "teller") > plain);
    let tokens = |model: &str, messages: Value| {
        let body = json!({ "model": model, "messages": messages });
        let counted = server.post("/v1/chat/completions/input_tokens", &body).ok();
        counted["input_tokens"].as_u64().unwrap()
    };
    let own =
        json!([{ "role": "system", "content": "Be brief." }, { "role": "user", "content": "Hi" }]);
    assert_eq!(tokens("teller", own.clone()), tokens("first", own));
    let user = json!([{ "role": "user", "content": "Hi" }]);
    assert!(tokens("teller", user.clone()) > tokens("first", user));
}

#[test]
fn what_cannot_be_made_is_refused() {
    let (server, stub) = managed(ApiKeys::default());
    for (body, status) in [
        (json!({ "model": "x" }), 400),
        (json!({ "model": "x", "from": "missing" }), 404),
        (json!({ "model": "x*", "from": "first" }), 400),
        (json!({ "model": "first:latest", "from": "first" }), 400),
        (json!({ "model": "x", "from": "first", "quantize": "q4_K_M" }), 400),
        (json!({ "model": "x", "from": "first", "adapters": {} }), 400),
        (json!({ "model": "x", "modelfile": "FROM first" }), 400),
    ] {
        let response = server.post("/api/create", &body);
        assert_eq!(response.status, status, "{body}: {}", response.text);
        assert!(response.json()["error"].is_string());
    }
    assert!(stub.calls().is_empty());
    let body = json!({ "model": "x", "from": "first", "parameters": { "temperature": 1 } });
    let last = lines(&server.post("/api/create", &body).text).pop().unwrap();
    assert_eq!(last, json!({ "error": "no parameters here" }));
    assert_eq!(names(&server), ["first"]);
}

#[test]
fn copies_are_models_of_their_own_and_removed_ones_are_unknown() {
    let (server, stub) = managed(ApiKeys::default());
    let copy = |body: Value| server.post("/api/copy", &body).status;
    assert_eq!(copy(json!({ "source": "first", "destination": "second" })), 200);
    assert_eq!(copy(json!({ "source": "missing", "destination": "third" })), 404);
    assert_eq!(copy(json!({ "source": "first" })), 400);
    assert_eq!(names(&server), ["first", "second"]);
    assert!(prompt_tokens(&server, "second") > 0);
    let delete = |name: &str| {
        server.send("DELETE", "/api/delete", &[], &json!({ "model": name }).to_string())
    };
    assert_eq!(delete("second").status, 200);
    assert_eq!(names(&server), ["first"]);
    assert_eq!(delete("second").status, 404);
    let refused = delete("first");
    assert_eq!((refused.status, refused.json()), (400, json!({ "error": "it is not mine" })));
    let ask = server.post("/api/chat", &json!({ "model": "second", "messages": [] }));
    assert_eq!(ask.status, 404, "{}", ask.text);
    // The name is free again.
    assert_eq!(copy(json!({ "source": "first", "destination": "second" })), 200);
    assert!(prompt_tokens(&server, "second") > 0);
    let calls = ["make second of first", "remove second", "remove first", "make second of first"];
    assert_eq!(stub.calls(), calls);
}

#[test]
fn only_keys_that_may_manage_models_do() {
    let keys = ApiKeys::from_toml(
        "[[key]]\nname = \"user\"\nkey = \"sk-user\"\n[[key]]\nname = \"admin\"\nkey = \"sk-admin\"\nmanage_models = true",
    );
    let (server, stub) = managed(keys.unwrap());
    let pull = |key: &str| {
        let headers = [("x-api-key", key), ("content-type", "application/json")];
        server.send("POST", "/api/pull", &headers, r#"{"model":"known","stream":false}"#).status
    };
    assert_eq!((pull("sk-user"), stub.calls().len()), (403, 0));
    assert_eq!((pull("sk-admin"), stub.calls().len()), (200, 1));
    let user = [("x-api-key", "sk-user"), ("content-type", "application/json")];
    for (method, path) in
        [("POST", "/models"), ("DELETE", "/models?model=first"), ("GET", "/models?reload=1")]
    {
        let response = server.send(method, path, &user, r#"{"model":"known"}"#);
        assert_eq!(response.status, 403, "{method} {path}: {}", response.text);
    }
    assert_eq!(server.get("/models/sse").status, 401);
    assert_eq!(server.send("GET", "/models?reload=0", &user, "").status, 200);
    assert_eq!(stub.calls().len(), 0);
    // Without a manager, nobody may.
    let server = TestServer::start();
    let response = server.post("/api/pull", &json!({ "model": "known" }));
    assert_eq!(response.status, 403, "{}", response.text);
}
