//! Conversations in the form of `OpenAI`, which llama.cpp and vLLM take as well.

use std::collections::BTreeMap;

use rocmforge::messages::{Conversation, Message, MessageCall};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::error::ApiError;
use crate::fields::TextOr;
use crate::prompt::{tool_choice, tools};

/// The fields of a request that make its prompt.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ConversationFields {
    #[serde(default)]
    messages: Vec<ChatMessage>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    reasoning_effort: Option<String>,
    chat_template_kwargs: Option<BTreeMap<String, Value>>,
    continue_final_message: Option<bool>,
}

impl ConversationFields {
    pub(crate) fn conversation(self) -> Result<Conversation, ApiError> {
        Ok(Conversation::default()
            .with_messages(messages(self.messages)?)
            .with_tools(tools(self.tools)?)
            .with_tool_choice(tool_choice(self.tool_choice.as_ref())?)
            .with_reasoning_effort(self.reasoning_effort)
            .with_variables(self.chat_template_kwargs.unwrap_or_default())
            .with_continue_final_message(self.continue_final_message.unwrap_or(false)))
    }
}

/// A message of a conversation.
#[derive(Debug, Deserialize, JsonSchema)]
struct ChatMessage {
    role: String,
    content: Option<TextOr<Part>>,
    reasoning_content: Option<String>,
    reasoning: Option<String>,
    tool_calls: Option<Vec<ToolCall>>,
    tool_call_id: Option<String>,
    name: Option<String>,
}

/// A part of a message.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
pub(crate) struct Part {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    /// Fields that some templates read.
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct ToolCall {
    #[serde(default)]
    id: String,
    function: Function,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Function {
    name: String,
    /// Text with JSON; Ollama's clients send the object itself.
    #[serde(default)]
    arguments: Value,
}

/// The arguments of a call, which are text with JSON.
pub(crate) fn arguments(arguments: Value) -> Value {
    match arguments {
        Value::String(text) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
        Value::Null => Value::Object(Map::new()),
        object => object,
    }
}

/// The text of a content. `path` is that of the content, for errors.
pub(crate) fn text(content: Option<TextOr<Part>>, path: &str) -> Result<String, ApiError> {
    let parts = match content {
        None => return Ok(String::new()),
        Some(TextOr::Text(text)) => return Ok(text),
        Some(TextOr::List(parts)) => parts,
    };
    let mut content = String::new();
    for (index, part) in parts.into_iter().enumerate() {
        match (part.kind.as_str(), part.text) {
            ("text" | "input_text" | "output_text" | "refusal", Some(text)) => content += &text,
            (kind, _) => {
                let message = format!("a part of type {kind:?} cannot be read: send text");
                return Err(ApiError::field(format!("{path}[{index}].type"), message));
            }
        }
    }
    Ok(content)
}

/// A role as templates know it.
pub(crate) fn role(role: &str) -> &str {
    if role == "developer" { "system" } else { role }
}

fn messages(messages: Vec<ChatMessage>) -> Result<Vec<Message>, ApiError> {
    let message = |(index, message): (usize, ChatMessage)| {
        let call = |call: ToolCall| MessageCall {
            id: call.id,
            name: call.function.name,
            arguments: arguments(call.function.arguments),
        };
        let parts = match &message.content {
            Some(TextOr::List(parts)) => parts.iter().map(|part| json!(part)).collect(),
            _ => Vec::new(),
        };
        Ok(Message {
            parts,
            role: role(&message.role).to_owned(),
            content: text(message.content, &format!("messages[{index}].content"))?,
            reasoning: message.reasoning_content.or(message.reasoning),
            tool_calls: message.tool_calls.unwrap_or_default().into_iter().map(call).collect(),
            tool_call_id: message.tool_call_id,
            name: message.name,
        })
    };
    messages.into_iter().enumerate().map(message).collect()
}
