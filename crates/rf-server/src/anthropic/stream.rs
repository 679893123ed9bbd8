//! The events of a streamed message.

use rocmforge::messages::Delta;
use serde_json::{Value, json};

use super::output::{message, stop_reason};
use crate::error::{Api, ApiError};
use crate::generation::Update;
use crate::stream::{Encoder, Frames};

/// The stream of a message: blocks one after the other, each started and stopped.
pub(super) struct Events {
    id: String,
    model: String,
    /// The block that grows.
    open: Option<Kind>,
    /// Blocks that have been started.
    blocks: usize,
    reason: Option<&'static str>,
    stop_string: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Thinking,
    ToolUse,
}

impl Events {
    pub(super) fn new(id: String, model: String) -> Self {
        Self { id, model, open: None, blocks: 0, reason: None, stop_string: None }
    }

    /// Starts a block of this kind, unless one is open.
    fn enter(&mut self, kind: Kind, empty: &Value, out: &mut Frames) {
        if self.open == Some(kind) && kind != Kind::ToolUse {
            return;
        }
        self.leave(out);
        self.open = Some(kind);
        let index = self.blocks;
        self.blocks += 1;
        event(
            out,
            &json!({ "type": "content_block_start", "index": index, "content_block": empty }),
        );
    }

    fn leave(&mut self, out: &mut Frames) {
        if self.open.take().is_some() {
            event(out, &json!({ "type": "content_block_stop", "index": self.blocks - 1 }));
        }
    }

    fn grow(&self, delta: &Value, out: &mut Frames) {
        let index = self.blocks.saturating_sub(1);
        event(out, &json!({ "type": "content_block_delta", "index": index, "delta": delta }));
    }

    fn delta(&mut self, delta: Delta, out: &mut Frames) {
        match delta {
            Delta::Content(text) => {
                self.enter(Kind::Text, &json!({ "type": "text", "text": "" }), out);
                self.grow(&json!({ "type": "text_delta", "text": text }), out);
            }
            Delta::Reasoning(text) => {
                let empty = json!({ "type": "thinking", "thinking": "", "signature": "" });
                self.enter(Kind::Thinking, &empty, out);
                self.grow(&json!({ "type": "thinking_delta", "thinking": text }), out);
            }
            Delta::CallStart { id, name, .. } => {
                let empty = json!({ "type": "tool_use", "id": id, "name": name, "input": {} });
                self.enter(Kind::ToolUse, &empty, out);
            }
            Delta::CallArguments { fragment, .. } => {
                self.grow(&json!({ "type": "input_json_delta", "partial_json": fragment }), out);
            }
            Delta::CallEnd { .. } => self.leave(out),
        }
    }
}

/// An event is named by the type of its data.
fn event(out: &mut Frames, data: &Value) {
    let name = data["type"].as_str().unwrap_or_default();
    out.event(name, data);
}

impl Encoder for Events {
    fn encode(&mut self, update: Update, out: &mut Frames) {
        match update {
            Update::Started { usage, .. } => {
                let message = message(&self.id, &self.model, usage);
                event(out, &json!({ "type": "message_start", "message": message }));
            }
            Update::Delta { delta, .. } => self.delta(delta, out),
            Update::Finished { reason, stop_string, calls_tools, .. } => {
                self.leave(out);
                self.stop_string = stop_string;
                self.reason = Some(stop_reason(reason, calls_tools));
            }
            Update::Ended { usage } => {
                event(
                    out,
                    &json!({
                        "type": "message_delta",
                        "delta": { "stop_reason": self.reason, "stop_sequence": self.stop_string },
                        "usage": { "output_tokens": usage.completion_tokens },
                    }),
                );
                event(out, &json!({ "type": "message_stop" }));
            }
            Update::Failed(error) => event(out, &ApiError::from(error).body(Api::Anthropic)),
            _ => {}
        }
    }
}
