//! Clients that are slow, gone or many, and the end of the server.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

mod server;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rf_engine::EngineOptions;
use rf_engine::scheduler::SchedulerOptions;
use serde_json::{Value, json};
use server::{Setup, TestServer, rest, send};

const ENDLESS: u64 = 100_000;

fn endless() -> Value {
    json!({ "prompt": "Once upon a time", "max_tokens": ENDLESS, "ignore_eos": true, "stream": true })
}

/// A server with a context that takes long to fill.
fn patient() -> Setup {
    let engine = EngineOptions {
        context_tokens: Some(16384),
        kv_tokens: Some(65536),
        ..EngineOptions::default()
    };
    Setup { engine, ..Setup::default() }
}

#[test]
fn a_client_that_leaves_frees_its_pages() {
    let server = TestServer::with(patient());
    // One that streams, one that waits for the whole answer, and one in the queue.
    let mut whole = endless();
    whole["stream"] = json!(false);
    let streaming = server.open("/v1/completions", &endless());
    let waiting = server.open("/v1/chat/completions", &{
        let mut body = whole.clone();
        body["messages"] = json!([{ "role": "user", "content": "x" }]);
        body
    });
    server.wait_for("both run", |stats| stats.running == 2 && stats.kv_pages_used > 0);
    drop((streaming, waiting));
    server.wait_for("both are gone", |stats| stats.running == 0);
    assert_eq!(server.stats().kv_pages_used, 0);
    assert_eq!(server.stats().finished.cancelled, 2);
}

#[test]
fn a_slow_reader_loses_only_its_own_request() {
    let server = TestServer::with(patient());
    // Nothing is read, so the socket fills, then the buffer. Log probabilities make it fast.
    let mut body = endless();
    body["logprobs"] = json!(20);
    let slow = server.open("/v1/completions", &body);
    server.wait_for("the slow one is cut off", |stats| stats.finished.cancelled == 1);
    assert_eq!(server.stats().kv_pages_used, 0);
    let body = json!({ "prompt": "Once", "max_tokens": 4 });
    server.post("/v1/completions", &body).ok();
    let text = rest(slow);
    assert!(text.contains("read too slowly"), "{}", &text[text.len().saturating_sub(300)..]);
}

#[test]
fn half_a_request_holds_nothing() {
    let server = TestServer::start();
    let mut half: Vec<_> = (0..50).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    for (index, stream) in half.iter_mut().enumerate() {
        let text = if index % 2 == 0 {
            "POST /v1/completions HTTP/1.1\r\nhost"
        } else {
            "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n{\"prompt\":"
        };
        stream.write_all(text.as_bytes()).unwrap();
    }
    let body = json!({ "prompt": "Once", "max_tokens": 4 });
    server.post("/v1/completions", &body).ok();
    assert_eq!(server.stats().running + server.stats().waiting, 0);
}

#[test]
fn a_header_above_the_limit_is_refused() {
    let server = TestServer::start();
    let mut stream = TcpStream::connect(server.address).unwrap();
    // The server may close the socket before all is written.
    drop(write!(stream, "GET /health HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "x".repeat(1 << 20)));
    let text = rest(stream);
    assert!(text.is_empty() || text.starts_with("HTTP/1.1 431"), "{text}");
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn many_at_a_time_get_the_answers_of_each_alone() {
    // Half of the pages that all need, so that some are preempted.
    let engine = EngineOptions { kv_tokens: Some(2048), ..EngineOptions::default() };
    let scheduler = SchedulerOptions { max_num_seqs: 32, ..SchedulerOptions::default() };
    let server = TestServer::with(Setup { engine, scheduler, ..Setup::default() });
    let body = |index: usize| {
        let prompt = "There was a fox with a key. ".repeat(index % 7) + "Once upon a time";
        json!({ "prompt": prompt, "max_tokens": 8 + index % 40, "cache_prompt": index.is_multiple_of(2) })
    };
    let text = |answer: Value| answer["choices"][0]["text"].as_str().unwrap().to_owned();
    let alone: Vec<_> =
        (0..64).map(|index| text(server.post("/v1/completions", &body(index)).ok())).collect();
    let address = server.address;
    let threads: Vec<_> = (0..64)
        .map(|index| {
            let body = body(index).to_string();
            std::thread::spawn(move || send(address, "POST", "/v1/completions", &[], &body).ok())
        })
        .collect();
    // Others come and go meanwhile.
    for _ in 0..8 {
        drop(server.open("/v1/completions", &json!({ "prompt": "Gone", "stream": true })));
    }
    for (index, thread) in threads.into_iter().enumerate() {
        assert_eq!(text(thread.join().unwrap()), alone[index], "request {index}");
    }
    server.wait_for("all pages are free", |stats| stats.kv_pages_used == 0);
}

#[test]
fn running_requests_end_before_the_server_does() {
    let mut server = TestServer::start();
    let body = json!({ "prompt": "Once", "max_tokens": 200, "ignore_eos": true, "stream": true });
    let mut stream = server.open("/v1/completions", &body);
    server.wait_for("it runs", |stats| stats.running == 1);
    // A connection that is kept open for further requests.
    let mut idle = TcpStream::connect(server.address).unwrap();
    write!(idle, "GET /health HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut first = [0; 12];
    idle.read_exact(&mut first).unwrap();
    server.stop();
    let mut text = String::new();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.contains("[DONE]"), "{}", &text[text.len().saturating_sub(300)..]);
    server.join();
    assert!(TcpStream::connect(server.address).is_err());
    drop(rest(idle));
}

#[test]
fn requests_that_take_longer_than_the_drain_are_cut_off() {
    let mut setup = patient();
    setup.server.drain_timeout = Duration::from_millis(100);
    let mut server = TestServer::with(setup);
    let stream = server.open("/v1/completions", &endless());
    server.wait_for("it runs", |stats| stats.running == 1);
    server.join();
    let text = rest(stream);
    assert!(!text.contains("[DONE]"));
    server.wait_for("its pages are free", |stats| stats.running == 0);
}
