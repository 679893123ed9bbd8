//! Items: what goes into a response, and what comes out.

use rocmforge::messages::{Answer, Message, MessageCall};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::access::unique;
use crate::error::ApiError;
use crate::fields::TextOr;
use crate::openai::messages::{self, Part, text};

/// A part of the conversation. Messages may come without a type.
#[derive(Debug, Deserialize)]
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
                messages.push(Message::new(messages::role(&role), content));
            }
            ("message", None) => {
                return Err(ApiError::field(format!("{path}.role"), "expected a string"));
            }
            ("function_call", _) => {
                let call = MessageCall {
                    id: item.call_id.unwrap_or_default(),
                    name: item.name.unwrap_or_default(),
                    arguments: messages::arguments(item.arguments.unwrap_or_default()),
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

/// The items of an answer.
pub(super) fn output(answer: Answer, is_cut_off: bool) -> Vec<Value> {
    let status = if is_cut_off { "incomplete" } else { "completed" };
    let mut items = Vec::new();
    if !answer.reasoning.is_empty() {
        items.push(reasoning(&unique("rs_"), &answer.reasoning, status));
    }
    if !answer.content.is_empty() || answer.calls.is_empty() {
        items.push(message(&unique("msg_"), &answer.content, status));
    }
    for call in answer.calls {
        items.push(function_call(&unique("fc_"), &call.id, &call.name, &call.arguments, status));
    }
    items
}

pub(super) fn message(id: &str, text: &str, status: &str) -> Value {
    json!({
        "type": "message",
        "id": id,
        "status": status,
        "role": "assistant",
        "content": [text_part(text)],
    })
}

pub(super) fn text_part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

pub(super) fn reasoning(id: &str, text: &str, status: &str) -> Value {
    json!({
        "type": "reasoning",
        "id": id,
        "status": status,
        "summary": [],
        "content": [reasoning_part(text)],
    })
}

pub(super) fn reasoning_part(text: &str) -> Value {
    json!({ "type": "reasoning_text", "text": text })
}

pub(super) fn function_call(
    id: &str,
    call_id: &str,
    name: &str,
    arguments: &str,
    status: &str,
) -> Value {
    json!({
        "type": "function_call",
        "id": id,
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
        "status": status,
    })
}
