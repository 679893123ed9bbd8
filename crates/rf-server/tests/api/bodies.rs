//! Bodies of requests: their limits, and those of all of them together.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::server::{Setup, TestServer};
use serde_json::json;

/// A socket on which the head of a request for a completion has been sent.
fn head(server: &TestServer, header: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).unwrap();
    let line = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close";
    write!(stream, "{line}\r\n{header}\r\n\r\n").unwrap();
    stream
}

#[test]
fn a_body_above_the_limit_is_too_large() {
    let mut setup = Setup::default();
    setup.server.max_body_bytes = 10_000;
    let server = TestServer::with(setup);
    let body = json!({ "prompt": "x".repeat(20_000) });
    let response = server.post("/v1/completions", &body);
    assert_eq!(response.status, 413);
    assert!(response.text.contains("10000 bytes"), "{}", response.text);
    assert_eq!(server.post("/v1/messages", &body).json()["error"]["type"], "request_too_large");
}

#[test]
fn a_client_that_sends_all_of_a_large_body_first_reads_why_it_is_refused() {
    let mut setup = Setup::default();
    setup.server.max_body_bytes = 10_000;
    let server = TestServer::with(setup);
    let body = json!({ "prompt": "x".repeat(20 << 20) });
    // The whole body is in the socket, or has been read, before the answer is.
    let answer = |mut stream: TcpStream| {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    let text = answer(server.open("/v1/completions", &body));
    assert!(text.starts_with("HTTP/1.1 413 ") && text.contains("10000 bytes"), "{text}");
    // So with a body that does not tell its length.
    let mut stream = head(&server, "transfer-encoding: chunked");
    for _ in 0..20 {
        write!(stream, "100000\r\n{}\r\n", "x".repeat(1 << 20)).unwrap();
    }
    stream.write_all(b"0\r\n\r\n").unwrap();
    let text = answer(stream);
    assert!(text.starts_with("HTTP/1.1 413 ") && text.contains("10000 bytes"), "{text}");
    let text = answer(server.open_with("/tokenize", "content-encoding: gzip\r\n", &body));
    assert!(text.starts_with("HTTP/1.1 415 "), "{text}");
    // A client that asks first is answered at once.
    let stream = head(&server, "expect: 100-continue\r\ncontent-length: 20000");
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let text = answer(stream);
    assert!(text.starts_with("HTTP/1.1 413 "), "{text}");
}

#[test]
fn a_compressed_body_is_refused_by_the_name_of_its_header() {
    let server = TestServer::start();
    for (coding, status) in [("gzip", 415), ("identity, BR", 415), ("Identity", 200), ("", 200)] {
        let headers = [("content-encoding", coding)];
        let answer = server.send("POST", "/tokenize", &headers, r#"{"content":"x"}"#);
        assert_eq!(answer.status, status, "{coding}: {}", answer.text);
        if status == 415 {
            let header = format!("`content-encoding: {coding}` is not supported");
            assert!(answer.text.contains(&header), "{}", answer.text);
        }
    }
}

#[test]
fn large_bodies_wait_for_one_another_until_all_are_answered() {
    let server = TestServer::start();
    // Each takes a quarter of the memory for large bodies, and some of the received bytes.
    let body = json!({ "prompt": vec![1; 480_000] });
    let streams: Vec<_> = (0..12).map(|_| server.open("/v1/completions", &body)).collect();
    for mut stream in streams {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 400 "), "{text}");
        assert!(text.contains("prompt is too long: 480000 tokens"), "{text}");
    }
}
