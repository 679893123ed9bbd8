//! A small stand-in for the hub, on this machine: the API, redirects to a storage server, ranges.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::json;
use sha2::{Digest, Sha256};

/// The repository that exists.
pub const REPO: &str = "owner/model-GGUF";

/// The contents and the faults of the stand-in.
#[derive(Debug, Default)]
pub struct Behaviour {
    /// Names and contents.
    pub files: Vec<(&'static str, Vec<u8>)>,
    /// The newest commit.
    pub commit: &'static str,
    /// Deny requests without this token.
    pub token: Option<&'static str>,
    /// The API tells the names of files only, as that of some mirrors.
    pub names_only: bool,
    /// The storage server sends other bytes than those of the checksum.
    pub damaged: bool,
    /// The storage server answers ranges with the whole file.
    pub ignores_ranges: bool,
    /// The storage server closes the next connections after so many bytes.
    pub cuts: Vec<usize>,
    /// Connections that are cut stay open and silent for so long instead.
    pub silence: Option<Duration>,
    /// The API answers with this status.
    pub status: Option<u16>,
}

/// A request that came in.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    /// The path with the query.
    pub path: String,
    /// The headers, by their names in lower case.
    pub headers: HashMap<String, String>,
}

impl ReceivedRequest {
    fn read(stream: &TcpStream) -> Option<Self> {
        let mut lines = BufReader::new(stream).lines();
        let path = lines.next()?.ok()?.split(' ').nth(1)?.to_owned();
        let mut headers = HashMap::new();
        for line in lines {
            let line = line.ok()?;
            let Some((name, value)) = line.split_once(": ") else { break };
            headers.insert(name.to_lowercase(), value.to_owned());
        }
        Some(Self { path, headers })
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

#[derive(Debug, Default)]
struct Shared {
    behaviour: Mutex<Behaviour>,
    requests: Mutex<Vec<ReceivedRequest>>,
    stops: AtomicBool,
}

/// The server. It ends when it is dropped.
#[derive(Debug)]
pub struct StandIn {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl StandIn {
    /// Starts it with these files.
    pub fn start(files: &[(&'static str, Vec<u8>)]) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        *shared.behaviour.lock().unwrap() =
            Behaviour { files: files.to_vec(), commit: "c0ffee01", ..Behaviour::default() };
        let served = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if served.stops.load(Ordering::SeqCst) {
                    break;
                }
                // A client that goes away is no failure of the server.
                drop(answer(&served, address, stream.unwrap()));
            }
        });
        Self { address, shared, thread: Some(thread) }
    }

    /// The URL for `HF_ENDPOINT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The behaviour, to change it.
    pub fn behaviour(&self) -> MutexGuard<'_, Behaviour> {
        self.shared.behaviour.lock().unwrap()
    }

    /// Returns the requests since the last call.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        std::mem::take(&mut *self.shared.requests.lock().unwrap())
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.shared.stops.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
        self.thread.take().unwrap().join().unwrap();
    }
}

/// The SHA-256 of bytes in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    let digits = Sha256::digest(bytes).into_iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from_digit(digit.into(), 16).unwrap()).collect()
}

fn answer(shared: &Shared, address: SocketAddr, mut stream: TcpStream) -> std::io::Result<()> {
    let Some(request) = ReceivedRequest::read(&stream) else { return Ok(()) };
    shared.requests.lock().unwrap().push(request.clone());
    let mut behaviour = shared.behaviour.lock().unwrap();
    let path = request.path.split('?').next().unwrap();
    if let Some(digest) = path.strip_prefix("/storage/") {
        return storage(&mut behaviour, &request, digest, &mut stream);
    }
    if let Some(status) = behaviour.status {
        return head(&mut stream, status, &[], 0);
    }
    let given = request.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
    if behaviour.token.is_some() && behaviour.token != given {
        return head(&mut stream, 401, &[], 0);
    }
    if path == format!("/api/models/{REPO}/revision/main") {
        let body = listing(&behaviour).to_string();
        head(&mut stream, 200, &[("content-type", "application/json".into())], body.len())?;
        return stream.write_all(body.as_bytes());
    }
    let name =
        path.strip_prefix(&format!("/{REPO}/resolve/main/")).map(|name| name.replace("%20", " "));
    let file = behaviour.files.iter().find(|(known, _)| Some(*known) == name.as_deref());
    let Some((_, bytes)) = file else { return head(&mut stream, 404, &[], 0) };
    // Another host, as the real storage servers are.
    let location = format!("http://localhost:{}/storage/{}", address.port(), sha256(bytes));
    let headers = [
        ("location", location),
        ("etag", "\"etag-of-the-pointer\"".to_owned()),
        ("x-linked-etag", format!("\"{}\"", sha256(bytes))),
        ("x-linked-size", bytes.len().to_string()),
        ("x-repo-commit", behaviour.commit.to_owned()),
    ];
    head(&mut stream, 302, &headers, 0)
}

fn listing(behaviour: &Behaviour) -> serde_json::Value {
    let sibling = |(name, bytes): &(&str, Vec<u8>)| {
        if behaviour.names_only {
            return json!({ "rfilename": name });
        }
        json!({
            "rfilename": name,
            "blobId": "0123456789abcdef0123456789abcdef01234567",
            "size": bytes.len(),
            "lfs": { "sha256": sha256(bytes), "size": bytes.len(), "pointerSize": 134 },
        })
    };
    let siblings: Vec<_> = behaviour.files.iter().map(sibling).collect();
    json!({ "id": REPO, "sha": behaviour.commit, "siblings": siblings })
}

fn storage(
    behaviour: &mut Behaviour,
    request: &ReceivedRequest,
    digest: &str,
    stream: &mut TcpStream,
) -> std::io::Result<()> {
    let file = behaviour.files.iter().find(|(_, bytes)| sha256(bytes) == digest);
    let mut bytes = file.unwrap().1.clone();
    if behaviour.damaged {
        bytes[0] ^= 1;
    }
    let range = request.header("range").filter(|_| !behaviour.ignores_ranges);
    let range = range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
    let (status, start, end) = match range {
        Some((start, end)) => {
            let end = end.parse().map_or(bytes.len(), |last: usize| last + 1);
            (206, start.parse().unwrap(), end.min(bytes.len()))
        }
        None => (200, 0, bytes.len()),
    };
    if start >= bytes.len() {
        return head(stream, 416, &[], 0);
    }
    let content_range = format!("bytes {start}-{}/{}", end - 1, bytes.len());
    head(stream, status, &[("content-range", content_range)], end - start)?;
    if behaviour.cuts.is_empty() {
        return stream.write_all(&bytes[start..end]);
    }
    let sent = start + behaviour.cuts.remove(0);
    stream.write_all(&bytes[start..sent])?;
    if let Some(silence) = behaviour.silence {
        let stream = stream.try_clone()?;
        std::thread::spawn(move || {
            std::thread::sleep(silence);
            drop(stream);
        });
    }
    Ok(())
}

fn head(
    stream: &mut TcpStream,
    status: u16,
    headers: &[(&str, String)],
    length: usize,
) -> std::io::Result<()> {
    write!(
        stream,
        "HTTP/1.1 {status} Status\r\nconnection: close\r\ncontent-length: {length}\r\n"
    )?;
    for (name, value) in headers {
        write!(stream, "{name}: {value}\r\n")?;
    }
    write!(stream, "\r\n")
}
