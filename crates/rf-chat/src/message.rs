//! Messages of a conversation.

use serde_json::{Map, Value, json};

use crate::Error;

/// One message of a conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Message {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// The text.
    pub content: String,
    /// The parts of the content as the client wrote them, such as `{"type": "text", "text": "…"}`,
    /// for templates that read their fields. Empty if the content has no parts. Their texts
    /// together are [`content`](Self::content).
    pub parts: Vec<Value>,
    /// The reasoning of an assistant, for templates that show it again.
    pub reasoning: Option<String>,
    /// The calls of an assistant.
    pub tool_calls: Vec<MessageCall>,
    /// The id of the call that a tool answers.
    pub tool_call_id: Option<String>,
    /// The name of the tool that answers.
    pub name: Option<String>,
}

/// A tool call in a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageCall {
    /// The id that the answer refers to.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// The arguments: an object, or a text that holds one. Null and an empty text are an empty
    /// object, because models and clients write both for a call without arguments.
    pub arguments: Value,
}

/// The form of messages in a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MessageForm {
    pub(crate) arguments: ArgumentsForm,
    pub(crate) content: Content,
}

/// The form of the arguments of calls in a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArgumentsForm {
    Object,
    Text,
}

/// The form of the content of messages in a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// A text.
    Text,
    /// The parts of messages that have any, otherwise a text.
    Parts,
    /// A list of parts, even for a text.
    OnlyParts,
}

impl Message {
    /// A message of `role` with the text `content`.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into(), ..Self::default() }
    }

    /// The message as templates expect it.
    pub(crate) fn to_value(&self, form: MessageForm) -> Value {
        let mut message = Map::new();
        message.insert("role".into(), json!(self.role));
        message.insert("content".into(), self.content_value(form.content));
        if let Some(reasoning) = &self.reasoning {
            message.insert("reasoning_content".into(), json!(reasoning));
            message.insert("reasoning".into(), json!(reasoning));
            // gpt-oss's name, which its template refuses beside content.
            if self.content.is_empty() || self.tool_calls.is_empty() {
                message.insert("thinking".into(), json!(reasoning));
            }
        }
        if !self.tool_calls.is_empty() {
            let call = |call: &MessageCall| {
                let arguments = match (form.arguments, call.value()) {
                    (ArgumentsForm::Object, value) => value,
                    (ArgumentsForm::Text, Value::String(text)) => Value::String(text),
                    (ArgumentsForm::Text, value) => json!(value.to_string()),
                };
                json!({
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": arguments},
                })
            };
            message.insert("tool_calls".into(), self.tool_calls.iter().map(call).collect());
        }
        if let Some(id) = &self.tool_call_id {
            message.insert("tool_call_id".into(), json!(id));
        }
        if let Some(name) = &self.name {
            message.insert("name".into(), json!(name));
        }
        Value::Object(message)
    }

    fn content_value(&self, form: Content) -> Value {
        match form {
            Content::Parts | Content::OnlyParts if !self.parts.is_empty() => json!(self.parts),
            Content::OnlyParts => json!([{"type": "text", "text": self.content}]),
            Content::Text | Content::Parts => json!(self.content),
        }
    }
}

impl MessageCall {
    /// The arguments as templates expect them: an object. What is none stays what it is.
    pub(crate) fn value(&self) -> Value {
        let none = || json!({});
        match &self.arguments {
            Value::Null => none(),
            Value::String(text) if text.trim().is_empty() => none(),
            Value::String(text) => match serde_json::from_str(text) {
                Ok(Value::Null) => none(),
                Ok(value @ Value::Object(_)) => value,
                _ => self.arguments.clone(),
            },
            value => value.clone(),
        }
    }
}

/// The first call whose arguments are no object, as the index of its message and its own.
pub(crate) fn odd_arguments(messages: &[Message]) -> Option<(usize, usize)> {
    messages.iter().enumerate().find_map(|(index, message)| {
        let call = message.tool_calls.iter().position(|call| !call.value().is_object());
        call.map(|call| (index, call))
    })
}

/// Cuts a prompt after the text of its last message. White space that the template trims is part
/// of that text.
pub(crate) fn end_within(mut prompt: String, last: &Message) -> Result<String, Error> {
    let text = match &last.reasoning {
        Some(reasoning) if last.content.is_empty() => reasoning,
        _ => &last.content,
    };
    let at = prompt.rfind(text.trim()).filter(|_| !text.trim().is_empty());
    let at = at.ok_or(Error::NothingToContinue)?;
    prompt.truncate(at);
    prompt.push_str(text.trim_start());
    Ok(prompt)
}
