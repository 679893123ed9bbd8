//! The task that numbers batches and passes them on.

use std::net::{TcpListener as StdListener, ToSocketAddrs};
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::broadcast;

use super::queue::EventQueue;
use super::replay::ReplayBuffer;
use super::{KvEvents, encoding, sockets};
use crate::error::Error;

/// Batches that a subscriber may be behind. What it misses then, it can ask for.
const SUBSCRIBER_BATCHES: usize = 1024;
/// Events of one batch.
const BATCH_EVENTS: usize = 1024;

/// The bound sockets, before the server runs.
#[derive(Debug)]
pub(crate) struct Publisher {
    options: KvEvents,
    subscribers: StdListener,
    replay: Option<StdListener>,
    queue: Arc<EventQueue>,
}

impl Publisher {
    /// Binds the sockets, for the events of a queue.
    pub(crate) fn bind(options: KvEvents, queue: Arc<EventQueue>) -> Result<Self, Error> {
        let subscribers = bind(&options.endpoint)?;
        let replay = options.replay_endpoint.as_deref().map(bind).transpose()?;
        Ok(Self { options, subscribers, replay, queue })
    }

    /// The addresses of the sockets.
    #[cfg(test)]
    pub(super) fn addresses(&self) -> (std::net::SocketAddr, Option<std::net::SocketAddr>) {
        let address = |socket: &StdListener| socket.local_addr().unwrap();
        (address(&self.subscribers), self.replay.as_ref().map(address))
    }

    /// Publishes events for as long as the server runs.
    pub(crate) async fn run(self) -> std::io::Result<()> {
        let (sender, _) = broadcast::channel(SUBSCRIBER_BATCHES);
        let topic: Arc<[u8]> = self.options.topic.as_bytes().into();
        let buffer = Arc::new(ReplayBuffer::new(self.options.buffer_steps));
        let subscribers = TcpListener::from_std(self.subscribers)?;
        let replay = self.replay.map(TcpListener::from_std).transpose()?;
        let encoded = async {
            loop {
                let events = self.queue.next(BATCH_EVENTS).await;
                let batch = buffer.push(encoding::batch(&events));
                // Without subscribers nobody gets it.
                drop(sender.send(batch));
            }
        };
        tokio::select! {
            () = encoded => {}
            () = sockets::serve_subscribers(&subscribers, &topic, &sender) => {}
            () = sockets::serve_replay(replay.as_ref(), &topic, &buffer) => {}
        }
        Ok(())
    }
}

/// Binds an address such as `tcp://*:5557`.
fn bind(endpoint: &str) -> Result<StdListener, Error> {
    let listen = || {
        let invalid = |reason| std::io::Error::new(std::io::ErrorKind::InvalidInput, reason);
        let address = endpoint.strip_prefix("tcp://");
        let address = address.ok_or_else(|| invalid("expected tcp://HOST:PORT"))?;
        let address = address.replacen('*', "0.0.0.0", 1);
        let addresses: Vec<_> = address.to_socket_addrs()?.collect();
        let listener = StdListener::bind(addresses.as_slice())?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    listen().map_err(|source| Error::Listen { address: endpoint.to_owned(), source })
}
