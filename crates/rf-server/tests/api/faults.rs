//! Clients that are slow, gone or many, and the end of the server.

use crate::server;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::server::{Setup, TestServer, rest, send};
use rocmforge::engine::EngineOptions;
use rocmforge::engine::scheduler::SchedulerOptions;
use serde_json::{Value, json};

const ENDLESS: u64 = 100_000;

fn endless() -> Value {
    json!({ "prompt": "Once upon a time", "max_tokens": ENDLESS, "ignore_eos": true, "stream": true })
}

/// A server with a context that takes long to fill.
fn patient() -> Setup {
    let engine =
        EngineOptions::default().with_context_tokens(Some(16384)).with_kv_tokens(Some(65536));
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

/// Readers that read nothing. Some answers are short: they wait in bounded buffers, so that their
/// sequences end. The others are endless, and are cut off.
fn slow_readers(count: usize, endless: usize) {
    let engine =
        EngineOptions::default().with_context_tokens(Some(8192)).with_kv_tokens(Some(8 * 8192));
    let server =
        TestServer::with(Setup { model: rf_testing::tiny_model(), engine, ..Setup::default() });
    let body = |max_tokens: u64| {
        json!({
            "prompt": [1, 2, 3], "max_tokens": max_tokens, "ignore_eos": true, "stream": true,
            "logprobs": 20,
        })
    };
    let expected = server.post("/v1/completions", &body(200)).events().0;
    let slow: Vec<_> = (0..count)
        .map(|index| {
            let max_tokens = if index % (count / endless) == 0 { ENDLESS } else { 200 };
            (max_tokens, server.open("/v1/completions", &body(max_tokens)))
        })
        .collect();
    // Others get their answers meanwhile.
    assert_eq!(server.post("/v1/completions", &body(200)).events().0.len(), expected.len());
    server.wait_for("all have ended", |stats| {
        stats.finished.length == (count - endless) as u64 + 2
            && stats.finished.cancelled == endless as u64
    });
    assert_eq!((server.stats().running, server.stats().kv_pages_used), (0, 0));
    for (max_tokens, stream) in slow {
        let text = rest(stream);
        let end = &text[text.len().saturating_sub(300)..];
        assert_eq!(text.contains("read too slowly"), max_tokens == ENDLESS, "{end}");
        if max_tokens != ENDLESS {
            assert_eq!(text.matches("data: {").count(), expected.len(), "{end}");
        }
    }
}

#[test]
fn slow_readers_hold_no_sequence() {
    slow_readers(20, 2);
}

#[test]
#[ignore = "takes minutes: the same with 1,000 readers"]
fn a_thousand_slow_readers_hold_no_sequence() {
    slow_readers(1000, 20);
}

#[test]
fn half_a_request_holds_nothing() {
    let server = TestServer::start();
    let mut half: Vec<_> = (0..50).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    for (index, stream) in half.iter_mut().enumerate() {
        let text = if index % 2 == 0 {
            "POST /v1/completions HTTP/1.1\r\nhost"
        } else {
            "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n{\"prompt\":"
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
    drop(write!(
        stream,
        "GET /health HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n",
        "x".repeat(1 << 20)
    ));
    let text = rest(stream);
    assert!(text.is_empty() || text.starts_with("HTTP/1.1 431"), "{text}");
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn ten_megabytes_are_answered_like_any_other_body() {
    let server = TestServer::start();
    let most = 10 << 20;
    let text = "word ".repeat(most / 5);
    let user = json!([{ "role": "user", "content": text }]);
    let deep = "[".repeat(most);
    for (path, body, status) in [
        ("/v1/completions", json!({ "prompt": text }).to_string(), 400),
        ("/v1/chat/completions", json!({ "messages": user }).to_string(), 400),
        ("/v1/messages", json!({ "messages": user, "max_tokens": 1 }).to_string(), 400),
        (
            "/v1/completions",
            json!({ "prompt": "x", "max_tokens": 1, "user": text }).to_string(),
            200,
        ),
        ("/v1/completions", json!({ "prompt": vec![1; most / 3] }).to_string(), 413),
        ("/v1/completions", json!({ "prompt": "x", "stop": vec!["a"; most / 4] }).to_string(), 413),
        ("/v1/completions", deep, 413),
        ("/tokenize", json!({ "content": text }).to_string(), 400),
    ] {
        let response = server.send("POST", path, &[], &body);
        let start = &response.text[..response.text.len().min(300)];
        assert_eq!(response.status, status, "{path}: {start}");
        assert!(status == 200 || response.text.len() < 1000, "{path}: {start}");
    }
    let body = json!({ "prompt": "Once", "max_tokens": 4 });
    server.post("/v1/completions", &body).ok();
}

/// Sends all bodies at a time, and returns the responses in order.
fn at_a_time(server: &TestServer, bodies: &[Value]) -> Vec<server::Response> {
    let address = server.address;
    let send = |body: &Value| {
        let body = body.to_string();
        std::thread::spawn(move || send(address, "POST", "/v1/completions", &[], &body))
    };
    let threads: Vec<_> = bodies.iter().map(send).collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

fn text_of(response: &server::Response) -> String {
    response.ok()["choices"][0]["text"].as_str().unwrap().to_owned()
}

#[test]
fn a_request_that_outgrows_the_context_ends_alone() {
    let engine = EngineOptions::default().with_context_tokens(Some(128)).with_kv_tokens(Some(4096));
    let server =
        TestServer::with(Setup { model: rf_testing::tiny_model(), engine, ..Setup::default() });
    let bodies: Vec<_> = (0..24)
        .map(|index| {
            let (tokens, max_tokens) = match index {
                7 => (200, 8),
                11 => (100, 1000),
                _ => (1 + index * 3, 20),
            };
            let prompt: Vec<_> = (0..tokens).map(|i| (i * 7 + index) % 250).collect();
            json!({ "prompt": prompt, "max_tokens": max_tokens, "ignore_eos": true })
        })
        .collect();
    let alone: Vec<_> = bodies.iter().map(|body| server.post("/v1/completions", body)).collect();
    for (index, (found, alone)) in at_a_time(&server, &bodies).iter().zip(&alone).enumerate() {
        assert_eq!(found.status, alone.status, "{index}");
        match index {
            7 => assert_eq!(found.json()["error"]["code"], "context_length_exceeded"),
            _ => assert_eq!(text_of(found), text_of(alone), "{index}"),
        }
    }
    let cut = &alone[11].ok();
    assert_eq!(cut["choices"][0]["finish_reason"], "length");
    assert_eq!(cut["usage"]["total_tokens"], 129);
}

#[test]
fn a_hundred_long_requests_share_a_cache_that_holds_three() {
    let engine =
        EngineOptions::default().with_context_tokens(Some(256)).with_kv_tokens(Some(3 * 256));
    let server =
        TestServer::with(Setup { model: rf_testing::tiny_model(), engine, ..Setup::default() });
    let bodies: Vec<_> = (0..100)
        .map(|index| {
            let prompt: Vec<_> = (0..20 + index).map(|i| (i * i + 3 * index) % 250).collect();
            json!({ "prompt": prompt, "max_tokens": 120, "ignore_eos": true })
        })
        .collect();
    let alone: Vec<_> =
        bodies.iter().map(|body| text_of(&server.post("/v1/completions", body))).collect();
    for (index, found) in at_a_time(&server, &bodies).iter().enumerate() {
        assert_eq!(text_of(found), alone[index], "{index}");
    }
    assert!(server.stats().preemptions > 0, "{:?}", server.stats());
    server.wait_for("all pages are free", |stats| stats.kv_pages_used == 0);
}

#[test]
fn many_at_a_time_get_the_answers_of_each_alone() {
    // Half of the pages that all need, so that some are preempted.
    let engine = EngineOptions::default().with_kv_tokens(Some(2048));
    let scheduler = SchedulerOptions::default().with_max_num_seqs(32);
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
    write!(idle, "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
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
    // The stream has an error before it ends.
    let text = rest(stream);
    let end = &text[text.len().saturating_sub(300)..];
    assert!(end.contains("the server is shutting down"), "{end}");
    server.wait_for("its pages are free", |stats| stats.running == 0);
}
