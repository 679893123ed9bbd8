//! The items of a request as messages. Agents replay whole conversations, so an item that is not
//! known is left out: refused once, it would be refused in each later turn.

use rocmforge::messages::{Message, MessageCall};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::store::{Owner, ResponseStore};
use super::tools::Called;
use crate::api::conversation::{self, Part};
use crate::api::custom_tools::text_argument;
use crate::attachments::{Attachment, IllustratedMessages};
use crate::error::{ApiError, ApiErrorKind};
use crate::fields::TextOr;
use crate::known_fields::note_left_out;

/// A part of the conversation. Messages may come without a type.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(super) struct InputItem {
    #[serde(rename = "type")]
    kind: Option<String>,
    /// The item of an earlier answer that a reference means.
    id: Option<String>,
    role: Option<String>,
    /// The text of a message. Items that are left out may have another one.
    #[schemars(with = "Option<TextOr<Part>>")]
    content: Option<Value>,
    /// The id that a call and its result have in common.
    call_id: Option<String>,
    /// The name of the tool that is called.
    name: Option<String>,
    /// The group of the tool that is called.
    namespace: Option<String>,
    /// The arguments of a call, as an object or as text with one.
    arguments: Option<Value>,
    /// The text for a custom tool.
    #[schemars(with = "Option<String>")]
    input: Option<Value>,
    /// The command for a shell.
    action: Option<Value>,
    /// The result of a call: texts, or any JSON.
    output: Option<Value>,
}

/// Reads the items of requests.
pub(super) struct ItemReader<'a> {
    pub(super) store: &'a ResponseStore,
    pub(super) owner: Owner,
}

impl ItemReader<'_> {
    /// Adds the messages of items to a conversation.
    pub(super) fn add(
        &self,
        items: Vec<InputItem>,
        conversation: &mut IllustratedMessages,
    ) -> Result<(), ApiError> {
        for (index, item) in items.into_iter().enumerate() {
            let path = format!("input[{index}]");
            let message = self.message(item, &path, &mut conversation.attachments)?;
            if let Some(message) = message {
                push(&mut conversation.messages, message);
            }
        }
        // A thought without its answer is no message.
        let is_dangling = conversation.messages.last().is_some_and(is_thought);
        conversation.messages.truncate(conversation.messages.len() - usize::from(is_dangling));
        Ok(())
    }

    /// The message of an item; `None` for one that is no part of a prompt. Its pictures are added
    /// to `attachments`.
    fn message(
        &self,
        item: InputItem,
        path: &str,
        attachments: &mut Vec<Attachment>,
    ) -> Result<Option<Message>, ApiError> {
        let call = |arguments: Value| MessageCall {
            id: item.call_id.clone().unwrap_or_default(),
            name: Called {
                name: item.name.clone().unwrap_or_default(),
                namespace: item.namespace.clone(),
                is_custom: false,
            }
            .offered_name(),
            arguments,
        };
        let answer = |call: MessageCall| {
            Some(Message { tool_calls: vec![call], ..Message::new("assistant", "") })
        };
        let message = match item.kind.as_deref().unwrap_or("message") {
            "message" => {
                let role = item.role.as_deref();
                let role = role
                    .ok_or_else(|| ApiError::field(format!("{path}.role"), "expected a string"))?;
                let content = parts(item.content, &format!("{path}.content"))?;
                let content =
                    conversation::text(content, role, &format!("{path}.content"), attachments)?;
                Some(Message::new(conversation::role(role), content))
            }
            // The word of another agent to this one.
            "agent_message" => {
                let content = parts(item.content, &format!("{path}.content")).unwrap_or_default();
                let content = conversation::noted_text(content);
                (!content.is_empty()).then(|| Message::new("user", content))
            }
            "function_call" => {
                let arguments = item.arguments.clone().unwrap_or_default();
                answer(call(conversation::arguments(arguments)))
            }
            "custom_tool_call" => {
                let input = item.input.as_ref().and_then(Value::as_str).unwrap_or_default();
                answer(call(text_argument(input.to_owned())))
            }
            kind @ ("local_shell_call" | "shell_call") => {
                let call = call(item.action.clone().unwrap_or_default());
                let name = kind.trim_end_matches("_call").to_owned();
                answer(MessageCall { name, ..call })
            }
            "function_call_output"
            | "custom_tool_call_output"
            | "local_shell_call_output"
            | "shell_call_output" => {
                let content = result_text(item.output);
                Some(Message { tool_call_id: item.call_id, ..Message::new("tool", content) })
            }
            "item_reference" => self.referenced(item.id.as_deref(), path)?,
            // The template decides which thoughts are part of the next prompt.
            "reasoning" => {
                let thought = item.content.as_ref().map(thought_text).unwrap_or_default();
                (!thought.is_empty()).then(|| thinking(thought))
            }
            // The others tell of tools that ran elsewhere.
            kind => {
                note_left_out("an item", kind);
                None
            }
        };
        Ok(message)
    }

    fn referenced(&self, id: Option<&str>, path: &str) -> Result<Option<Message>, ApiError> {
        let item = id.and_then(|id| self.store.item(self.owner, id));
        let item = item.ok_or_else(|| {
            let message = "the item is not stored any more: send the item itself";
            ApiError::field(format!("{path}.id"), message).of_kind(ApiErrorKind::NotFound)
        })?;
        Ok(item.message)
    }
}

/// The message of a thought, which becomes part of the next message of the assistant.
pub(super) fn thinking(thought: String) -> Message {
    Message { reasoning: Some(thought), ..Message::new("assistant", "") }
}

fn is_thought(message: &Message) -> bool {
    message.reasoning.is_some() && message.content.is_empty() && message.tool_calls.is_empty()
}

/// The text of the parts of a thought.
fn thought_text(content: &Value) -> String {
    let parts = content.as_array().map_or(&[][..], Vec::as_slice);
    parts.iter().filter_map(|part| part.get("text")?.as_str()).collect()
}

/// Adds a message. Thoughts and calls of one answer are items of their own, and one message.
pub(super) fn push(messages: &mut Vec<Message>, mut message: Message) {
    if let Some(thought) = messages.pop_if(|last| is_thought(last))
        && message.role == "assistant"
    {
        let thoughts = thought.reasoning.into_iter().chain(message.reasoning.take());
        message.reasoning = Some(thoughts.collect::<Vec<_>>().join("\n"));
        messages.push(message);
        return;
    }
    let is_call = !message.tool_calls.is_empty();
    match messages.last_mut().filter(|last| is_call && last.role == "assistant") {
        Some(last) => last.tool_calls.extend(message.tool_calls),
        None => messages.push(message),
    }
}

/// The content of a message.
fn parts(content: Option<Value>, path: &str) -> Result<Option<TextOr<Part>>, ApiError> {
    serde_path_to_error::deserialize(content.unwrap_or_default()).map_err(|error| {
        match error.path().to_string().as_str() {
            "." => ApiError::field(path, error.inner()),
            inner => {
                let separator = if inner.starts_with('[') { "" } else { "." };
                ApiError::field(format!("{path}{separator}{inner}"), error.inner())
            }
        }
    })
}

/// The result of a tool as text.
fn result_text(output: Option<Value>) -> String {
    let output = output.unwrap_or_default();
    match serde_json::from_value::<Option<TextOr<Part>>>(output.clone()) {
        Ok(parts) => conversation::noted_text(parts),
        Err(_) => output.to_string(),
    }
}
