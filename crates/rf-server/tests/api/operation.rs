//! Metrics, loads and request ids.

use std::collections::{HashMap, HashSet};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::server::{Setup, TestServer, demo, serving};
use rf_server::{Error, ModelEntry, ServerOptions, StepTimeout};
use rf_testing::StubBackend;
use rf_testing::engine::cpu;
use rocmforge::engine::scheduler::SchedulerOptions;
use rocmforge::engine::{Engine, EngineOptions, Model};
use serde_json::json;

/// The samples of an exposition by name with labels. Checks its form on the way.
fn samples(text: &str) -> HashMap<String, f64> {
    let mut kinds: HashMap<&str, &str> = HashMap::new();
    let mut helped = HashSet::new();
    let mut samples = HashMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            assert!(helped.insert(rest.split(' ').next().unwrap()), "twice: {line}");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(kinds.insert(name, kind).is_none(), "twice: {line}");
            // vLLM's distribution of tokens per step has the name of a counter.
            let is_counter = name.ends_with("_total") && !name.contains("iteration_tokens");
            assert_eq!(is_counter, kind == "counter", "{line}");
        } else {
            let (name, value) = line.rsplit_once(' ').unwrap();
            let family = name.split('{').next().unwrap();
            let base =
                ["_bucket", "_sum", "_count"].iter().find_map(|end| family.strip_suffix(end));
            let base_kind = base.and_then(|base| kinds.get(base));
            let has_parts = matches!(base_kind, Some(&"histogram" | &"summary"));
            assert!(has_parts || kinds.contains_key(family), "no type: {line}");
            let is_of_model = name.contains("model_name=\"demo\",engine=\"0\"");
            let is_of_key = name.starts_with("rocmforge:key_rejections_total{");
            let is_of_process = name.starts_with("process_") || name.starts_with("http_");
            assert!(is_of_model || is_of_key || is_of_process, "{name}");
            let value = value.parse().unwrap();
            assert!(samples.insert(name.to_owned(), value).is_none(), "twice: {line}");
        }
    }
    samples
}

#[test]
fn metrics_count_what_happened() {
    let server = TestServer::start();
    let body = json!({ "prompt": "Once upon a time", "max_tokens": 10, "ignore_eos": true });
    for _ in 0..3 {
        server.post("/v1/completions", &body).ok();
    }
    let response = server.get("/metrics");
    assert_eq!(response.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    let samples = samples(&response.text);
    for prefix in ["vllm", "rocmforge"] {
        let value = |name: &str, labels: &str| {
            let name = format!("{prefix}:{name}{{model_name=\"demo\",engine=\"0\"{labels}}}");
            *samples.get(&name).unwrap_or_else(|| panic!("no {name}"))
        };
        for (name, labels, expected) in [
            ("prompt_tokens_total", "", 12.0),
            ("generation_tokens_total", "", 30.0),
            ("request_success_total", ",finished_reason=\"length\"", 3.0),
            ("request_success_total", ",finished_reason=\"abort\"", 0.0),
            ("request_success_total", ",finished_reason=\"error\"", 0.0),
            ("request_max_num_generation_tokens_sum", "", 30.0),
            ("num_requests_waiting_by_reason", ",reason=\"capacity\"", 0.0),
            ("engine_sleep_state", ",sleep_state=\"awake\"", 1.0),
            ("num_requests_running", "", 0.0),
            ("num_requests_waiting", "", 0.0),
            ("kv_cache_usage_perc", "", 0.0),
            ("gpu_cache_usage_perc", "", 0.0),
            ("gpu_prefix_cache_queries_total", "", 12.0),
            ("gpu_prefix_cache_hits_total", "", 0.0),
            ("num_preemptions_total", "", 0.0),
            ("cache_tier_pages", ",tier=\"host\"", 0.0),
            ("cache_tier_hits_total", ",tier=\"disk\"", 0.0),
            ("prefix_cache_queries_total", "", 12.0),
            ("time_to_first_token_seconds_count", "", 3.0),
            ("time_to_first_token_seconds_bucket", ",le=\"+Inf\"", 3.0),
            ("inter_token_latency_seconds_count", "", 27.0),
            ("e2e_request_latency_seconds_bucket", ",le=\"7680\"", 3.0),
            ("request_generation_tokens_sum", "", 30.0),
            ("request_prompt_tokens_bucket", ",le=\"5\"", 3.0),
            ("request_prompt_tokens_bucket", ",le=\"2\"", 0.0),
            ("request_prefill_kv_computed_tokens_sum", "", 12.0),
            ("request_num_preemptions_bucket", ",le=\"1\"", 3.0),
            ("prompt_tokens_by_source_total", ",source=\"local_compute\"", 12.0),
            ("prompt_tokens_by_source_total", ",source=\"local_cache_hit\"", 0.0),
            // Each request is a step of its prompt, and one for each token but the first.
            ("iteration_tokens_total_count", "", 30.0),
            ("iteration_tokens_total_sum", "", 39.0),
            ("iteration_tokens_total_bucket", ",le=\"1\"", 27.0),
            ("iteration_tokens_total_bucket", ",le=\"8\"", 30.0),
            ("iteration_tokens_total_bucket", ",le=\"+Inf\"", 30.0),
            ("cache_config_info", ",block_size=\"32\",num_gpu_blocks=\"512\"", 1.0),
        ] {
            assert!((value(name, labels) - expected).abs() < 1e-9, "{prefix}:{name}{labels}");
        }
    }
}

#[test]
fn answers_are_counted_by_status_and_rejections_by_reason() {
    let server = TestServer::start();
    server.post("/v1/completions", &json!({ "prompt": "Once", "max_tokens": 2 })).ok();
    let long = vec![1; 3000];
    for (body, status) in [
        (json!({ "prompt": long, "max_tokens": 2 }), 400),
        (json!({ "prompt": "Once", "n": "x" }), 400),
        (json!({ "prompt": "Once", "model": "other" }), 404),
    ] {
        assert_eq!(server.post("/v1/completions", &body).status, status);
    }
    server.get("/nowhere/secret");
    let text = server.get("/metrics").text;
    let samples = samples(&text);
    let answers = |handler: &str, method: &str, status: u16| {
        let labels = format!("handler=\"{handler}\",method=\"{method}\",status=\"{status}\"");
        samples.get(&format!("http_requests_total{{{labels}}}")).copied().unwrap_or(0.0)
    };
    let expect = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{text}");
    expect(answers("/v1/completions", "POST", 200), 1.0);
    expect(answers("/v1/completions", "POST", 400), 2.0);
    expect(answers("/v1/completions", "POST", 404), 1.0);
    expect(answers("none", "GET", 404), 1.0);
    assert!(!text.contains("secret"), "paths of clients are no labels");
    for (reason, expected) in [("queue_full", 0.0), ("context_exceeded", 1.0)] {
        let labels = format!("model_name=\"demo\",engine=\"0\",reason=\"{reason}\"");
        expect(samples[&format!("vllm:admission_rejections_total{{{labels}}}")], expected);
    }
    // A rejected request is none that was aborted.
    let aborted = "model_name=\"demo\",engine=\"0\",finished_reason=\"abort\"";
    expect(samples[&format!("vllm:request_success_total{{{aborted}}}")], 0.0);
    if cfg!(target_os = "linux") {
        for (name, least) in [
            ("process_resident_memory_bytes", 1e6),
            ("process_virtual_memory_bytes", 1e6),
            ("process_cpu_seconds_total", 0.0),
            ("process_start_time_seconds", 1.7e9),
            ("process_open_fds", 3.0),
            ("process_max_fds", 3.0),
        ] {
            assert!(samples[name] >= least, "{name} {}", samples[name]);
        }
    }
}

#[test]
fn readiness_is_apart_from_liveness() {
    let server = TestServer::start();
    for path in ["/health", "/v1/health", "/ready", "/health/ready"] {
        assert_eq!(server.get(path).ok()["status"], "ok", "{path}");
    }
}

#[test]
fn a_device_that_does_not_answer_ends_the_server() {
    let mut setup = Setup::default();
    setup.server.step_timeout = StepTimeout::After(Duration::from_millis(200));
    let server = TestServer::with(setup);
    server.post("/v1/completions", &json!({ "prompt": "Once", "max_tokens": 2 })).ok();
    let handle = server.handle();
    let (release, hold) = channel::<()>();
    let hang = std::thread::spawn(move || handle.call(move |_| hold.recv()));
    let deadline = Instant::now() + Duration::from_secs(20);
    while server.get("/health").status == 200 {
        assert!(Instant::now() < deadline, "the server does not notice");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(server.get("/ready").status, 503);
    let error = server.ended().unwrap_err();
    assert!(matches!(&error, Error::Hung { model, .. } if model == "demo"), "{error}");
    drop(release);
    // The sender is gone, which ended the work.
    assert!(hang.join().unwrap().unwrap().is_err());
}

#[test]
fn a_device_that_is_lost_ends_the_server() {
    let backend = StubBackend::new(cpu(1), "GPU", u64::MAX).with_steps(4);
    let options = EngineOptions::default().with_kv_tokens(Some(1024));
    let model = Model::open(demo()).unwrap();
    let engine = Engine::load(model, &backend, options, &mut |_| ()).unwrap();
    let model = serving(engine, SchedulerOptions::default());
    let models = vec![ModelEntry::loaded("demo", model)];
    let server = TestServer::of(models, ServerOptions::default());
    let request = json!({ "prompt": "Once", "max_tokens": 3 });
    server.post("/v1/completions", &request).ok();
    // One failure is an error of the request.
    assert_eq!(server.post("/v1/completions", &request).status, 500);
    assert_eq!(server.get("/health").status, 200);
    server.post("/v1/completions", &request);
    let error = server.ended().unwrap_err();
    let Error::DeviceLost { model, reason, has_slept: false } = &error else { panic!("{error}") };
    assert_eq!((&**model, &**reason), ("demo", "the device is lost"));
}

#[test]
fn loads_report_what_gateways_read() {
    let server = TestServer::start();
    let loads = server.get("/v1/loads?include=core,queues").ok();
    let load = &loads["loads"][0];
    assert_eq!(loads["dp_rank_count"], 1);
    for (field, expected) in [
        ("dp_rank", json!(0)),
        ("num_running_reqs", json!(0)),
        ("num_waiting_reqs", json!(0)),
        ("num_used_tokens", json!(0)),
        ("max_total_num_tokens", json!(16384)),
        ("token_usage", json!(0.0)),
        ("max_running_requests", json!(64)),
    ] {
        assert_eq!(load[field], expected, "{field}");
    }
}

#[test]
fn the_id_of_a_request_is_kept_or_made() {
    let server = TestServer::start();
    let given = server.send("GET", "/health", &[("x-request-id", "trace-7")], "");
    assert_eq!(given.header("x-request-id"), "trace-7");
    assert!(server.get("/health").header("x-request-id").starts_with("req-"));
}
