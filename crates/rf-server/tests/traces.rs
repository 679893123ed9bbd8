//! Traces of requests, as a collector gets them.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

mod markers;
#[expect(dead_code, reason = "the tests of the APIs use the rest of it")]
mod server;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use server::{Setup, TestServer};

/// A collector that keeps the bodies that it gets.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Value>>>);

impl Collector {
    /// Answers each request with this status.
    fn start(status: &'static str) -> (Self, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let collector = Self::default();
        let bodies = Arc::clone(&collector.0);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = BufReader::new(stream.unwrap());
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") {
                    assert_ne!(stream.read_line(&mut head).unwrap(), 0, "{head}");
                }
                assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
                assert!(head.contains("content-type: application/json\r\n"), "{head}");
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                let mut body = vec![0; length.unwrap().parse().unwrap()];
                stream.read_exact(&mut body).unwrap();
                bodies.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
                let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\n{{}}");
                stream.into_inner().write_all(answer.as_bytes()).unwrap();
            }
        });
        (collector, address)
    }

    fn spans(&self) -> Vec<Value> {
        let bodies = self.0.lock().unwrap();
        let spans = bodies.iter().flat_map(|body| {
            let resource = &body["resourceSpans"][0];
            let service = &resource["resource"]["attributes"][0];
            assert_eq!(service["value"]["stringValue"], "rocmforge");
            resource["scopeSpans"][0]["spans"].as_array().unwrap().clone()
        });
        spans.collect()
    }

    /// Waits for this many spans.
    fn wait_for(&self, count: usize) -> Vec<Value> {
        let started = Instant::now();
        while self.spans().len() < count {
            assert!(started.elapsed() < Duration::from_secs(30), "{:?}", self.spans());
            std::thread::sleep(Duration::from_millis(20));
        }
        self.spans()
    }
}

fn serve(collector: SocketAddr) -> TestServer {
    let mut setup = Setup::default();
    setup.server.otlp_traces_endpoint = Some(format!("http://{collector}"));
    TestServer::with(setup)
}

fn attribute<'a>(span: &'a Value, key: &str) -> &'a Value {
    let attributes = span["attributes"].as_array().unwrap();
    let found = attributes.iter().find(|attribute| attribute["key"] == key);
    found.map_or(&Value::Null, |attribute| &attribute["value"])
}

fn nanos(span: &Value, key: &str) -> u128 {
    span[key].as_str().unwrap().parse().unwrap()
}

#[test]
fn a_request_is_a_span_below_that_of_its_client() {
    let (collector, address) = Collector::start("200 OK");
    let server = serve(address);
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let parent = format!("00-{trace}-00f067aa0ba902b7-01");
    let body = json!({ "prompt": ["One two three", "Four"], "max_tokens": 5, "ignore_eos": true });
    let headers = [("traceparent", parent.as_str()), ("x-request-id", "r1")];
    let answer = server.send("POST", "/v1/completions", &headers, &body.to_string());
    let usage = answer.ok()["usage"].clone();
    let spans = collector.wait_for(7);
    let root = spans.iter().find(|span| span["kind"] == 2).unwrap();
    assert_eq!((&root["traceId"], &root["name"]), (&json!(trace), &json!("text_completion demo")));
    assert_eq!(root["parentSpanId"], "00f067aa0ba902b7");
    let id = root["spanId"].as_str().unwrap();
    assert_eq!(answer.header("traceresponse"), format!("00-{trace}-{id}-01"));
    for (key, value) in [
        ("gen_ai.operation.name", "text_completion"),
        ("gen_ai.request.model", "demo"),
        ("http.route", "/v1/completions"),
        ("rocmforge.request.id", "r1"),
    ] {
        assert_eq!(attribute(root, key)["stringValue"], value, "{key}");
    }
    assert_eq!(attribute(root, "http.response.status_code")["intValue"], "200");
    for (key, field) in [
        ("gen_ai.usage.input_tokens", "prompt_tokens"),
        ("gen_ai.usage.output_tokens", "completion_tokens"),
    ] {
        assert_eq!(attribute(root, key)["intValue"], usage[field].to_string());
    }
    for name in ["queue", "prefill", "decode"] {
        let of_name: Vec<_> = spans.iter().filter(|span| span["name"] == name).collect();
        assert_eq!(of_name.len(), 2, "{name}");
        for span in of_name {
            assert_eq!((&span["traceId"], &span["parentSpanId"]), (&json!(trace), &json!(id)));
            let (start, end) = (nanos(span, "startTimeUnixNano"), nanos(span, "endTimeUnixNano"));
            assert!(nanos(root, "startTimeUnixNano") <= start && start <= end, "{span}");
        }
    }
    let decode = spans.iter().find(|span| span["name"] == "decode").unwrap();
    assert_eq!(attribute(decode, "gen_ai.usage.output_tokens")["intValue"], "5");
    let reasons = &attribute(decode, "gen_ai.response.finish_reasons")["arrayValue"]["values"];
    assert_eq!(reasons[0]["stringValue"], "length");

    // The parent of this one is not recorded.
    let ignored = parent.replace("-01", "-00");
    let headers = [("traceparent", ignored.as_str())];
    server.send("POST", "/v1/completions", &headers, &body.to_string()).ok();
    // A refused request is a span without others.
    assert_eq!(server.post("/v1/completions", &json!({ "prompt": "x", "n": 0 })).status, 400);
    let spans = collector.wait_for(8);
    assert_eq!(spans.len(), 8);
    let refused = spans.last().unwrap();
    assert_ne!(refused["traceId"], trace);
    assert_eq!(refused["status"]["code"], 2);
    assert_eq!(refused.get("parentSpanId"), None);
}

#[test]
fn no_span_has_text_of_a_request() {
    let (collector, address) = Collector::start("200 OK");
    let mut server = serve(address);
    markers::send_all(&server);
    // The last ones are sent before the server ends.
    server.join();
    let spans = collector.spans();
    assert!(spans.len() > 100, "{}", spans.len());
    assert!(spans.iter().any(|span| span["name"] == "chat demo"));
    let leak = spans.iter().map(ToString::to_string).find(|span| span.contains(markers::MARKER));
    assert_eq!(leak, None);
}

#[test]
fn a_collector_that_takes_nothing_does_not_disturb_requests() {
    let (collector, address) = Collector::start("503 Service Unavailable");
    let server = serve(address);
    let body = json!({ "prompt": "One", "max_tokens": 1 });
    server.post("/v1/completions", &body).ok();
    collector.wait_for(4);
    let started = Instant::now();
    let name = "rocmforge:trace_spans_dropped_total 4";
    while !server.get("/metrics").text.contains(name) {
        assert!(started.elapsed() < Duration::from_secs(30), "the spans were not counted");
        std::thread::sleep(Duration::from_millis(20));
    }
}
