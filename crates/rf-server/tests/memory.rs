//! The memory of the process: what connections cost, and that it does not grow with requests.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

#[expect(dead_code, reason = "the tests of the APIs use the rest of it")]
mod server;

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::json;
use server::{Setup, TestServer, send};

/// Bytes of the process that are in memory; `None` where the system does not tell.
fn resident_bytes() -> Option<u64> {
    status_bytes("VmRSS:")
}

/// A number of bytes in the status of the process.
fn status_bytes(field: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix(field))?;
    Some(kib.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

/// One test, because all share a process.
#[test]
fn connections_cost_little_and_requests_leave_nothing() {
    let Some(before) = resident_bytes() else {
        rf_testing::skip!("the system does not tell the memory of a process");
        return;
    };
    let server = TestServer::with(Setup { model: rf_testing::tiny_model(), ..Setup::default() });
    println!("the server and its model take {} KiB", (resident_bytes().unwrap() - before) >> 10);

    let warm = resident_bytes().unwrap();
    let idle: Vec<TcpStream> = (0..1000)
        .map_while(|_| {
            // Both ends are in this process, whose open files may be limited.
            let mut stream = TcpStream::connect(server.address).ok()?;
            stream.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").ok()?;
            let mut first = [0; 15];
            stream.read_exact(&mut first).ok()?;
            assert_eq!(&first, b"HTTP/1.1 200 OK");
            Some(stream)
        })
        .collect();
    if idle.len() < 1000 {
        rf_testing::skip!("only {} connections can be open: raise `ulimit -n`", idle.len());
    }
    let cost = resident_bytes().unwrap().saturating_sub(warm);
    println!("{} idle connections take {} KiB", idle.len(), cost >> 10);
    assert!(cost < 64 << 20, "{cost}");
    drop(idle);

    let address = server.address;
    let round = || {
        let threads: Vec<_> = (0..16)
            .map(|index| {
                let body = match index % 4 {
                    // A large body that is refused, and one that is answered.
                    0 => json!({ "prompt": vec![1; 1 << 20] }),
                    1 => json!({ "prompt": [1], "max_tokens": 1, "user": "x".repeat(4 << 20) }),
                    _ => json!({ "prompt": vec![index; 100], "max_tokens": 40, "logprobs": 5 }),
                };
                let body = body.to_string();
                std::thread::spawn(move || {
                    for _ in 0..2 {
                        send(address, "POST", "/v1/completions", &[], &body);
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        server.wait_for("all have ended", |stats| stats.running + stats.waiting == 0);
        resident_bytes().unwrap()
    };
    // Buffers and the cache grow to their size first.
    let level = (0..2).map(|_| round()).max().unwrap();
    let after = (0..3).map(|_| round()).min().unwrap();
    println!("{} KiB after 2 rounds, {} KiB after 5", level >> 10, after >> 10);
    // Allocators keep some of what threads give back; a leak of the large bodies is more.
    assert!(after < level + (64 << 20), "{level} bytes grew to {after}");

    // Bodies of many values wait for one another. Without that, these take 2 GiB.
    if std::fs::write("/proc/self/clear_refs", "5").is_err() {
        rf_testing::skip!("the system does not tell the largest memory of a process");
        return;
    }
    let body = json!({ "prompt": vec![1; 450_000] }).to_string();
    std::thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| {
                let answer = send(address, "POST", "/v1/completions", &[], &body);
                assert_eq!(answer.status, 400, "{}", answer.text);
            });
        }
    });
    let peak = status_bytes("VmHWM:").unwrap().saturating_sub(after);
    println!("32 bodies of 450,000 values take {} KiB", peak >> 10);
    assert!(peak < 768 << 20, "{peak}");
}
