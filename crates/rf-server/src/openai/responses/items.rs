//! Items: what goes into a response, and what comes out.

use rocmforge::messages::{Answer, AnswerCall, Message, MessageCall};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::access::unique;
use crate::api::NoItems;
use crate::api::conversation::{self, Part, text};
use crate::error::ApiError;
use crate::fields::TextOr;

/// A part of the conversation. Messages may come without a type.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct InputItem {
    #[serde(rename = "type")]
    kind: Option<String>,
    role: Option<String>,
    content: Option<TextOr<Part>>,
    /// The id that a call and its result have in common.
    call_id: Option<String>,
    /// The name of the tool that is called.
    name: Option<String>,
    /// The arguments of a call.
    arguments: Option<Value>,
    /// The result of a call.
    output: Option<TextOr<Part>>,
}

/// The messages of a conversation.
pub(super) fn messages(items: Vec<InputItem>) -> Result<Vec<Message>, ApiError> {
    let mut messages: Vec<Message> = Vec::new();
    for (index, item) in items.into_iter().enumerate() {
        let path = format!("input[{index}]");
        match (item.kind.as_deref().unwrap_or("message"), item.role) {
            ("message", Some(role)) => {
                let content = text(item.content, &format!("{path}.content"))?;
                messages.push(Message::new(conversation::role(&role), content));
            }
            ("message", None) => {
                return Err(ApiError::field(format!("{path}.role"), "expected a string"));
            }
            ("function_call", _) => {
                let call = MessageCall {
                    id: item.call_id.unwrap_or_default(),
                    name: item.name.unwrap_or_default(),
                    arguments: conversation::arguments(item.arguments.unwrap_or_default()),
                };
                // Calls of one answer are items of their own.
                match messages.last_mut().filter(|last| last.role == "assistant") {
                    Some(last) => last.tool_calls.push(call),
                    None => messages
                        .push(Message { tool_calls: vec![call], ..Message::new("assistant", "") }),
                }
            }
            ("function_call_output", _) => messages.push(Message {
                tool_call_id: item.call_id,
                ..Message::new("tool", text(item.output, &format!("{path}.output"))?)
            }),
            // What the model thought is not part of its next prompt.
            ("reasoning", _) => {}
            (kind, _) => {
                let message = format!("an item of type {kind:?} cannot be read");
                return Err(ApiError::field(format!("{path}.type"), message));
            }
        }
    }
    Ok(messages)
}

/// A part of an answer.
#[derive(Clone, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Item {
    Message {
        id: String,
        status: &'static str,
        role: &'static str,
        content: Vec<ContentPart>,
    },
    Reasoning {
        id: String,
        status: &'static str,
        summary: NoItems,
        content: Vec<ContentPart>,
    },
    FunctionCall {
        id: String,
        call_id: String,
        name: String,
        /// JSON as text.
        arguments: String,
        status: &'static str,
    },
}

/// The text of an item.
#[derive(Clone, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ContentPart {
    OutputText { text: String, annotations: NoItems, logprobs: NoItems },
    ReasoningText { text: String },
}

impl ContentPart {
    pub(super) fn text(text: String) -> Self {
        Self::OutputText { text, annotations: [], logprobs: [] }
    }
}

impl Item {
    /// A message with this text; `None` for one without content yet.
    pub(super) fn message(id: String, text: Option<String>, status: &'static str) -> Self {
        let content = text.into_iter().map(ContentPart::text).collect();
        Self::Message { id, status, role: "assistant", content }
    }

    /// Reasoning with this text; `None` for one without content yet.
    pub(super) fn reasoning(id: String, text: Option<String>, status: &'static str) -> Self {
        let content = text.into_iter().map(|text| ContentPart::ReasoningText { text }).collect();
        Self::Reasoning { id, status, summary: [], content }
    }
}

/// The items of an answer.
pub(super) fn output(answer: Answer, is_cut_off: bool) -> Vec<Item> {
    let status = if is_cut_off { "incomplete" } else { "completed" };
    let Answer { content, reasoning, calls } = answer;
    let mut items = Vec::new();
    if !reasoning.is_empty() {
        items.push(Item::reasoning(unique("rs_"), Some(reasoning), status));
    }
    if !content.is_empty() || calls.is_empty() {
        items.push(Item::message(unique("msg_"), Some(content), status));
    }
    let call = |AnswerCall { id, name, arguments, .. }| Item::FunctionCall {
        id: unique("fc_"),
        call_id: id,
        name,
        arguments,
        status,
    };
    items.extend(calls.into_iter().map(call));
    items
}
