//! Parts of answers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rocmforge::engine::StopReason;
use rocmforge::messages::{Answer, AnswerCall};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::api::{arguments_object, is_cut_off, no_arguments};
use crate::generation::Usage;

/// A message, or the beginning of one that is streamed.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Message")]
pub(crate) struct MessageJson<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    role: &'static str,
    model: &'a str,
    content: Vec<Block>,
    #[serde(flatten)]
    stop: Stop,
    usage: MessageUsage,
}

/// Why a message ended.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct Stop {
    pub(super) stop_reason: Option<&'static str>,
    /// The stop string that ended it, if one did.
    pub(super) stop_sequence: Option<String>,
}

/// Counts of tokens. Those that the cache had are counted apart.
#[derive(Serialize, JsonSchema)]
#[expect(clippy::struct_field_names, reason = "the names of the API")]
struct MessageUsage {
    input_tokens: usize,
    cache_creation_input_tokens: usize,
    cache_read_input_tokens: usize,
    output_tokens: usize,
}

/// A part of a message.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Block {
    Thinking {
        thinking: String,
        signature: String,
    },
    Text {
        text: String,
    },
    ToolUse {
        id: String,
        name: String,
        #[schemars(with = "Value")]
        input: Box<RawValue>,
    },
}

impl<'a> MessageJson<'a> {
    /// A message without content.
    pub(super) fn begun(id: &'a str, model: &'a str, usage: Usage) -> Self {
        Self {
            id,
            kind: "message",
            role: "assistant",
            model,
            content: Vec::new(),
            stop: Stop::default(),
            usage: MessageUsage {
                input_tokens: usage.prompt_tokens.saturating_sub(usage.cached_tokens),
                cache_creation_input_tokens: 0,
                cache_read_input_tokens: usage.cached_tokens,
                output_tokens: 0,
            },
        }
    }

    /// A message with its content.
    pub(super) fn ended(
        id: &'a str,
        model: &'a str,
        answer: Answer,
        stop: Stop,
        usage: Usage,
    ) -> Self {
        let mut message = Self::begun(id, model, usage);
        message.content = blocks(answer);
        message.stop = stop;
        message.usage.output_tokens = usage.completion_tokens;
        message
    }
}

impl Block {
    pub(super) fn text(text: String) -> Self {
        Self::Text { text }
    }

    /// Reasoning with its signature.
    pub(super) fn thinking(thinking: String) -> Self {
        let mut signature = Signature::default();
        signature.update(&thinking);
        Self::Thinking { thinking, signature: signature.finish() }
    }

    /// Reasoning that is streamed, with its signature at the end.
    pub(super) fn begun_thinking() -> Self {
        Self::Thinking { thinking: String::new(), signature: String::new() }
    }

    /// A call whose arguments follow.
    pub(super) fn tool_use(id: String, name: String) -> Self {
        Self::ToolUse { id, name, input: no_arguments() }
    }
}

/// The signature of reasoning, without which clients drop the reasoning. It is the hash of the
/// text: nobody has to be kept from changing it.
#[derive(Default)]
pub(super) struct Signature(Sha256);

impl Signature {
    pub(super) fn update(&mut self, thinking: &str) {
        self.0.update(thinking);
    }

    pub(super) fn finish(self) -> String {
        STANDARD.encode(self.0.finalize())
    }
}

pub(super) fn stop_reason(reason: StopReason, calls_tools: bool) -> &'static str {
    match reason {
        reason if is_cut_off(reason) => "max_tokens",
        _ if calls_tools => "tool_use",
        StopReason::StopString => "stop_sequence",
        _ => "end_turn",
    }
}

fn blocks(Answer { content, reasoning, calls }: Answer) -> Vec<Block> {
    let mut blocks = Vec::new();
    if !reasoning.is_empty() {
        blocks.push(Block::thinking(reasoning));
    }
    if !content.is_empty() {
        blocks.push(Block::text(content));
    }
    let call = |AnswerCall { id, name, arguments, .. }| Block::ToolUse {
        id,
        name,
        input: arguments_object(&arguments),
    };
    blocks.extend(calls.into_iter().map(call));
    blocks
}
