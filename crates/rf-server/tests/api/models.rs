//! Several models: loaded on demand, within a budget of memory, and unloaded.

use crate::server;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::server::{Setup, TestServer, send, serving};
use rf_server::{
    KeepAlive, LoadError, ModelEntry, ModelKind, ModelSettings, Server, ServerOptions,
    SettingsSource,
};
use rocmforge::engine::scheduler::SchedulerOptions;
use rocmforge::engine::{EngineOptions, Pooling};
use rocmforge::gguf::Gguf;
use rocmforge::{Model, ModelDetails, SamplerConfig};
use serde_json::{Value, json};

fn options() -> ServerOptions {
    Setup::default().server
}

/// How often a model was loaded.
type Loads = Arc<AtomicUsize>;

/// A model that takes `bytes` of the budget.
fn model(name: &str, bytes: u64, before: impl Fn() + Send + Sync + 'static) -> (ModelEntry, Loads) {
    let loads = Loads::default();
    let count = Arc::clone(&loads);
    let load = move |make_room: &mut dyn FnMut(u64)| -> Result<Model, LoadError> {
        before();
        make_room(bytes);
        count.fetch_add(1, Relaxed);
        let engine = EngineOptions::default().with_kv_tokens(Some(4096));
        let engine = server::load(&server::demo(), engine);
        Ok(serving(engine, SchedulerOptions::default()))
    };
    (entry(name, ModelKind::Text, load), loads)
}

fn entry(
    name: &str,
    kind: ModelKind,
    load: impl Fn(&mut dyn FnMut(u64)) -> Result<Model, LoadError> + Send + Sync + 'static,
) -> ModelEntry {
    let details = ModelDetails::of(&Gguf::open(server::demo()).unwrap()).unwrap();
    assert_eq!(ModelKind::of(&details), ModelKind::Text);
    ModelEntry::on_demand(name, kind, details, load)
}

fn body(model: &str) -> Value {
    json!({ "model": model, "prompt": "Once upon a time", "max_tokens": 8 })
}

fn ask(server: &TestServer, model: &str) -> String {
    let answer = server.post("/v1/completions", &body(model)).ok();
    assert_eq!(answer["model"], model);
    answer["choices"][0]["text"].as_str().unwrap().to_owned()
}

/// The status of each model.
fn statuses(server: &TestServer) -> Vec<String> {
    let models = server.get("/v1/models").ok();
    let status = |model: &Value| model["status"]["value"].as_str().unwrap().to_owned();
    models["data"].as_array().unwrap().iter().map(status).collect()
}

/// Waits for the status of all models.
fn wait_for(server: &TestServer, expected: [&str; 2]) {
    let started = std::time::Instant::now();
    while statuses(server) != expected {
        assert!(started.elapsed() < Duration::from_mins(1), "{:?}", statuses(server));
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn loaded_names(server: &TestServer) -> Vec<String> {
    let models = server.get("/api/ps").ok();
    let name = |model: &Value| model["name"].as_str().unwrap().to_owned();
    models["models"].as_array().unwrap().iter().map(name).collect()
}

#[test]
fn a_request_loads_its_model_and_the_least_recently_used_one_makes_room() {
    let (entries, loads): (Vec<_>, Vec<_>) =
        ["a", "b", "c"].map(|name| model(name, 40, || ())).into_iter().unzip();
    let budget = options().with_memory_budget_bytes(100);
    let server = TestServer::of(entries, budget);
    assert_eq!(statuses(&server), ["unloaded"; 3]);
    assert_eq!(loaded_names(&server), [""; 0]);
    let tags = server.get("/api/tags").ok();
    assert_eq!(tags["models"].as_array().unwrap().len(), 3);
    assert_eq!(tags["models"][2]["details"]["quantization_level"], "Q8_0");

    let text = ask(&server, "a");
    assert_eq!(loaded_names(&server), ["a"]);
    assert_eq!(server.get("/api/ps").ok()["models"][0]["size"], 40);
    assert_eq!(ask(&server, "b"), text);
    assert_eq!(ask(&server, "a"), text);
    // `b` was used before `a`.
    assert_eq!(ask(&server, "c"), text);
    assert_eq!(statuses(&server), ["loaded", "unloaded", "loaded"]);
    assert_eq!(ask(&server, "b"), text);
    assert_eq!(statuses(&server), ["unloaded", "loaded", "loaded"]);
    assert_eq!(loads.iter().map(|loads| loads.load(Relaxed)).collect::<Vec<_>>(), [1, 2, 1]);

    // Counters of a model that was unloaded go on, and its gauges are zero.
    let metrics = server.get("/metrics").text;
    let sample = |name: &str, model: &str| {
        let start = format!("vllm:{name}{{model_name=\"{model}\",engine=\"0\"}} ");
        metrics.lines().find_map(|line| line.strip_prefix(&start)).map(str::to_owned)
    };
    assert_eq!(sample("generation_tokens_total", "a").as_deref(), Some("16"));
    assert_eq!(sample("kv_cache_usage_perc", "a").as_deref(), Some("0"));
    assert_eq!(server.get("/v1/loads").ok()["dp_rank_count"], 2);

    // Requests without a name get the first model, and an unknown name is an error.
    let unnamed = server.post("/v1/completions", &json!({ "prompt": "x", "max_tokens": 1 })).ok();
    assert_eq!(unnamed["model"], "a");
    assert_eq!(server.post("/v1/completions", &body("d")).status, 404);
}

#[test]
fn a_model_above_the_budget_is_loaded_alone() {
    let (entries, _): (Vec<_>, Vec<_>) = [("a", 40), ("big", 900)]
        .map(|(name, bytes)| model(name, bytes, || ()))
        .into_iter()
        .unzip();
    let budget = options().with_memory_budget_bytes(100);
    let server = TestServer::of(entries, budget);
    ask(&server, "a");
    ask(&server, "big");
    assert_eq!(loaded_names(&server), ["big"]);
    ask(&server, "a");
    assert_eq!(loaded_names(&server), ["a"]);
}

/// A model whose load waits for a message, and the messages that it has begun.
fn held(name: &str, bytes: u64) -> (ModelEntry, Loads, Sender<()>, Receiver<()>) {
    let (release, released) = channel();
    let (begin, begun) = channel();
    let ends = Mutex::new((begin, released));
    let (entry, loads) = model(name, bytes, move || {
        let ends = ends.lock().unwrap();
        ends.0.send(()).unwrap();
        // It fails when the sender is dropped, which releases the load, too.
        let _: Result<(), RecvError> = ends.1.recv();
    });
    (entry, loads, release, begun)
}

#[test]
fn requests_wait_for_their_model_once_and_others_go_on() {
    let (slow, loads, release, begun) = held("slow", 1);
    let (fast, _) = model("fast", 1, || ());
    let server = TestServer::of(vec![slow, fast], options());
    let text = ask(&server, "fast");
    let address = server.address;
    let waiting: Vec<_> = (0..5)
        .map(|_| {
            let body = body("slow").to_string();
            std::thread::spawn(move || send(address, "POST", "/v1/completions", &[], &body).ok())
        })
        .collect();
    begun.recv().unwrap();
    // A client that leaves before its model is there.
    drop(server.open("/v1/completions", &body("slow")));
    assert_eq!(statuses(&server), ["loading", "loaded"]);
    assert_eq!(ask(&server, "fast"), text);
    drop(release);
    for thread in waiting {
        assert_eq!(thread.join().unwrap()["choices"][0]["text"], text.as_str());
    }
    assert_eq!(loads.load(Relaxed), 1);
}

#[test]
fn a_running_answer_ends_before_its_model_is_unloaded() {
    let (entries, _): (Vec<_>, Vec<_>) =
        ["a", "b"].map(|name| model(name, 60, || ())).into_iter().unzip();
    let budget = options().with_memory_budget_bytes(100);
    let server = TestServer::of(entries, budget);
    let long = |model: &str, tokens: usize| {
        let body = json!({
            "model": model, "prompt": "Once", "max_tokens": tokens, "ignore_eos": true, "stream": true,
        });
        server.open("/v1/completions", &body)
    };
    // Two models that never fit together take turns, and every answer is whole.
    let streams: Vec<_> =
        (0..8).map(|index| long(["a", "b"][index % 2], 100 + 10 * index)).collect();
    for (index, stream) in streams.into_iter().enumerate() {
        let text = server::rest(stream);
        assert!(text.contains("[DONE]"), "{text}");
        let chunks = text.matches("\"finish_reason\":null").count();
        assert!(chunks > 50, "{index}: {chunks}");
    }
}

#[test]
fn a_model_that_does_not_load_fails_its_requests_only() {
    let attempts = Loads::default();
    let count = Arc::clone(&attempts);
    let broken = entry("broken", ModelKind::Text, move |_| match count.fetch_add(1, Relaxed) {
        0 => Err("the file ends at byte 12".into()),
        _ => panic!("a bug in the loader"),
    });
    let (fine, _) = model("fine", 1, || ());
    let server = TestServer::of(vec![broken, fine], options());
    let response = server.post("/v1/completions", &body("broken"));
    assert_eq!(response.status, 503);
    let error = &response.json()["error"];
    assert_eq!(error["code"], "model_load_failed");
    assert_eq!(
        error["message"],
        "the model `broken` could not be loaded: the file ends at byte 12"
    );
    let status = &server.get("/v1/models/broken").ok()["status"];
    assert_eq!(status["value"], "unloaded");
    assert_eq!(status["failed"], true);
    ask(&server, "fine");
    // The next request tries again.
    let messages = json!({ "model": "broken", "messages": [{ "role": "user", "content": "x" }] });
    let response = server.post("/v1/messages", &messages);
    assert_eq!((response.status, attempts.load(Relaxed)), (503, 2));
    assert_eq!(response.json()["error"]["type"], "overloaded_error");
    ask(&server, "fine");
}

#[test]
fn an_unused_model_is_unloaded_after_its_time() {
    let (entries, loads): (Vec<_>, Vec<_>) =
        ["a", "b"].map(|name| model(name, 1, || ())).into_iter().unzip();
    let keep_alive = KeepAlive::from(Duration::from_millis(50));
    let server = TestServer::of(entries, options().with_keep_alive(keep_alive));
    let text = ask(&server, "a");
    wait_for(&server, ["unloaded", "unloaded"]);
    assert_eq!(ask(&server, "a"), text);
    assert_eq!(loads[0].load(Relaxed), 2);

    // A request of Ollama tells how long: for ever, and then for no time.
    let generate = |model: &str, keep_alive: Value, prompt: &str| {
        let body = json!({
            "model": model, "prompt": prompt, "stream": false, "keep_alive": keep_alive,
            "options": { "num_predict": 2 },
        });
        server.post("/api/generate", &body).ok()
    };
    assert_eq!(generate("b", json!(-1), "")["done_reason"], "load");
    let answer = generate("b", json!("2h"), "Once");
    assert!(answer["load_duration"].is_u64());
    wait_for(&server, ["unloaded", "loaded"]);
    let expires = server.get("/api/ps").ok()["models"][0]["expires_at"].clone();
    assert!(!expires.as_str().unwrap().starts_with("2318"), "{expires}");
    assert_eq!(generate("b", json!(0), "")["done_reason"], "unload");
    wait_for(&server, ["unloaded", "unloaded"]);
    assert_eq!(generate("a", json!("0"), "Once")["done"], true);
    wait_for(&server, ["unloaded", "unloaded"]);
    assert_eq!(loads[1].load(Relaxed), 1);
    let bad = json!({ "model": "a", "prompt": "x", "keep_alive": "soon" });
    let response = server.post("/api/generate", &bad);
    assert_eq!(response.status, 400);
    assert!(response.text.contains("keep_alive"), "{}", response.text);
}

#[test]
fn models_for_text_and_embeddings_share_the_server() {
    let embed = entry("vectors", ModelKind::Embeddings, |make_room| {
        make_room(1);
        let options = EngineOptions::default().with_pooling(Some(Pooling::Mean));
        Ok(serving(server::load(&server::demo(), options), SchedulerOptions::default()))
    });
    let (text, _) = model("text", 1, || ());
    let server = TestServer::of(vec![embed.with_alias("other-name"), text], options());
    // Requests without a name get the first model of their kind.
    let answer = server.post("/v1/completions", &json!({ "prompt": "x", "max_tokens": 1 })).ok();
    assert_eq!(answer["model"], "text");
    let answer = server.post("/v1/embeddings", &json!({ "input": "x" })).ok();
    assert_eq!(answer["model"], "vectors");
    let answer = server.post("/api/embed", &json!({ "model": "other-name", "input": "x" })).ok();
    assert_eq!(answer["model"], "vectors");
    assert_eq!(statuses(&server), ["loaded", "loaded"]);
    // The wrong kind is refused without a load.
    assert_eq!(server.post("/v1/completions", &body("other-name")).status, 400);
}

#[test]
fn a_list_of_states_loads_nothing() {
    let (entry, loads) = model("a", 1, || ());
    let server = TestServer::of(vec![entry], options());
    for path in ["/v1/models", "/api/tags", "/api/ps", "/metrics", "/v1/loads", "/health"] {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
    server.post("/api/show", &json!({ "model": "a" })).ok();
    assert_eq!(server.get("/props?model=a").status, 503);
    assert_eq!(server.get("/slots").status, 503);
    assert_eq!(loads.load(Relaxed), 0);
}

#[test]
fn a_model_has_several_names_and_patterns() {
    let (first, _) = model("a", 40, || ());
    let (second, _) = model("b", 40, || ());
    let models = vec![
        first.with_alias("claude-*").with_alias("gpt-4o*"),
        second.with_alias("gpt-4o-mini").with_alias("other"),
    ];
    let server = TestServer::of(models, options());
    for (name, expected) in [
        ("a", "a"),
        ("claude-haiku-4-5", "a"),
        ("gpt-4o", "a"),
        ("gpt-4o-2024", "a"),
        // A name comes before a pattern.
        ("gpt-4o-mini", "b"),
        ("other", "b"),
    ] {
        let answer = server.post("/v1/completions", &body(name)).ok();
        assert_eq!(answer["model"], expected, "{name}");
    }
    for name in ["gpt-5", "claude", "others"] {
        assert_eq!(server.post("/v1/completions", &body(name)).status, 404, "{name}");
    }
}

#[test]
fn models_are_loaded_and_unloaded_by_the_routes_of_llama_cpp() {
    let (entries, loads): (Vec<_>, Vec<_>) =
        ["a", "b"].map(|name| model(name, 40, || ())).into_iter().unzip();
    let server = TestServer::of(entries, options());
    assert_eq!(server.post("/models/load", &json!({ "model": "b" })).ok()["success"], true);
    wait_for(&server, ["unloaded", "loaded"]);
    let listed = server.get("/models").ok();
    assert_eq!(listed["data"][1]["status"]["value"], "loaded");
    server.post("/models/load", &json!({ "model": "b" })).ok();
    assert_eq!(server.post("/models/unload", &json!({ "model": "b" })).ok()["success"], true);
    wait_for(&server, ["unloaded", "unloaded"]);
    assert_eq!(loads[1].load(Relaxed), 1);
    for path in ["/models/load", "/models/unload"] {
        assert_eq!(server.post(path, &json!({ "model": "c" })).status, 404);
        let error = server.post(path, &json!({}));
        assert_eq!((error.status, &error.json()["error"]["param"]), (400, &json!("model")));
    }
}

#[test]
fn clients_of_anthropic_get_the_list_in_their_form() {
    let (entries, _): (Vec<_>, Vec<_>) =
        ["a", "b"].map(|name| model(name, 40, || ())).into_iter().unzip();
    let server = TestServer::of(entries, options());
    let version = [("anthropic-version", "2023-06-01")];
    let list = server.send("GET", "/v1/models", &version, "").ok();
    assert_eq!((&list["first_id"], &list["last_id"]), (&json!("a"), &json!("b")));
    assert_eq!(list["has_more"], false);
    let one = server.send("GET", "/v1/models/b", &version, "");
    assert!(!one.header("request-id").is_empty());
    let one = one.ok();
    assert_eq!(one, list["data"][1]);
    assert_eq!((&one["type"], &one["display_name"]), (&json!("model"), &json!("b")));
    assert_eq!(one["created_at"], "1970-01-01T00:00:00Z");
    assert_eq!(server.get("/v1/models/b").ok()["object"], "model");
}

#[test]
fn settings_of_a_model_are_renewed_while_the_server_runs() {
    let sampled = |max: f32| {
        ModelSettings::default()
            .with_aliases(vec!["first-*".to_owned()])
            .with_sampling(SamplerConfig::greedy().with_min_p(max))
    };
    let (first, loads) = model("a", 40, || ());
    let (second, _) = model("b", 40, || ());
    let next: Arc<Mutex<Vec<(String, ModelSettings)>>> = Arc::default();
    let source = Arc::clone(&next);
    let read = move || {
        let settings = source.lock().unwrap().clone();
        if settings.is_empty() { Err("unreadable".into()) } else { Ok(settings) }
    };
    let options = options().with_settings(SettingsSource::new(read));
    let models = vec![first.with_settings(sampled(0.25)).preloaded(), second];
    let server = Server::bind(("127.0.0.1", 0), models, options).unwrap();
    let reloader = server.reloader();
    let server = TestServer::running(server);
    wait_for(&server, ["loaded", "unloaded"]);
    assert_eq!(loads.load(Relaxed), 1, "it is loaded without a request");
    let min_p = || {
        let props = server.get("/props?model=a").ok();
        props["default_generation_settings"]["params"]["min_p"].clone()
    };
    assert_eq!(min_p(), 0.25);
    let status = |name: &str| server.post("/v1/completions", &body(name)).status;
    assert_eq!((status("first-x"), status("later")), (200, 404));

    // What cannot be read, or gives two models one name, changes nothing.
    reloader.reload().unwrap_err();
    let settings = sampled(0.5).with_aliases(vec!["later".to_owned()]);
    let both = vec![("a".to_owned(), settings.clone()), ("b".to_owned(), settings.clone())];
    *next.lock().unwrap() = both;
    assert!(reloader.reload().unwrap_err().to_string().contains("later"));
    assert_eq!((min_p(), status("later")), (json!(0.25), 404));

    let keep_alive = Some(KeepAlive::from(Duration::from_millis(1)));
    *next.lock().unwrap() = vec![("a".to_owned(), settings.with_keep_alive(keep_alive))];
    reloader.reload().unwrap();
    assert_eq!(min_p(), 0.5);
    assert_eq!((status("first-x"), status("later")), (404, 200));
    wait_for(&server, ["unloaded", "unloaded"]);
}
