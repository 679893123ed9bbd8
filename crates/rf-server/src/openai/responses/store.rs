//! The latest responses, to which requests refer instead of sending a whole conversation.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use rocmforge::messages::Message;
use sha2::{Digest, Sha256};

use crate::attachments::{Attachment, IllustratedMessages};

/// The most responses. The oldest one is dropped for a new one.
const MAX_RESPONSES: usize = 512;
/// The most bytes of all responses with their conversations.
const MAX_BYTES: usize = 64 << 20;
/// Bytes of a message besides its text.
const MESSAGE_BYTES: usize = size_of::<Message>();

/// The latest responses.
#[derive(Debug, Default)]
pub(crate) struct ResponseStore(Mutex<Stored>);

#[derive(Debug, Default)]
struct Stored {
    /// The oldest one first.
    responses: VecDeque<Arc<StoredResponse>>,
    bytes: usize,
}

/// The client of a response: others cannot read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner([u8; 32]);

/// A response with the conversation that it ends.
#[derive(Debug)]
pub(super) struct StoredResponse {
    pub(super) id: String,
    pub(super) owner: Owner,
    /// The messages of the request, without its instructions, and the answer.
    pub(super) conversation: IllustratedMessages,
    pub(super) items: Vec<StoredItem>,
    pub(super) json: String,
}

/// An item of an answer.
#[derive(Clone, Debug)]
pub(super) struct StoredItem {
    pub(super) id: String,
    /// The message of the item; `None` for one that is no part of a later prompt.
    pub(super) message: Option<Message>,
}

impl Owner {
    /// The client that sends a key, or anyone without one.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let mut hash = Sha256::new();
        for header in [AUTHORIZATION.as_str(), "x-api-key"] {
            let value = headers.get(header).map_or(&[][..], |value| value.as_bytes());
            hash.update(value.len().to_le_bytes());
            hash.update(value);
        }
        Self(hash.finalize().into())
    }
}

impl StoredResponse {
    fn bytes(&self) -> usize {
        let message = |message: &Message| {
            let calls = message.tool_calls.iter().map(|call| call.arguments.to_string().len());
            // Parts repeat the content.
            MESSAGE_BYTES + message.content.len() * 2 + calls.sum::<usize>()
        };
        let IllustratedMessages { messages, attachments } = &self.conversation;
        let messages: usize = messages.iter().map(message).sum();
        let attachments: usize = attachments.iter().map(Attachment::bytes).sum();
        // The items are in the JSON, too.
        messages + attachments + self.json.len() * 2
    }
}

impl ResponseStore {
    /// Keeps a response, and drops the oldest ones that it leaves no room for.
    pub(super) fn insert(&self, response: StoredResponse) {
        self.insert_within(response, MAX_RESPONSES, MAX_BYTES);
    }

    fn insert_within(&self, response: StoredResponse, most: usize, most_bytes: usize) {
        let mut stored = self.lock();
        stored.bytes += response.bytes();
        stored.responses.push_back(Arc::new(response));
        while stored.responses.len() > most || stored.bytes > most_bytes {
            let Some(oldest) = stored.responses.pop_front() else { break };
            stored.bytes -= oldest.bytes();
        }
    }

    /// A response of this client.
    pub(super) fn response(&self, owner: Owner, id: &str) -> Option<Arc<StoredResponse>> {
        let stored = self.lock();
        let is_it = |response: &&Arc<StoredResponse>| response.owner == owner && response.id == id;
        stored.responses.iter().rev().find(is_it).cloned()
    }

    /// An item of an answer to this client.
    pub(super) fn item(&self, owner: Owner, id: &str) -> Option<StoredItem> {
        let stored = self.lock();
        let own = stored.responses.iter().rev().filter(|response| response.owner == owner);
        own.flat_map(|response| &response.items).find(|item| item.id == id).cloned()
    }

    /// Drops a response of this client. Returns true if there was one.
    pub(super) fn remove(&self, owner: Owner, id: &str) -> bool {
        let mut stored = self.lock();
        let is_it = |response: &Arc<StoredResponse>| response.owner == owner && response.id == id;
        let Some(index) = stored.responses.iter().position(is_it) else { return false };
        let removed = stored.responses.remove(index);
        stored.bytes -= removed.map_or(0, |removed| removed.bytes());
        true
    }

    fn lock(&self) -> MutexGuard<'_, Stored> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(key: &str) -> Owner {
        Owner::of(&HeaderMap::from_iter([(AUTHORIZATION, key.parse().unwrap())]))
    }

    fn response(id: &str, key: &str, text: &str) -> StoredResponse {
        StoredResponse {
            id: id.to_owned(),
            owner: owner(key),
            conversation: IllustratedMessages {
                messages: vec![Message::new("user", text)],
                attachments: Vec::new(),
            },
            items: vec![StoredItem { id: format!("msg_{id}"), message: None }],
            json: text.to_owned(),
        }
    }

    #[test]
    fn only_its_client_reads_a_response() {
        let store = ResponseStore::default();
        store.insert(response("a", "one", "x"));
        assert!(store.response(owner("one"), "a").is_some());
        assert!(store.item(owner("one"), "msg_a").is_some());
        for key in ["two", ""] {
            assert!(store.response(owner(key), "a").is_none());
            assert!(store.item(owner(key), "msg_a").is_none());
            assert!(!store.remove(owner(key), "a"));
        }
        assert!(store.remove(owner("one"), "a"));
        assert!(store.response(owner("one"), "a").is_none());
        assert_eq!(store.lock().bytes, 0);
    }

    #[test]
    fn the_oldest_responses_make_room() {
        let store = ResponseStore::default();
        for id in ["a", "b", "c"] {
            store.insert_within(response(id, "k", "x"), 2, usize::MAX);
        }
        assert!(store.response(owner("k"), "a").is_none());
        assert!(store.response(owner("k"), "b").is_some());
        let bytes = store.lock().bytes;
        store.insert_within(response("d", "k", &"x".repeat(bytes)), 9, bytes * 4);
        assert!(store.lock().bytes <= bytes * 4);
        assert!(store.response(owner("k"), "d").is_none(), "one that is too large is not kept");
        assert_eq!(store.lock().bytes, 0);
    }
}
