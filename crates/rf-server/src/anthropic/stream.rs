//! The events of a streamed message.

use rocmforge::messages::Delta;
use schemars::JsonSchema;
use serde::Serialize;

use super::output::{Block, MessageJson, Signature, Stop, stop_reason};
use crate::error::{Api, ApiError};
use crate::generation::Update;
use crate::stream::{Encoder, Frames};

/// An event of a stream.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum MessageEvent<'a> {
    MessageStart { message: MessageJson<'a> },
    ContentBlockStart { index: usize, content_block: Block },
    ContentBlockDelta { index: usize, delta: BlockDelta },
    ContentBlockStop { index: usize },
    MessageDelta { delta: &'a Stop, usage: OutputUsage },
    MessageStop,
}

/// An addition to a block.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "type")]
pub(crate) enum BlockDelta {
    #[serde(rename = "text_delta")]
    Text { text: String },
    #[serde(rename = "thinking_delta")]
    Thinking { thinking: String },
    #[serde(rename = "signature_delta")]
    Signature { signature: String },
    #[serde(rename = "input_json_delta")]
    InputJson { partial_json: String },
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct OutputUsage {
    output_tokens: usize,
}

impl MessageEvent<'_> {
    /// An event is named by the type of its data.
    fn name(&self) -> &'static str {
        match self {
            Self::MessageStart { .. } => "message_start",
            Self::ContentBlockStart { .. } => "content_block_start",
            Self::ContentBlockDelta { .. } => "content_block_delta",
            Self::ContentBlockStop { .. } => "content_block_stop",
            Self::MessageDelta { .. } => "message_delta",
            Self::MessageStop => "message_stop",
        }
    }

    fn send(&self, out: &mut Frames) {
        out.event(self.name(), self);
    }
}

/// The stream of a message: blocks one after the other, each started and stopped.
pub(super) struct Events {
    id: String,
    model: String,
    /// The block that grows.
    open: Option<Kind>,
    /// Blocks that have been started.
    blocks: usize,
    /// That of the reasoning so far, if the open block is reasoning.
    signature: Signature,
    stop: Stop,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Thinking,
    ToolUse,
}

impl Events {
    pub(super) fn new(id: String, model: String) -> Self {
        let (signature, stop) = (Signature::default(), Stop::default());
        Self { id, model, open: None, blocks: 0, signature, stop }
    }

    /// Starts a block of this kind, unless one is open.
    fn enter(&mut self, kind: Kind, empty: Block, out: &mut Frames) {
        if self.open == Some(kind) && kind != Kind::ToolUse {
            return;
        }
        self.leave(out);
        self.open = Some(kind);
        let index = self.blocks;
        self.blocks += 1;
        MessageEvent::ContentBlockStart { index, content_block: empty }.send(out);
    }

    fn leave(&mut self, out: &mut Frames) {
        let Some(kind) = self.open.take() else { return };
        if kind == Kind::Thinking {
            let signature = std::mem::take(&mut self.signature).finish();
            self.grow(BlockDelta::Signature { signature }, out);
        }
        MessageEvent::ContentBlockStop { index: self.blocks - 1 }.send(out);
    }

    fn grow(&self, delta: BlockDelta, out: &mut Frames) {
        let index = self.blocks.saturating_sub(1);
        MessageEvent::ContentBlockDelta { index, delta }.send(out);
    }

    fn delta(&mut self, delta: Delta, out: &mut Frames) {
        match delta {
            Delta::Content(text) => {
                self.enter(Kind::Text, Block::text(String::new()), out);
                self.grow(BlockDelta::Text { text }, out);
            }
            Delta::Reasoning(thinking) => {
                self.enter(Kind::Thinking, Block::begun_thinking(), out);
                self.signature.update(&thinking);
                self.grow(BlockDelta::Thinking { thinking }, out);
            }
            Delta::CallStart { id, name, .. } => {
                self.enter(Kind::ToolUse, Block::tool_use(id, name), out);
            }
            Delta::CallArguments { fragment, .. } => {
                self.grow(BlockDelta::InputJson { partial_json: fragment }, out);
            }
            Delta::CallEnd { .. } => self.leave(out),
        }
    }
}

impl Encoder for Events {
    fn encode(&mut self, update: Update, out: &mut Frames) {
        match update {
            Update::Started { usage, .. } => {
                let message = MessageJson::begun(&self.id, &self.model, usage);
                MessageEvent::MessageStart { message }.send(out);
            }
            Update::Delta { delta, .. } => self.delta(delta, out),
            Update::Finished { reason, stop_string, calls_tools, .. } => {
                self.leave(out);
                let stop_reason = Some(stop_reason(reason, calls_tools));
                self.stop = Stop { stop_reason, stop_sequence: stop_string };
            }
            Update::Ended { usage } => {
                let usage = OutputUsage { output_tokens: usage.completion_tokens };
                MessageEvent::MessageDelta { delta: &self.stop, usage }.send(out);
                MessageEvent::MessageStop.send(out);
            }
            Update::Failed(error) => {
                out.event("error", &ApiError::from(error).body(Api::Anthropic));
            }
            _ => {}
        }
    }
}
