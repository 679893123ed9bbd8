//! The two sockets: PUB for subscribers, and ROUTER for those who missed something.

use std::io::Result;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{self};
use tokio::time::timeout;

use super::replay::{Batch, ReplayBuffer};
use super::zmtp::{Peer, Received};

/// The most connections of a socket.
const MAX_PEERS: usize = 64;
/// The time for a handshake, and for taking a batch.
const PEER_TIMEOUT: Duration = Duration::from_secs(10);
/// The most topics of a subscriber.
const MAX_TOPICS: usize = 64;
/// The number after the last batch that is sent again: −1.
const END: [u8; 8] = [0xff; 8];

/// Sends batches to those who subscribe to the topic.
pub(super) async fn serve_subscribers(
    listener: &TcpListener,
    topic: &Arc<[u8]>,
    batches: &broadcast::Sender<Batch>,
) {
    accept(listener, |stream| {
        let (topic, batches) = (Arc::clone(topic), batches.subscribe());
        async move { publish(stream, &topic, batches).await }
    })
    .await;
}

/// Sends earlier batches again to those who ask. Without a socket nobody does.
pub(super) async fn serve_replay(
    listener: Option<&TcpListener>,
    topic: &Arc<[u8]>,
    buffer: &Arc<ReplayBuffer>,
) {
    let Some(listener) = listener else { return std::future::pending().await };
    accept(listener, |stream| {
        let (topic, buffer) = (Arc::clone(topic), Arc::clone(buffer));
        async move { replay(stream, &topic, &buffer).await }
    })
    .await;
}

/// Serves each connection in a separate task.
async fn accept<F>(listener: &TcpListener, serve: impl Fn(TcpStream) -> F)
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let places = Arc::new(tokio::sync::Semaphore::new(MAX_PEERS));
    // The end of the server ends them.
    let mut peers = tokio::task::JoinSet::new();
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, address)) => {
                while peers.try_join_next().is_some() {}
                let served = serve(stream);
                peers.spawn(async move {
                    let served = served.await;
                    tracing::debug!(%address, ended = ?served, "a subscriber of KV events left");
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a subscriber of KV events was not accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Serves a subscriber until it leaves, or takes nothing.
async fn publish(
    stream: TcpStream,
    topic: &[u8],
    mut batches: broadcast::Receiver<Batch>,
) -> Result<()> {
    let mut peer = timeout(PEER_TIMEOUT, Peer::accept(stream, "PUB", &["SUB", "XSUB"])).await??;
    let mut topics: Vec<Vec<u8>> = Vec::new();
    loop {
        tokio::select! {
            received = peer.receive() => match received? {
                Received::Command(name, data) if name == b"PING" => peer.pong(&data).await?,
                received => subscribe(&mut topics, received),
            },
            batch = batches.recv() => match batch {
                Ok(Batch { number, payload }) => {
                    if topics.iter().any(|prefix| topic.starts_with(prefix)) {
                        let number = number.to_be_bytes();
                        let frames = [topic, &number[..], &payload[..]];
                        timeout(PEER_TIMEOUT, peer.send(&frames)).await??;
                    }
                }
                // The gap in the numbers tells it.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return Ok(()),
            },
        }
    }
}

/// Follows a subscription: a command of ZMTP 3.1, or a message of 3.0 that begins with 1 or 0.
fn subscribe(topics: &mut Vec<Vec<u8>>, received: Received) {
    let (is_new, topic) = match received {
        Received::Command(name, topic) if name == b"SUBSCRIBE" => (true, topic),
        Received::Command(name, topic) if name == b"CANCEL" => (false, topic),
        Received::Message(frames) => match frames.first().and_then(|frame| frame.split_first()) {
            Some((1, topic)) => (true, topic.to_vec()),
            Some((0, topic)) => (false, topic.to_vec()),
            _ => return,
        },
        Received::Command(..) => return,
    };
    if !is_new {
        if let Some(at) = topics.iter().position(|known| *known == topic) {
            topics.swap_remove(at);
        }
    } else if topics.len() < MAX_TOPICS {
        topics.push(topic);
    }
}

/// Serves one who missed batches. A request is an empty frame and the number of the first one.
async fn replay(stream: TcpStream, topic: &[u8], buffer: &ReplayBuffer) -> Result<()> {
    let peers = &["REQ", "DEALER", "ROUTER"];
    let mut peer = timeout(PEER_TIMEOUT, Peer::accept(stream, "ROUTER", peers)).await??;
    loop {
        let frames = match peer.receive().await? {
            Received::Command(name, data) if name == b"PING" => {
                peer.pong(&data).await?;
                continue;
            }
            Received::Command(..) => continue,
            Received::Message(frames) => frames,
        };
        let [delimiter, first] = frames.as_slice() else { continue };
        let (true, Ok(first)) = (delimiter.is_empty(), first.as_slice().try_into()) else {
            continue;
        };
        for Batch { number, payload } in buffer.since(u64::from_be_bytes(first)) {
            let frames = [b"", topic, &number.to_be_bytes()[..], &payload[..]];
            timeout(PEER_TIMEOUT, peer.send(&frames)).await??;
        }
        timeout(PEER_TIMEOUT, peer.send(&[b"", b"", &END, b""])).await??;
    }
}
