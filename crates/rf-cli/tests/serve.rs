//! `rf-cli serve` as a process: its start, its log and its end.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

mod program;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

use program::rf_cli;
use snapbox::{assert_data_eq, str};

/// A server on a free port.
struct Serve {
    child: Child,
    stderr: BufReader<ChildStderr>,
    address: String,
}

impl Serve {
    fn start(folder: &Path, arguments: &[&str]) -> Self {
        let port = if arguments.contains(&"--port") { &[][..] } else { &["--port", "0"] };
        let all = [&["serve", "-t", "1"], port, arguments].concat();
        let mut child = rf_cli(folder, &all).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("http://") {
            line.clear();
            assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "the server ended");
        }
        let address = line.trim().rsplit_once("http://").unwrap().1.to_owned();
        Self { child, stderr, address }
    }

    fn send(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    /// Sends SIGTERM and waits. Returns the exit code and what was logged.
    fn terminate(self) -> (Option<i32>, String) {
        self.signal("-TERM");
        self.end()
    }

    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    /// Waits for the end. Returns the exit code and what was logged.
    fn end(mut self) -> (Option<i32>, String) {
        let mut log = String::new();
        self.stderr.read_to_string(&mut log).unwrap();
        (self.child.wait().unwrap().code(), log)
    }
}

fn rest(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn sigterm_lets_an_answer_end_and_no_key_is_logged() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("keys"), "sk-first\n\nsk-second\n").unwrap();
    let server = Serve::start(folder.path(), &["--api-key-file", "keys", "--alias", "tiny"]);
    let request = |headers: &str, body: &str| {
        let length = body.len();
        format!(
            "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n{body}"
        )
    };
    let body =
        r#"{"model":"tiny","prompt":"Once","max_tokens":400,"ignore_eos":true,"stream":true}"#;
    let refused = rest(server.send(&request("authorization: Bearer sk-wrong\r\n", body)));
    assert!(refused.starts_with("HTTP/1.1 401"), "{refused}");
    let headers = "authorization: Bearer sk-second\r\nx-request-id: trace-7\r\n";
    let mut stream = server.send(&request(headers, body));
    // It has begun.
    let mut first = [0; 12];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    let (code, log) = server.terminate();
    assert_eq!(code, Some(0));
    assert!(rest(stream).contains("[DONE]"));
    assert!(log.contains("request_id=\"trace-7\""), "{log}");
    assert!(!log.contains("sk-"), "{log}");
}

/// A request without a body, or with one.
fn request(path: &str, body: &str) -> String {
    let method = if body.is_empty() { "GET" } else { "POST" };
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

const BODY: &str = r#"{"prompt":"Once","max_tokens":8,"temperature":0}"#;

/// The text of a completion.
fn completion(server: &Serve) -> String {
    let answer = rest(server.send(&request("/v1/completions", BODY)));
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    body["choices"][0]["text"].as_str().unwrap().to_owned()
}

#[test]
fn a_killed_server_starts_again_at_its_address() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Serve::start(folder.path(), &[]);
    let text = completion(&server);
    let endless = r#"{"prompt":"Once","max_tokens":100000,"ignore_eos":true,"stream":true}"#;
    let mut stream = server.send(&request("/v1/completions", endless));
    let mut first = [0; 12];
    stream.read_exact(&mut first).unwrap();
    // SIGKILL.
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    assert!(!rest(stream).contains("[DONE]"));
    let (_, port) = server.address.rsplit_once(':').unwrap();
    let again = Serve::start(folder.path(), &["--port", port]);
    assert_eq!(again.address, server.address);
    assert_eq!(completion(&again), text);
    assert_eq!(again.terminate().0, Some(0));
}

/// A request that takes long, once its answer has begun.
fn begin(server: &Serve, max_tokens: usize) -> TcpStream {
    let body = format!(
        r#"{{"prompt":"Once","max_tokens":{max_tokens},"ignore_eos":true,"stream":true,"n":8}}"#
    );
    let mut stream = server.send(&request("/v1/completions", &body));
    let mut first = [0; 12];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    stream
}

#[test]
fn a_second_signal_ends_the_server_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::start(folder.path(), &["--drain-timeout", "600"]);
    let stream = begin(&server, 100_000);
    let started = std::time::Instant::now();
    server.signal("-INT");
    // Signals that come before the first one is read are one.
    while TcpStream::connect(&server.address).is_ok() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    server.signal("-INT");
    let (code, log) = server.end();
    assert_eq!(code, Some(0));
    assert!(log.contains("a second signal"), "{log}");
    assert!(started.elapsed() < std::time::Duration::from_mins(1), "{:?}", started.elapsed());
    drop(stream);
}

/// Returns true as under nohup: the server, too, ignores the signal then.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.is_some_and(|bits| u64::from_str_radix(bits.trim(), 16).unwrap() & 1 != 0)
}

#[test]
fn user_signals_do_not_end_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::start(folder.path(), &[]);
    for signal in ["-USR1", "-USR2"] {
        server.signal(signal);
        assert!(!completion(&server).is_empty());
    }
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn a_hangup_lets_an_answer_end() {
    if ignores_hangup() {
        rf_testing::skip!("SIGHUP is ignored here");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::start(folder.path(), &[]);
    let stream = begin(&server, 200);
    server.signal("-HUP");
    assert_eq!(server.end().0, Some(0));
    assert!(rest(stream).contains("[DONE]"));
}

#[test]
fn a_hangup_reads_the_keys_again() {
    if ignores_hangup() {
        rf_testing::skip!("SIGHUP is ignored here");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys.toml");
    let keys = |key: &str| format!("[[key]]\nname = \"alice\"\nkey = \"{key}\"\n");
    std::fs::write(&file, keys("sk-first")).unwrap();
    let arguments = ["--api-key-file", "keys.toml", "--log-format", "json"];
    let server = Serve::start(folder.path(), &arguments);
    let status = |key: &str| {
        let key = format!("GET /v1/models HTTP/1.1\r\nx-api-key: {key}\r\n");
        let request = request("/v1/models", "").replacen("GET /v1/models HTTP/1.1\r\n", &key, 1);
        rest(server.send(&request))[9..12].to_owned()
    };
    let wait_for = |key: &str| {
        let started = std::time::Instant::now();
        while status(key) != "200" {
            assert!(started.elapsed() < std::time::Duration::from_mins(1));
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    };
    assert_eq!((status("sk-first"), status("sk-second")), ("200".to_owned(), "401".to_owned()));
    std::fs::write(&file, keys("sk-second")).unwrap();
    server.signal("-HUP");
    wait_for("sk-second");
    assert_eq!(status("sk-first"), "401");
    // A file with a mistake changes nothing.
    std::fs::write(&file, keys("sk-third") + "max_requests = \"sk-fourth\"\n").unwrap();
    server.signal("-HUP");
    let started = std::time::Instant::now();
    while started.elapsed() < std::time::Duration::from_millis(300) {
        assert_eq!(status("sk-second"), "200");
    }
    let (code, log) = server.terminate();
    assert_eq!(code, Some(0));
    assert!(!log.contains("sk-"), "{log}");
    let lines: Vec<serde_json::Value> =
        log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let answered = |line: &&serde_json::Value| line["client"] == "alice" && line["status"] == 200;
    let line = lines.iter().find(answered).unwrap();
    assert_eq!((&line["path"], &line["message"]), (&"/v1/models".into(), &"request".into()));
    assert!(line["time"].as_str().unwrap().ends_with('Z') && line["ms"].is_number(), "{line}");
    let failed = lines.iter().find(|line| line["level"] == "error").unwrap();
    let message = failed["message"].as_str().unwrap();
    assert!(message.contains("line 4, column 16"), "{message}");
}

#[test]
fn a_log_that_nobody_reads_stops_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::start(folder.path(), &[]);
    // A pipe has room for 64 KiB, which is about 500 lines.
    for _ in 0..1200 {
        let answer = rest(server.send(&request("/health", "")));
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn a_full_disk_for_the_log_stops_nothing() {
    let Ok(full) = std::fs::OpenOptions::new().write(true).open("/dev/full") else {
        rf_testing::skip!("the system has no /dev/full");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    // Nothing tells the port, so it is one that is free now.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let arguments = ["serve", "-t", "1", "--port", &port.to_string()];
    let mut child = rf_cli(folder.path(), &arguments).stderr(full).spawn().unwrap();
    let address = format!("127.0.0.1:{port}");
    let started = std::time::Instant::now();
    while TcpStream::connect(&address).is_err() {
        assert!(child.try_wait().unwrap().is_none(), "the server ended");
        assert!(started.elapsed() < std::time::Duration::from_mins(1));
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    for _ in 0..3 {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.write_all(request("/v1/completions", BODY).as_bytes()).unwrap();
        let answer = rest(stream);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn the_models_of_a_folder_are_loaded_on_demand() {
    let folder = tempfile::tempdir().unwrap();
    let demo = std::fs::read(program::demo_model()).unwrap();
    for name in ["fox.gguf", "owl-00001-of-00002.gguf", "owl-00002-of-00002.gguf"] {
        std::fs::write(folder.path().join(name), &demo).unwrap();
    }
    std::fs::write(folder.path().join("broken.gguf"), &demo[..1000]).unwrap();
    std::fs::write(folder.path().join("notes.txt"), "x").unwrap();
    let arguments = ["--models", ".", "-m", "fox.gguf", "--alias", "first", "--keep-alive", "1h"];
    // The same file twice: by its alias, and by its name.
    let server = Serve::start(folder.path(), &arguments);
    let models = rest(server.send(&request("/v1/models", "")));
    for part in [r#""id":"first""#, r#""id":"fox""#, r#""id":"owl""#] {
        assert!(models.contains(part), "{models}");
    }
    assert!(!models.contains(r#""value":"loaded""#), "{models}");
    assert!(!models.contains("broken"), "{models}");
    let mut texts = Vec::new();
    for name in ["first", "fox"] {
        let body = BODY.replacen('{', &format!(r#"{{"model":"{name}","#), 1);
        let answer = rest(server.send(&request("/v1/completions", &body)));
        assert!(answer.contains(&format!(r#""model":"{name}""#)), "{answer}");
        texts
            .push(answer.split(r#""text":"#).nth(1).unwrap().split('"').nth(1).unwrap().to_owned());
    }
    assert_eq!(texts[0], texts[1]);
    let models = rest(server.send(&request("/v1/models", "")));
    assert_eq!(models.matches(r#""value":"loaded""#).count(), 2, "{models}");
    let (code, log) = server.terminate();
    assert_eq!(code, Some(0));
    assert!(log.contains("loaded"), "{log}");
}

#[test]
fn a_key_file_without_keys_does_not_open_the_server() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("keys"), "\n").unwrap();
    let printed = program::transcripts(folder.path(), &[&["serve", "--api-key-file", "keys"]]);
    assert_data_eq!(
        printed,
        str![[r#"
$ rf-cli serve --api-key-file keys
error: keys has no API key: write one per line
? 2

"#]]
    );
}

#[test]
fn a_folder_of_models_that_does_not_exist_is_bad_input() {
    let folder = tempfile::tempdir().unwrap();
    let printed = program::transcripts(folder.path(), &[&["serve", "--models", "missing"]]);
    assert_data_eq!(
        printed,
        str![[r#"
$ rf-cli serve --models missing
error: cannot read the folder missing: No such file or directory (os error 2): check the path
? 2

"#]]
    );
}

#[test]
fn a_model_has_the_options_of_its_table() {
    let folder = tempfile::tempdir().unwrap();
    let demo = std::fs::read(program::demo_model()).unwrap();
    for name in ["fox.gguf", "owl.gguf"] {
        std::fs::write(folder.path().join(name), &demo).unwrap();
    }
    let config = "[models.owl]\ncontext = 128\naliases = [\"gpt-*\"]\npreload = true\n\
                  [models.owl.sampling]\nmin_p = 0.25\n";
    std::fs::write(folder.path().join("models.toml"), config).unwrap();
    let arguments = ["serve", "--models", ".", "--models-config", "models.toml"];
    let server = Serve::start(folder.path(), &arguments[1..]);
    let body = BODY.replacen('{', r#"{"model":"gpt-9","#, 1);
    let answer = rest(server.send(&request("/v1/completions", &body)));
    assert!(answer.contains(r#""model":"owl""#), "{answer}");
    let props = rest(server.send(&request("/props?model=owl", "")));
    assert!(props.contains(r#""n_ctx":128"#) && props.contains(r#""min_p":0.25"#), "{props}");
    assert_eq!(server.terminate().0, Some(0));

    std::fs::write(folder.path().join("models.toml"), "[models.owl]\ncontexts = 1\n").unwrap();
    let finished = program::finish(folder.path(), &arguments);
    assert_eq!(finished.code, Some(2));
    let expected = "error: models.toml, line 2, column 1: unknown field";
    assert!(finished.stderr.contains(expected), "{}", finished.stderr);
}

#[test]
fn adapters_drafts_and_limits_of_a_table_are_those_of_its_model() {
    let cases = rf_testing::golden_adapters();
    let case = cases.iter().find(|case| case.name == "llama_attention").unwrap();
    let folder = tempfile::tempdir().unwrap();
    for name in ["plain.gguf", "tuned.gguf"] {
        std::fs::copy(case.model.path(), folder.path().join(name)).unwrap();
    }
    std::fs::copy(&case.adapters[0].0, folder.path().join("a.lora")).unwrap();
    let path = folder.path().join("models.toml");
    let sampling = "[models.tuned.sampling]\nignore_eos = true\nmax_tokens = 6\n";
    let tuned =
        "[models.tuned]\nkeep-alive = 0\nlora = [\"a.lora\"]\ndraft-model = \"plain.gguf\"\n";
    std::fs::write(&path, format!("{tuned}{sampling}")).unwrap();
    let server = Serve::start(folder.path(), &["--models", ".", "--models-config", "models.toml"]);
    let answer = |fields: &str| {
        let body = format!(r#"{{"prompt":"x","temperature":0,"logprobs":0,{fields}}}"#);
        let answer = rest(server.send(&request("/v1/completions", &body)));
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
        let answer: serde_json::Value = serde_json::from_str(body).unwrap();
        let logprobs = answer["choices"][0]["logprobs"]["token_logprobs"].as_array().unwrap();
        (logprobs.clone(), answer["usage"]["completion_tokens"].as_u64())
    };
    let plain = answer(r#""model":"plain","ignore_eos":true,"max_tokens":6"#);
    let tuned = answer(r#""model":"tuned""#);
    assert_eq!((plain.1, tuned.1), (Some(6), Some(6)));
    assert_ne!(plain, tuned);
    assert_eq!(answer(r#""model":"tuned","max_tokens":3"#).0, tuned.0[..3]);
    let metrics = rest(server.send(&request("/metrics?model=tuned", "")));
    let drafted = |model: &str| {
        let name = "vllm:spec_decode_num_draft_tokens_total{";
        let is_wanted = |line: &&str| line.starts_with(name) && line.contains(model);
        let line = metrics.lines().find(is_wanted).unwrap();
        line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()
    };
    assert!(drafted("\"tuned\"") > 0.0, "{metrics}");

    // The model is unloaded after each request, so the next one loads it without the adapter.
    std::fs::write(&path, format!("[models.tuned]\nkeep-alive = 0\n{sampling}")).unwrap();
    server.signal("-HUP");
    let mut last = tuned.clone();
    for _ in 0..100 {
        last = answer(r#""model":"tuned""#);
        if last == plain {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(last, plain);
    assert_eq!(server.terminate().0, Some(0));
}
