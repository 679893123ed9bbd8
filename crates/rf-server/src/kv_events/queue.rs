//! The bounded queue between the thread of an engine and the publisher.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rocmforge::engine::{CacheEvent, CacheObserver};
use tokio::sync::Notify;

use crate::generator::Generator;

/// The most events that wait to be published. Each has the tokens of one page.
const MAX_EVENTS: usize = 16_384;

/// An event as it is published.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PublishedEvent {
    Stored {
        hash: u64,
        parent: Option<u64>,
        tokens: Box<[u32]>,
        /// The adapters of the sequence, if it has any.
        adapter: Option<Arc<AdapterLabel>>,
    },
    Removed {
        hash: u64,
    },
    /// The cache has none of its blocks any more, or events were lost.
    Cleared,
}

/// The label of blocks whose sequences use an adapter.
#[derive(Debug, PartialEq)]
pub(crate) struct AdapterLabel {
    pub(super) id: u32,
    /// The name of the adapter, if a client has loaded it and it is on alone.
    pub(super) name: Option<String>,
}

/// Events that wait to be published.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    inner: Mutex<Inner>,
    filled: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    events: VecDeque<PublishedEvent>,
    dropped: u64,
}

impl EventQueue {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Events that were dropped so far, because nobody published them in time.
    pub(crate) fn dropped(&self) -> u64 {
        self.lock().dropped
    }

    /// Adds an event. If the queue is full, all of it is replaced by [`PublishedEvent::Cleared`]: a
    /// router must not believe that blocks are there which have been removed.
    pub(super) fn push(&self, event: PublishedEvent) {
        let mut inner = self.lock();
        if inner.events.len() == MAX_EVENTS {
            inner.dropped += MAX_EVENTS as u64;
            inner.events.clear();
            inner.events.push_back(PublishedEvent::Cleared);
        }
        inner.events.push_back(event);
        drop(inner);
        self.filled.notify_one();
    }

    /// Waits for events and takes at most `most` of them.
    pub(super) async fn next(&self, most: usize) -> Vec<PublishedEvent> {
        loop {
            {
                let mut inner = self.lock();
                let count = inner.events.len().min(most);
                if count > 0 {
                    return inner.events.drain(..count).collect();
                }
            }
            self.filled.notified().await;
        }
    }

    /// Publishes the events of a loaded model, until it is unloaded.
    pub(crate) fn watch(self: &Arc<Self>, model: &Generator) {
        let labels: Vec<_> =
            model.named_scales().into_iter().map(|(name, key)| label(&key, Some(name))).collect();
        let watch = Watch(Arc::clone(self));
        let observer = CacheObserver::new(move |event| watch.observe(event, &labels));
        let observe = |engine: &mut rocmforge::engine::Engine| {
            engine.observe_prefix_cache(Some(observer));
        };
        if let Err(error) = model.handle().call(observe) {
            tracing::warn!(%error, "the prefix cache of a model is not published");
        }
    }
}

/// A label with the key of the prefix cache that it stands for.
type Label = (Vec<u32>, Arc<AdapterLabel>);

fn label(key: &[u32], name: Option<String>) -> Label {
    // A hash of FNV: the same in every process, and never 0, which means none in some clients.
    let hash = key
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    (key.to_vec(), Arc::new(AdapterLabel { id: (hash >> 1).max(1), name }))
}

/// The events of one loaded model. Its end clears all blocks.
struct Watch(Arc<EventQueue>);

impl Watch {
    fn observe(&self, event: CacheEvent, labels: &[Label]) {
        match event {
            CacheEvent::Stored { hash, parent, tokens, key } => {
                let known = labels.iter().find(|(known, _)| **known == *key);
                let adapter = match known {
                    Some((_, label)) => Some(Arc::clone(label)),
                    None => (!key.is_empty()).then(|| label(&key, None).1),
                };
                self.0.push(PublishedEvent::Stored { hash, parent, tokens, adapter });
            }
            CacheEvent::Removed { hash } => self.0.push(PublishedEvent::Removed { hash }),
            _ => {}
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.push(PublishedEvent::Cleared);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_full_queue_becomes_the_news_that_all_is_unknown() {
        let queue = EventQueue::new();
        for hash in 0..=MAX_EVENTS as u64 {
            queue.push(PublishedEvent::Removed { hash });
        }
        let last = PublishedEvent::Removed { hash: MAX_EVENTS as u64 };
        assert_eq!(queue.next(9).await, [PublishedEvent::Cleared, last]);
        assert_eq!(queue.dropped(), MAX_EVENTS as u64);
    }

    #[test]
    fn labels_differ_by_their_key() {
        let id = |key: &[u32]| label(key, None).1.id;
        assert_ne!(id(&[1]), id(&[2]));
        assert_eq!(id(&[1, 2]), id(&[1, 2]));
    }
}
