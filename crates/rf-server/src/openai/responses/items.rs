//! The items of an answer.

use rocmforge::messages::{Answer, AnswerCall, Message, MessageCall};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::input::thinking;
use super::tools::{Called, OfferedTools};
use crate::api::custom_tools::text_argument;
use crate::api::{NoItems, conversation};
use crate::request_id::unique;

/// A part of an answer.
#[derive(Clone, Debug, Serialize, JsonSchema)]
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
        /// The group of the tool, if it is in one.
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<String>,
        /// JSON as text.
        arguments: String,
        status: &'static str,
    },
    CustomToolCall {
        id: String,
        call_id: String,
        name: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<String>,
        /// The text for the tool.
        input: String,
        status: &'static str,
    },
}

/// The text of an item.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ContentPart {
    OutputText { text: String, annotations: NoItems, logprobs: NoItems },
    ReasoningText { text: String },
}

impl ContentPart {
    pub(super) fn text(text: String) -> Self {
        Self::OutputText { text, annotations: [], logprobs: [] }
    }

    fn into_text(self) -> String {
        match self {
            Self::OutputText { text, .. } | Self::ReasoningText { text } => text,
        }
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

impl Item {
    /// A call with the arguments that the model wrote.
    pub(super) fn call(
        (id, call_id): (String, String),
        called: Called,
        arguments: String,
        status: &'static str,
    ) -> Self {
        let input = called.input(arguments);
        let Called { name, namespace, is_custom } = called;
        if is_custom {
            return Self::CustomToolCall { id, call_id, name, namespace, input, status };
        }
        Self::FunctionCall { id, call_id, name, namespace, arguments: input, status }
    }

    pub(super) fn id(&self) -> &str {
        match self {
            Self::Message { id, .. }
            | Self::Reasoning { id, .. }
            | Self::FunctionCall { id, .. }
            | Self::CustomToolCall { id, .. } => id,
        }
    }

    /// The item as a message of a later prompt.
    pub(super) fn into_message(self) -> Option<Message> {
        let (call_id, called, arguments) = match self {
            Self::Reasoning { content, .. } => {
                let thought: String = content.into_iter().map(ContentPart::into_text).collect();
                return (!thought.is_empty()).then(|| thinking(thought));
            }
            Self::Message { content, .. } => {
                let content: String = content.into_iter().map(ContentPart::into_text).collect();
                return Some(Message::new("assistant", content));
            }
            Self::FunctionCall { call_id, name, namespace, arguments, .. } => {
                let arguments = conversation::arguments(Value::String(arguments));
                (call_id, Called { name, namespace, is_custom: false }, arguments)
            }
            Self::CustomToolCall { call_id, name, namespace, input, .. } => {
                (call_id, Called { name, namespace, is_custom: true }, text_argument(input))
            }
        };
        let call = MessageCall { id: call_id, name: called.offered_name(), arguments };
        Some(Message { tool_calls: vec![call], ..Message::new("assistant", "") })
    }
}

/// The items of an answer.
pub(super) fn output(answer: Answer, tools: &OfferedTools, is_cut_off: bool) -> Vec<Item> {
    let status = if is_cut_off { "incomplete" } else { "completed" };
    let Answer { content, reasoning, calls } = answer;
    let mut items = Vec::new();
    if !reasoning.is_empty() {
        items.push(Item::reasoning(unique("rs_"), Some(reasoning), status));
    }
    if !content.is_empty() || calls.is_empty() {
        items.push(Item::message(unique("msg_"), Some(content), status));
    }
    let call = |AnswerCall { id, name, arguments, .. }| {
        Item::call((unique("fc_"), id), tools.called(&name), arguments, status)
    };
    items.extend(calls.into_iter().map(call));
    items
}
