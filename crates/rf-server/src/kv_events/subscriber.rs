//! A subscriber reads the events of a model, over the sockets and frame by frame.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rocmforge::engine::scheduler::SchedulerOptions;
use rocmforge::engine::{EngineOptions, Model};
use serde_json::{Value, json};

use super::KvEvents;
use super::publisher::Publisher;
use super::queue::{EventQueue, PublishedEvent};
use crate::generator::Generator;
use crate::metrics::Metrics;

/// A peer that speaks ZMTP without any of the code under test.
struct Client(TcpStream);

impl Client {
    fn connect(address: SocketAddr, socket: &str) -> Self {
        let mut stream = TcpStream::connect(("127.0.0.1", address.port())).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut greeting = vec![0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 1];
        greeting.extend(b"NULL");
        greeting.resize(64, 0);
        stream.write_all(&greeting).unwrap();
        let mut theirs = [0; 64];
        stream.read_exact(&mut theirs).unwrap();
        assert_eq!((theirs[0], &theirs[12..16]), (0xff, &b"NULL"[..]));
        let mut client = Self(stream);
        let length = u8::try_from(socket.len()).unwrap();
        let mut ready = b"\x05READY\x0bSocket-Type\0\0\0".to_vec();
        ready.push(length);
        ready.extend(socket.as_bytes());
        client.write(4, &ready);
        assert_eq!(client.frame().0 & 4, 4, "READY");
        client
    }

    fn write(&mut self, flags: u8, body: &[u8]) {
        self.0.write_all(&[flags, u8::try_from(body.len()).unwrap()]).unwrap();
        self.0.write_all(body).unwrap();
    }

    /// The flags and the body of a frame.
    fn frame(&mut self) -> (u8, Vec<u8>) {
        let mut flags = [0; 1];
        self.0.read_exact(&mut flags).unwrap();
        let length = if flags[0] & 2 == 0 {
            let mut length = [0; 1];
            self.0.read_exact(&mut length).unwrap();
            u64::from(length[0])
        } else {
            let mut length = [0; 8];
            self.0.read_exact(&mut length).unwrap();
            u64::from_be_bytes(length)
        };
        let mut body = vec![0; usize::try_from(length).unwrap()];
        self.0.read_exact(&mut body).unwrap();
        (flags[0], body)
    }

    fn message(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        loop {
            let (flags, body) = self.frame();
            frames.push(body);
            if flags & 1 == 0 {
                return frames;
            }
        }
    }
}

/// The number of a batch, and its events.
fn batch(frames: &[Vec<u8>]) -> (u64, Vec<Value>) {
    assert_eq!(frames.len(), 3, "{frames:?}");
    let (topic, number, payload) = (&frames[0], &frames[1], &frames[2]);
    assert_eq!(topic, b"kv@here@m");
    let payload: Value = rmp_serde::from_slice(payload).unwrap();
    assert!(payload[0].as_f64().unwrap() > 1e9);
    assert_eq!(payload[2], 0);
    let number = u64::from_be_bytes(number.as_slice().try_into().unwrap());
    (number, payload[1].as_array().unwrap().clone())
}

/// Publishes on free ports, in a thread.
fn publish(queue: &std::sync::Arc<EventQueue>) -> (SocketAddr, SocketAddr) {
    let options = KvEvents {
        replay_endpoint: Some("tcp://127.0.0.1:0".to_owned()),
        topic: "kv@here@m".to_owned(),
        ..KvEvents::new("tcp://*:0")
    };
    let publisher = Publisher::bind(options, std::sync::Arc::clone(queue)).unwrap();
    let (subscribers, replay) = publisher.addresses();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(publisher.run())
    });
    (subscribers, replay.unwrap())
}

/// The demo model, whose prefix cache is published.
fn model(queue: &std::sync::Arc<EventQueue>) -> Generator {
    let options = EngineOptions::default().with_kv_tokens(Some(2048));
    let model = Model::open(rf_testing::demo_model()).unwrap();
    let engine = rf_testing::engine::load_model(model, 1, options);
    let model = rocmforge::Model::from_engine(engine, None, SchedulerOptions::default()).unwrap();
    let handle = model.handle().unwrap().clone();
    let metrics = std::sync::Arc::new(Metrics::new(2048));
    let generator = Generator::new("m", model, handle, metrics, Vec::new());
    queue.watch(&generator);
    generator
}

/// Computes a prompt and one token.
fn generate(model: &Generator, ids: Vec<u32>) {
    let options = rocmforge::GenerateOptions::default().with_max_tokens(1).with_ignore_eos(true);
    let job = rocmforge::Job::text(ids, options);
    let mut running = model.loaded_model().submit(vec![job]).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        while std::future::poll_fn(|cx| running.poll_update(cx, true)).await.is_some() {}
    });
}

#[test]
fn a_subscriber_reads_the_events_of_two_requests_that_share_a_prefix() {
    let queue = EventQueue::new();
    let (address, replay) = publish(&queue);
    let model = model(&queue);
    let page = model.page_tokens();
    let mut subscriber = Client::connect(address, "SUB");
    subscriber.write(4, b"\x09SUBSCRIBEkv@");
    // Of ZMTP 3.0, and of another topic.
    let mut other = Client::connect(address, "SUB");
    other.write(0, b"\x01other");
    std::thread::sleep(Duration::from_millis(200));

    let shared: Vec<u32> = (10..10 + 2 * page as u32).collect();
    let first = [&shared[..], &vec![1; page], &[5]].concat();
    let second = [&shared[..], &vec![2; page], &[5]].concat();
    generate(&model, first.clone());
    generate(&model, second.clone());
    drop(model);

    let (mut events, mut numbers) = (Vec::new(), Vec::new());
    while events.last().is_none_or(|event: &Value| event["type"] != "AllBlocksCleared") {
        let (number, more) = batch(&subscriber.message());
        numbers.push(number);
        events.extend(more);
    }
    assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>());
    let stored: Vec<_> = events.iter().filter(|event| event["type"] == "BlockStored").collect();
    let ids = |event: &Value| serde_json::from_value::<Vec<u32>>(event["token_ids"].clone());
    let all: Vec<u32> = stored.iter().flat_map(|event| ids(event).unwrap()).collect();
    // The shared pages are stored once.
    assert_eq!(all, [&first[..3 * page], &second[2 * page..3 * page]].concat());
    let blocks: Vec<u64> = stored
        .iter()
        .flat_map(|event| event["block_hashes"].as_array().unwrap())
        .map(|hash| hash.as_u64().unwrap())
        .collect();
    assert_eq!(blocks.len(), 4);
    assert_eq!(stored[0]["parent_block_hash"], Value::Null);
    // The last block of the second request comes after the shared ones.
    assert_eq!(stored.last().unwrap()["parent_block_hash"], blocks[1]);
    for event in &stored {
        assert_eq!(event["block_size"], page);
        assert_eq!(event["medium"], "GPU");
        assert_eq!((&event["lora_id"], &event["lora_name"]), (&Value::Null, &Value::Null));
    }

    // One who missed them gets them again.
    let mut late = Client::connect(replay, "DEALER");
    late.write(1, b"");
    late.write(0, &1_u64.to_be_bytes());
    for &number in &numbers[1..] {
        let frames = late.message();
        assert_eq!((&frames[0][..], batch(&frames[1..]).0), (&b""[..], number));
    }
    assert_eq!(late.message(), [&b""[..], b"", &[0xff; 8], b""]);
    // The other subscriber got nothing.
    other.0.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!(other.0.read_exact(&mut [0]).is_err());
}

#[test]
fn removals_and_clears_are_events() {
    let queue = EventQueue::new();
    let (address, _) = publish(&queue);
    let mut subscriber = Client::connect(address, "SUB");
    subscriber.write(0, b"\x01");
    std::thread::sleep(Duration::from_millis(200));
    queue.push(PublishedEvent::Removed { hash: u64::MAX });
    queue.push(PublishedEvent::Cleared);
    let mut events = Vec::new();
    while events.len() < 2 {
        events.extend(batch(&subscriber.message()).1);
    }
    let removed = json!({ "type": "BlockRemoved", "block_hashes": [u64::MAX], "medium": "GPU" });
    assert_eq!(events, [removed, json!({ "type": "AllBlocksCleared" })]);
}

#[test]
fn peers_that_do_not_speak_the_protocol_are_left() {
    let queue = EventQueue::new();
    let (address, _) = publish(&queue);
    for bytes in [&b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"[..], &[0xff; 64], &[0; 64]] {
        let mut stream = TcpStream::connect(("127.0.0.1", address.port())).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut received = Vec::new();
        // A reset is an end, too.
        drop(stream.read_to_end(&mut received));
        assert!(received.len() <= 64, "{received:?}");
    }
}
