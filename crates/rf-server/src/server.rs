//! Sockets: accepting connections, their limits, and the orderly end.

use std::future::Future;
use std::net::{IpAddr, SocketAddr, TcpListener as StdListener, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio_rustls::server::TlsStream;

use crate::access::PeerAddress;
use crate::entry::ModelEntry;
use crate::error::Error;
use crate::keys::ApiKeys;
#[cfg(feature = "kv-events")]
use crate::kv_events::Publisher;
use crate::options::ServerOptions;
use crate::os::{self, Signal};
use crate::reload::Reloader;
use crate::router::router;
use crate::state::App;
use crate::tls::Tls;
use crate::watchdog;

/// A server that listens, but does not answer yet.
#[derive(Debug)]
pub struct Server {
    listener: StdListener,
    app: Arc<App>,
    router: Router,
    reload: Option<Reload>,
    #[cfg(feature = "kv-events")]
    publisher: Option<Publisher>,
}

/// Changes what a running server has from files.
#[derive(Clone, Debug)]
pub struct Control(Arc<App>);

impl Control {
    /// Replaces the keys. Running requests go on.
    pub fn set_keys(&self, keys: ApiKeys) {
        self.0.set_keys(keys);
    }

    /// Replaces the certificate for new connections, if the server has one.
    pub fn set_tls(&self, tls: Tls) {
        self.0.set_tls(tls);
    }
}

/// The effect of SIGHUP.
struct Reload(Box<dyn Fn(&Control) + Send + Sync>);

impl std::fmt::Debug for Reload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reload")
    }
}

/// The routes of a server, to mount them in an application of [`axum`] that has its own sockets.
///
/// The application decides who reaches them: the check of `Host` and `Origin`, which protects a
/// [`Server`] on a loopback address from foreign web pages, needs the address of the socket and is
/// left out. Keys are checked as in a [`Server`].
///
/// ```no_run
/// use axum::{Router, routing::get};
/// use rf_server::{ModelEntry, ServerOptions};
/// use rocmforge::Model;
///
/// # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
/// let models = [ModelEntry::loaded("demo", Model::load("model.gguf")?)];
/// let app = Router::new()
///     .route("/hello", get(async || "hello"))
///     .fallback_service(rf_server::routes(models, ServerOptions::default())?);
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
/// axum::serve(listener, app).await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// If an option is invalid.
pub fn routes(
    models: impl IntoIterator<Item = ModelEntry>,
    options: ServerOptions,
) -> Result<Router, Error> {
    router(&Arc::new(App::new(models, options)?))
}

impl Server {
    /// Listens on `address`. The models are served by their names; requests that name none get the
    /// first one of the kind that they need.
    ///
    /// # Errors
    ///
    /// If the address cannot be used, or an option is invalid.
    pub fn bind(
        address: (&str, u16),
        models: impl IntoIterator<Item = ModelEntry>,
        options: ServerOptions,
    ) -> Result<Self, Error> {
        let app = Arc::new(App::new(models, options)?);
        let router = router(&app)?;
        let listen = || {
            // Names may have several addresses, of which some are not of this machine.
            let addresses: Vec<_> = address.to_socket_addrs()?.collect();
            let listener = StdListener::bind(addresses.as_slice())?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let listener = listen().map_err(|source| {
            let (host, port) = address;
            Error::Listen { address: format!("{host}:{port}"), source }
        })?;
        if listener.local_addr()?.ip().is_loopback() {
            app.set_local();
        }
        #[cfg(feature = "kv-events")]
        let publisher = match (&app.options().kv_events, app.kv_events()) {
            (Some(options), Some(queue)) => {
                Some(Publisher::bind(options.clone(), Arc::clone(queue))?)
            }
            _ => None,
        };
        Ok(Self {
            listener,
            app,
            router,
            reload: None,
            #[cfg(feature = "kv-events")]
            publisher,
        })
    }

    /// Calls `reload` at each SIGHUP, which stops the server otherwise. Windows has no such signal.
    #[must_use]
    pub fn on_hangup(mut self, reload: impl Fn(&Control) + Send + Sync + 'static) -> Self {
        self.reload = Some(Reload(Box::new(reload)));
        self
    }

    /// The door to what changes while the server runs.
    pub fn control(&self) -> Control {
        Control(Arc::clone(&self.app))
    }

    /// The address, with the port that the system chose if 0 was given.
    ///
    /// # Errors
    ///
    /// If the system does not tell it.
    pub fn local_addr(&self) -> Result<SocketAddr, Error> {
        Ok(self.listener.local_addr()?)
    }

    /// A handle that renews the settings of the models while the server runs.
    pub fn reloader(&self) -> Reloader {
        Reloader::new(Arc::clone(&self.app))
    }

    /// Returns true if everyone in the network can use the server.
    pub fn is_open(&self) -> bool {
        let is_local = self.local_addr().is_ok_and(|address| address.ip().is_loopback());
        !is_local && self.app.keys().is_empty()
    }

    /// Answers requests until SIGTERM or Ctrl-C, and then those that are running. A second signal
    /// ends them at once. SIGHUP is such a signal, unless something is read again
    /// ([`on_hangup`](Self::on_hangup)). On Windows the signals are Ctrl-C, Ctrl-Break, the end of
    /// the session and that of the console.
    ///
    /// # Errors
    ///
    /// If the system refuses threads or signals, or a device does not answer any more.
    pub fn run_until_signal(mut self) -> Result<(), Error> {
        os::raise_file_limit();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(std::thread::available_parallelism()?.get().min(MAX_THREADS))
            .thread_name("rf-server")
            .enable_all()
            .build()?;
        let served = runtime.block_on(async {
            let control = self.control();
            let mut signals = Signals::new(self.reload.take().map(|reload| (reload, control)))?;
            let (stop, stopped) = oneshot::channel::<()>();
            let mut run = std::pin::pin!(self.run(async { drop(stopped.await) }));
            tokio::select! {
                ended = &mut run => return ended,
                () = signals.next() => drop(stop),
            }
            tokio::select! {
                ended = &mut run => ended,
                () = signals.next() => {
                    tracing::warn!("requests are cut off: a second signal came");
                    Ok(())
                }
            }
        });
        // A prompt may be tokenized right now. Nobody waits for it any more.
        runtime.shutdown_background();
        served
    }

    /// Answers requests until `stop` completes, and then those that are running, for at most
    /// [`ServerOptions::drain_timeout`]. Call it on a runtime of tokio with I/O and time enabled.
    ///
    /// # Errors
    ///
    /// If the socket cannot be used, or a device does not answer any more
    /// ([`Error::Hung`]) or is lost ([`Error::DeviceLost`]). After these, end the process.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), Error> {
        // Its end ends them.
        let mut tasks = tokio::task::JoinSet::<std::io::Result<()>>::new();
        #[cfg(feature = "kv-events")]
        if let Some(publisher) = self.publisher {
            tasks.spawn(publisher.run());
        }
        if self.app.tracer().is_some() {
            let app = Arc::clone(&self.app);
            tasks.spawn(async move {
                if let Some(tracer) = app.tracer() {
                    tracer.run().await;
                }
                Ok(())
            });
        }
        let listener = TcpListener::from_std(self.listener)?;
        let (draining, drain) = watch::channel(false);
        let mut stop = std::pin::pin!(stop);
        let mut failed = std::pin::pin!(watchdog::watch(&self.app));
        loop {
            let accepted = tokio::select! {
                () = &mut stop => break,
                error = &mut failed => {
                    // Dropping a model would wait for its step, which never ends.
                    std::mem::forget(Arc::clone(&self.app));
                    return Err(error);
                }
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => {
                    let (router, drain) = (self.router.clone(), drain.clone());
                    tokio::spawn(serve_peer(stream, peer.ip(), self.app.tls(), router, drain));
                }
                Err(error) => {
                    // Most likely there are too many open files: wait for one to be closed.
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        drop(listener);
        drop(drain);
        self.app.drain();
        draining.send_replace(true);
        let timeout = self.app.options().drain_timeout;
        tracing::info!(connections = draining.receiver_count(), ?timeout, "shutting down");
        if tokio::time::timeout(timeout, draining.closed()).await.is_err() {
            let connections = draining.receiver_count();
            tracing::warn!(connections, "requests are cut off: the time for their end is over");
            // Their streams end with an error, as far as the clients read it.
            self.app.cut_off();
            drop(tokio::time::timeout(CUT_OFF_TIMEOUT, draining.closed()).await);
        }
        if let Some(tracer) = self.app.tracer() {
            drop(tokio::time::timeout(CUT_OFF_TIMEOUT, tracer.flush()).await);
        }
        Ok(())
    }
}

/// Threads that serve sockets; the engine needs the others.
const MAX_THREADS: usize = 4;
/// The time for the header of a request. Connections without a request are closed after it, too.
const HEADER_TIMEOUT: Duration = Duration::from_secs(75);
const MAX_HEADER_BYTES: usize = 64 << 10;
/// The part of an answer that the system buffers for a slow client; its default is several MiB.
const SEND_BUFFER_BYTES: usize = 256 << 10;
/// A client that takes nothing of an answer for so long is gone.
#[cfg(target_os = "linux")]
const WRITE_TIMEOUT: Duration = Duration::from_mins(2);

/// Serves a connection, over TLS if the server has a certificate.
async fn serve_peer(
    stream: TcpStream,
    peer: IpAddr,
    tls: Option<Tls>,
    router: Router,
    mut drain: watch::Receiver<bool>,
) {
    if let Err(error) = configure(&stream) {
        tracing::debug!(%error, "a socket option was refused");
    }
    let peer = PeerAddress(peer.to_canonical());
    let Some(tls) = tls else { return serve_connection(stream, peer, router, drain).await };
    let shaken = tokio::select! {
        shaken = handshake(&tls, stream) => shaken,
        _ = drain.wait_for(|draining| *draining) => return,
    };
    match shaken {
        Ok(stream) => serve_connection(stream, peer, router, drain).await,
        Err(error) => tracing::debug!(%error, "a TLS handshake failed"),
    }
}

/// The time for a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The time for telling clients that their requests are cut off.
const CUT_OFF_TIMEOUT: Duration = Duration::from_secs(1);

async fn handshake(tls: &Tls, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
    tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.acceptor().accept(stream)).await?
}

async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: PeerAddress,
    router: Router,
    mut drain: watch::Receiver<bool>,
) {
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        router.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let draining = async {
        // Fails only without a server, which is as good a reason to end.
        drop(drain.wait_for(|draining| *draining).await);
    };
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = draining => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "a connection ended");
    }
}

fn configure(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(WRITE_TIMEOUT))?;
    Ok(())
}

/// The signals that stop the server, and the one that makes it read files again.
struct Signals {
    signals: os::Signals,
    reload: Option<(Reload, Control)>,
}

impl Signals {
    fn new(reload: Option<(Reload, Control)>) -> Result<Self, Error> {
        Ok(Self { signals: os::Signals::new()?, reload })
    }

    /// Waits for a signal that stops the server.
    async fn next(&mut self) {
        loop {
            match (self.signals.next().await, &self.reload) {
                // It reads small files.
                (Signal::Hangup, Some((Reload(reload), control))) => {
                    tokio::task::block_in_place(|| reload(control));
                }
                (Signal::Hangup | Signal::Stop, _) => return,
            }
        }
    }
}
