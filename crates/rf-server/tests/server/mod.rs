//! The real server with the demo model, and clients to talk to it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rf_server::{Control, Error, ModelEntry, Server, ServerOptions};
pub(crate) use rf_testing::demo_model as demo;
use rocmforge::engine::sampling::SamplerConfig;
use rocmforge::engine::scheduler::{Handle, SchedulerOptions, SchedulerStats};
use rocmforge::engine::{Engine, EngineOptions, Model, Pooling};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;

/// Loads a model file.
pub(crate) fn load(path: &Path, options: EngineOptions) -> Engine {
    rf_testing::engine::load(path, 1, options)
}

/// Loads a model.
pub(crate) fn engine_of(model: Model, options: EngineOptions) -> Engine {
    rf_testing::engine::load_model(model, 1, options)
}

/// Starts the thread of an engine.
pub(crate) fn serving(engine: Engine, options: SchedulerOptions) -> rocmforge::Model {
    rocmforge::Model::from_engine(engine, None, options).unwrap()
}

/// The settings of a test's server.
pub(crate) struct Setup {
    pub(crate) model: PathBuf,
    pub(crate) engine: EngineOptions,
    pub(crate) scheduler: SchedulerOptions,
    pub(crate) server: ServerOptions,
    /// True if the same model is also served for embeddings.
    pub(crate) embedder: bool,
    /// The chat template instead of the model's.
    pub(crate) template: Option<&'static str>,
}

impl Default for Setup {
    fn default() -> Self {
        let engine = EngineOptions::default().with_kv_tokens(Some(16384));
        let sampling = SamplerConfig::greedy();
        let server = ServerOptions::default().with_sampling(sampling);
        let scheduler = SchedulerOptions::default();
        Self { model: demo(), engine, scheduler, server, embedder: false, template: None }
    }
}

/// A running server. Dropping it stops it.
pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    /// `None` for a server whose models are loaded on demand.
    handle: Option<Handle>,
    pub(crate) control: Control,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

impl TestServer {
    pub(crate) fn start() -> Self {
        Self::with(Setup::default())
    }

    pub(crate) fn with(setup: Setup) -> Self {
        let model = Model::open(&setup.model).unwrap();
        let model = match setup.template {
            Some(source) => model.with_chat_template(source).unwrap(),
            None => model,
        };
        let model = serving(engine_of(model, setup.engine), setup.scheduler);
        let handle = model.handle().cloned();
        let mut models = vec![ModelEntry::loaded("demo", model)];
        if setup.embedder {
            let pooling = Some(Pooling::Mean);
            let options = EngineOptions::default().with_pooling(pooling);
            let engine = load(&setup.model, options);
            models.push(ModelEntry::loaded("embedder", serving(engine, setup.scheduler)));
        }
        let mut server = Self::of(models, setup.server);
        server.handle = handle;
        server
    }

    /// A server of these models.
    pub(crate) fn of(models: Vec<ModelEntry>, options: ServerOptions) -> Self {
        Self::running(Server::bind(("127.0.0.1", 0), models, options).unwrap())
    }

    /// Runs a server.
    pub(crate) fn running(server: Server) -> Self {
        let (address, control) = (server.local_addr().unwrap(), server.control());
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
            let stopped = async { drop(stopped.await) };
            runtime.block_on(server.run(stopped))
        });
        Self { address, handle: None, control, stop: Some(stop), thread: Some(thread) }
    }

    /// Tells the server to stop, as a signal does.
    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
    }

    /// Waits for the end of a stopped server.
    pub(crate) fn join(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap().unwrap();
        }
    }

    /// Waits for a server that ends by itself.
    pub(crate) fn ended(mut self) -> Result<(), Error> {
        self.thread.take().unwrap().join().unwrap()
    }

    /// The handle of the model.
    pub(crate) fn handle(&self) -> Handle {
        self.handle.clone().unwrap()
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        self.send("GET", path, &[], "")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Response {
        self.send("POST", path, &[], &body.to_string())
    }

    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Response {
        send(self.address, method, path, headers, body)
    }

    /// A socket on which a request has been sent, but nothing read.
    pub(crate) fn open(&self, path: &str, body: &Value) -> TcpStream {
        self.open_with(path, "", body)
    }

    /// [`open`](Self::open) with further headers, each with its end of line.
    pub(crate) fn open_with(&self, path: &str, headers: &str, body: &Value) -> TcpStream {
        let body = body.to_string();
        let mut stream = TcpStream::connect(self.address).unwrap();
        let length = body.len();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        stream
    }

    pub(crate) fn stats(&self) -> SchedulerStats {
        self.handle.as_ref().unwrap().stats()
    }

    /// Waits for a state of the scheduler, which follows within a step.
    pub(crate) fn wait_for(&self, what: &str, is_so: impl Fn(&SchedulerStats) -> bool) {
        let started = Instant::now();
        while !is_so(&self.stats()) {
            assert!(started.elapsed() < Duration::from_mins(1), "{what}: {:?}", self.stats());
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: hyper::HeaderMap,
    pub(crate) text: String,
}

impl Response {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    /// The JSON of a response without an error.
    pub(crate) fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text);
        self.json()
    }

    /// The JSON objects of a stream, and whether it ended with `[DONE]`.
    pub(crate) fn events(&self) -> (Vec<Value>, bool) {
        assert_eq!(self.status, 200, "{}", self.text);
        let data = self.text.lines().filter_map(|line| line.strip_prefix("data: "));
        let (done, objects): (Vec<_>, Vec<_>) = data.partition(|data| *data == "[DONE]");
        (
            objects.into_iter().map(|data| serde_json::from_str(data).unwrap()).collect(),
            !done.is_empty(),
        )
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// Sends a request and reads the whole response.
pub(crate) fn send(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Response {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let host = address.to_string();
        let mut request = hyper::Request::builder().method(method).uri(path).header("host", host);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        exchange(stream, request.body(body.to_owned()).unwrap()).await
    })
}

/// Sends a request over a connection and reads the whole response.
pub(crate) async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: hyper::Request<String>,
) -> Response {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = request.map(|body| Full::new(Bytes::from(body)));
    let response = sender.send_request(request).await.unwrap();
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let text = String::from_utf8(body.to_vec()).unwrap();
    Response { status: head.status.as_u16(), headers: head.headers, text }
}

/// Reads the rest of a socket, until the server closes it.
pub(crate) fn rest(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    // A reset is an end, too.
    drop(stream.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}
