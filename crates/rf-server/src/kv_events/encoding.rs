//! Batches of events in `MessagePack`: an array of the time, the events, and the rank 0. Events are
//! maps with their type, as in vLLM.

use std::time::{SystemTime, UNIX_EPOCH};

use super::queue::PublishedEvent;

/// Encodes a batch of now.
pub(super) fn batch(events: &[PublishedEvent]) -> Vec<u8> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let chains: Vec<_> = events.chunk_by(continues).collect();
    let mut out = Pack(Vec::new());
    out.array(3);
    out.float(now.as_secs_f64());
    out.array(chains.len());
    for chain in chains {
        out.events(chain);
    }
    out.int(0);
    out.0
}

/// Returns true if `next` stores the block after that of `event`: one event has both.
fn continues(event: &PublishedEvent, next: &PublishedEvent) -> bool {
    match (event, next) {
        (
            PublishedEvent::Stored { hash, tokens, adapter, .. },
            PublishedEvent::Stored { parent, tokens: next_tokens, adapter: next_adapter, .. },
        ) => *parent == Some(*hash) && adapter == next_adapter && tokens.len() == next_tokens.len(),
        _ => false,
    }
}

/// Bytes of `MessagePack`.
struct Pack(Vec<u8>);

impl Pack {
    /// A removal, or a chain of blocks that are stored.
    fn events(&mut self, chain: &[PublishedEvent]) {
        match chain {
            [PublishedEvent::Stored { parent, tokens: first, adapter, .. }, ..] => {
                self.map(8);
                self.field("type", |out| out.text("BlockStored"));
                self.field("block_hashes", |out| {
                    out.array(chain.len());
                    for event in chain {
                        if let PublishedEvent::Stored { hash, .. } = event {
                            out.int(*hash);
                        }
                    }
                });
                self.field("parent_block_hash", |out| out.optional(*parent, Self::int));
                self.field("token_ids", |out| {
                    out.array(chain.len() * first.len());
                    for event in chain {
                        if let PublishedEvent::Stored { tokens, .. } = event {
                            tokens.iter().for_each(|&token| out.int(token.into()));
                        }
                    }
                });
                self.field("block_size", |out| out.int(first.len() as u64));
                let id = adapter.as_ref().map(|adapter| adapter.id.into());
                self.field("lora_id", |out| out.optional(id, Self::int));
                self.field("medium", |out| out.text("GPU"));
                let name = adapter.as_ref().and_then(|adapter| adapter.name.as_deref());
                self.field("lora_name", |out| out.optional(name, Self::text));
            }
            [PublishedEvent::Removed { hash }, ..] => {
                self.map(3);
                self.field("type", |out| out.text("BlockRemoved"));
                self.field("block_hashes", |out| {
                    out.array(1);
                    out.int(*hash);
                });
                self.field("medium", |out| out.text("GPU"));
            }
            [PublishedEvent::Cleared, ..] => {
                self.map(1);
                self.field("type", |out| out.text("AllBlocksCleared"));
            }
            [] => {}
        }
    }

    fn field(&mut self, name: &str, value: impl FnOnce(&mut Self)) {
        self.text(name);
        value(self);
    }

    fn optional<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        match value {
            Some(value) => write(self, value),
            None => self.0.push(0xc0),
        }
    }

    fn int(&mut self, value: u64) {
        match value {
            0..0x80 => self.0.push(value as u8),
            0x80..0x100 => self.0.extend([0xcc, value as u8]),
            0x100..0x1_0000 => self.tagged(0xcd, &(value as u16).to_be_bytes()),
            0x1_0000..0x1_0000_0000 => self.tagged(0xce, &(value as u32).to_be_bytes()),
            _ => self.tagged(0xcf, &value.to_be_bytes()),
        }
    }

    fn float(&mut self, value: f64) {
        self.tagged(0xcb, &value.to_be_bytes());
    }

    /// A text of at most 255 bytes: names of fields, types and adapters.
    fn text(&mut self, text: &str) {
        let end = text.floor_char_boundary(255);
        self.0.extend([0xd9, end as u8]);
        self.0.extend(&text.as_bytes()[..end]);
    }

    fn array(&mut self, len: usize) {
        self.tagged(0xdd, &(len as u32).to_be_bytes());
    }

    /// A map of at most 15 fields.
    fn map(&mut self, len: u8) {
        self.0.push(0x80 | len);
    }

    fn tagged(&mut self, tag: u8, bytes: &[u8]) {
        self.0.push(tag);
        self.0.extend(bytes);
    }
}
