//! The blocks of the prefix cache, for routers that send a prompt to the worker that has its
//! beginning: events in the form of vLLM, on sockets of `ZeroMQ`.
//!
//! The engine's thread puts events into a bounded queue and never waits. A task encodes what is in
//! the queue as one batch, numbers it, keeps it for those who missed it, and passes it to the
//! subscribers. A batch has three frames: the topic, its number, and the events in
//! `MessagePack`.
//!
//! `ZeroMQ` is spoken here and not by a crate: the crate `zeromq` would add 14 packages to the lock
//! file, and two roles of the protocol are needed.

#[cfg(feature = "kv-events")]
mod encoding;
#[cfg(feature = "kv-events")]
mod publisher;
#[cfg(feature = "kv-events")]
mod queue;
#[cfg(feature = "kv-events")]
mod replay;
#[cfg(feature = "kv-events")]
mod sockets;
#[cfg(all(test, feature = "kv-events"))]
mod subscriber;
#[cfg(feature = "kv-events")]
mod zmtp;

#[cfg(feature = "kv-events")]
pub(crate) use publisher::Publisher;
#[cfg(feature = "kv-events")]
pub(crate) use queue::EventQueue;

/// The sockets that publish events of the prefix cache. Addresses have the form of vLLM, such as
/// `tcp://*:5557`.
#[derive(Clone, Debug)]
pub struct KvEvents {
    /// The address of the socket to subscribe to.
    pub endpoint: String,
    /// The address of the socket that sends earlier batches again; `None` for no such socket.
    pub replay_endpoint: Option<String>,
    /// The first frame of every batch.
    pub topic: String,
    /// Batches that are kept to be sent again.
    pub buffer_steps: usize,
}

impl KvEvents {
    /// Publishes at an address, with an empty topic, and keeps 10,000 batches.
    pub fn new(endpoint: impl Into<String>) -> Self {
        let (replay_endpoint, topic) = (None, String::new());
        Self { endpoint: endpoint.into(), replay_endpoint, topic, buffer_steps: 10_000 }
    }
}
