//! `serve` without a model: clients download models, make others of them, and remove them.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

mod program;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use program::{demo_model, rf_cli};
use rf_testing::hub::{REPO, StandIn};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A server whose hub has the demo model, and whose cache folder is its own.
struct Serve {
    child: Child,
    address: String,
    cache: TempDir,
    /// What it printed until it listened.
    said: String,
    _hub: StandIn,
}

impl Serve {
    fn start(arguments: &[&str]) -> Self {
        Self::with_cache(TempDir::new().unwrap(), arguments)
    }

    fn with_cache(cache: TempDir, arguments: &[&str]) -> Self {
        let hub = StandIn::start(&[("m-Q8_0.gguf", fs::read(demo_model()).unwrap())]);
        let mut command = rf_cli(cache.path(), &["serve", "-t", "1", "--port", "0"]);
        command.args(arguments).env("HF_ENDPOINT", hub.url());
        command
            .env("HF_HUB_CACHE", cache.path().join("hub"))
            .env("NO_PROXY", "127.0.0.1,localhost");
        command.env_remove("HF_HUB_OFFLINE").env_remove("HF_TOKEN");
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        while !said.contains("http://") {
            assert_ne!(stderr.read_line(&mut said).unwrap(), 0, "the server ended: {said}");
        }
        // The log must go somewhere.
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        let address = said.trim().rsplit_once("http://").unwrap().1.to_owned();
        Self { child, address, cache, said, _hub: hub }
    }

    /// The status and the body of an answer.
    fn send(&self, method: &str, path: &str, body: &Value) -> (u16, String) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    /// The JSON of an answer that is not streamed.
    fn post(&self, path: &str, body: &Value) -> Value {
        let (status, text) = self.send("POST", path, body);
        assert_eq!(status, 200, "{path} {body}: {text}");
        serde_json::from_str(&text).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let (_, text) = self.send("GET", "/api/tags", &Value::Null);
        let tags: Value = serde_json::from_str(&text).unwrap();
        let name = |model: &Value| model["name"].as_str().unwrap().to_owned();
        tags["models"].as_array().unwrap().iter().map(name).collect()
    }

    /// Tokens of the prompt of a conversation.
    fn prompt_tokens(&self, model: &str) -> u64 {
        let messages = json!([{ "role": "user", "content": "Hello" }]);
        let options = json!({ "num_predict": 2 });
        let body =
            json!({ "model": model, "messages": messages, "options": options, "stream": false });
        self.post("/api/chat", &body)["prompt_eval_count"].as_u64().unwrap()
    }

    /// Ends the server and keeps its cache folder.
    fn end(mut self) -> TempDir {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::mem::replace(&mut self.cache, TempDir::new().unwrap())
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn models_are_pulled_made_copied_and_removed() {
    let server = Serve::start(&[]);
    assert_eq!(server.names(), ["demo"]);
    let name = format!("hf.co/{REPO}:Q8_0");
    let (status, text) = server.send("POST", "/api/pull", &json!({ "model": name }));
    assert_eq!(status, 200);
    assert!(text.contains("\"completed\"") && text.contains("\"success\""), "{text}");
    let listed = format!("{REPO}:Q8_0");
    assert_eq!(server.names(), ["demo", &*listed]);
    let plain = server.prompt_tokens(&name);
    let made = json!({
        "model": "teller", "from": name, "system": "You tell stories about foxes only.",
        "parameters": { "temperature": 0, "num_ctx": 256, "stop": "x" }, "stream": false,
    });
    server.post("/api/create", &made);
    assert!(server.prompt_tokens("teller") > plain);
    let loaded: Value =
        serde_json::from_str(&server.send("GET", "/api/ps", &Value::Null).1).unwrap();
    let loaded = loaded["models"].as_array().unwrap();
    let teller = loaded.iter().find(|model| model["name"] == "teller").unwrap();
    assert_eq!(teller["context_length"], 256);
    for (field, value) in [
        ("parameters", json!({ "num_gpu": 1 })),
        ("parameters", json!({ "stop": "x".repeat(1025) })),
        ("parameters", json!({ "samplers": vec!["top_k"; 33] })),
        ("parameters", json!({ "min_p": 2 })),
        ("parameters", json!({ "num_ctx": 1 })),
        ("template", json!("{{ if .System }}{{ .System }}{{ end }}")),
        ("template", json!("/etc/passwd")),
    ] {
        let mut body = json!({ "model": "bad", "from": name, "stream": false });
        body[field] = value;
        let (status, text) = server.send("POST", "/api/create", &body);
        assert_eq!(status, 400, "{body}: {text}");
    }
    server.post("/api/copy", &json!({ "source": listed, "destination": "second" }));
    assert_eq!(server.names(), ["demo", &*listed, "teller", "second"]);
    let delete = |name: &str| server.send("DELETE", "/api/delete", &json!({ "model": name })).0;
    // The file stays as long as a model needs it.
    let hub = server.cache.path().join("hub");
    let files = || fs::read_dir(&hub).map_or(0, Iterator::count);
    assert_eq!((delete(&listed), files()), (200, 1));
    assert_eq!(server.prompt_tokens("second"), plain);
    assert_eq!((delete("teller"), files()), (200, 1));
    assert_eq!((delete("second"), files()), (200, 0));
    assert_eq!(delete("demo"), 400);
    assert_eq!(server.names(), ["demo"]);
}

#[test]
fn a_failed_pull_names_the_cause() {
    let server = Serve::start(&[]);
    for (name, cause) in [
        ("no-such-model", "no short name"),
        ("owner/missing", "does not exist"),
        (&*format!("{REPO}:Q4_K_M"), "no quantisation 'Q4_K_M'"),
    ] {
        let body = json!({ "model": name, "stream": false });
        let (status, text) = server.send("POST", "/api/pull", &body);
        assert_eq!(status, 404, "{text}");
        assert!(text.contains(cause), "{text}");
    }
    assert_eq!(server.names(), ["demo"]);
}

#[test]
fn downloaded_models_are_served_without_being_named() {
    let server = Serve::start(&[]);
    assert!(server.said.contains("serving demo on"), "{}", server.said);
    server.post("/api/pull", &json!({ "model": REPO, "stream": false }));
    let cache = server.end();
    let server = Serve::with_cache(cache, &["--no-manage"]);
    assert_eq!(server.names(), ["demo"]);
    let server = Serve::with_cache(server.end(), &[]);
    let listed = format!("{REPO}:Q8_0");
    assert_eq!(server.names(), [&*listed, "demo"]);
    assert!(server.said.contains(&format!("serving {listed}, demo on")), "{}", server.said);
    assert!(server.prompt_tokens(&listed) > 0);
}

#[test]
fn a_server_of_named_models_and_one_without_management_refuse() {
    let demo = demo_model();
    for arguments in [&["-m", demo.to_str().unwrap()][..], &["--no-manage"]] {
        let server = Serve::start(arguments);
        for (method, path) in [
            ("POST", "/api/pull"),
            ("POST", "/api/create"),
            ("POST", "/api/copy"),
            ("DELETE", "/api/delete"),
        ] {
            let (status, text) = server.send(method, path, &json!({ "model": "demo" }));
            assert_eq!(status, 403, "{arguments:?} {method} {path}: {text}");
        }
    }
}
