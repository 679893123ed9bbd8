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
    /// The arguments: an object.
    pub arguments: Value,
}

/// The form of the arguments of calls in a template.
#[derive(Debug, Clone, Copy)]
pub(super) enum Arguments {
    Object,
    Text,
}

impl Message {
    /// A message of `role` with the text `content`.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into(), ..Self::default() }
    }

    /// The message as templates expect it.
    pub(super) fn to_value(&self, arguments: Arguments) -> Value {
        let mut message = Map::new();
        message.insert("role".into(), json!(self.role));
        message.insert("content".into(), json!(self.content));
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
                let arguments = match arguments {
                    Arguments::Object => call.arguments.clone(),
                    Arguments::Text => json!(call.arguments.to_string()),
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
}

/// Cuts a prompt after the text of its last message. White space that the template trims is part
/// of that text.
pub(super) fn end_within(mut prompt: String, last: &Message) -> Result<String, Error> {
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
