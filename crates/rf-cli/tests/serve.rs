//! `rf-cli serve` as a process: its start, its log and its end.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "functions of tests")]

mod program;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

use program::rf_cli;

/// A server on a free port.
struct Serve {
    child: Child,
    stderr: BufReader<ChildStderr>,
    address: String,
}

impl Serve {
    fn start(folder: &Path, arguments: &[&str]) -> Self {
        let all = [&["serve", "--port", "0", "-t", "1"], arguments].concat();
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
    fn terminate(mut self) -> (Option<i32>, String) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
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
            "POST /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n{body}"
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

#[test]
fn a_key_file_without_keys_does_not_open_the_server() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("keys"), "\n").unwrap();
    let finished = program::finish(folder.path(), &["serve", "--api-key-file", "keys"]);
    assert_eq!(finished.code, Some(2));
    assert!(finished.stderr.contains("has no API key"), "{}", finished.stderr);
}
