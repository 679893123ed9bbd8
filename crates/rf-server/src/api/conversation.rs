//! Conversations in the form of `OpenAI`, which llama.cpp and vLLM take as well.

use std::collections::{BTreeMap, HashSet};

use rocmforge::messages::{Conversation, Message, MessageCall, Tool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::custom_tools;
use crate::attachments::{Attachment, IllustratedConversation, MarkedText, from_audio, from_url};
use crate::error::{ApiError, check_count};
use crate::fields::TextOr;
use crate::prompt::{MAX_TOOLS, tool, tool_choice};

/// The fields of a request that make its prompt.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ConversationFields {
    messages: Option<Vec<ChatMessage>>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    reasoning_effort: Option<String>,
    chat_template_kwargs: Option<BTreeMap<String, Value>>,
    continue_final_message: Option<bool>,
}

impl ConversationFields {
    pub(crate) fn conversation(self) -> Result<IllustratedConversation, ApiError> {
        let mut attachments = Vec::new();
        let conversation = Conversation::default()
            .with_messages(messages(self.messages.unwrap_or_default(), &mut attachments)?)
            .with_tools(tools(self.tools.as_deref().unwrap_or_default())?)
            .with_tool_choice(tool_choice(self.tool_choice.as_ref())?)
            .with_reasoning_effort(self.reasoning_effort)
            .with_variables(self.chat_template_kwargs.unwrap_or_default())
            .with_continue_final_message(self.continue_final_message.unwrap_or(false));
        Ok(IllustratedConversation { conversation, attachments, field: "messages" })
    }
}

impl ConversationFields {
    /// The names of the custom tools, whose calls have a text.
    pub(crate) fn custom_tools(&self) -> HashSet<String> {
        let custom = self.tools.iter().flatten().filter_map(custom_tool);
        custom.filter_map(|tool| tool["name"].as_str().map(str::to_owned)).collect()
    }
}

/// Reads functions, and custom tools as functions.
fn tools(definitions: &[Value]) -> Result<Vec<Tool>, ApiError> {
    check_count("tools", definitions.len(), MAX_TOOLS)?;
    let read = |(index, definition)| match custom_tool(definition) {
        Some(custom) => {
            tool(&custom_tools::as_function(custom), &format!("tools[{index}].custom."))
        }
        None => tool(definition, &format!("tools[{index}].")),
    };
    definitions.iter().enumerate().map(read).collect()
}

/// What a definition has of a custom tool. The Responses API has it in the definition itself.
fn custom_tool(definition: &Value) -> Option<&Value> {
    let is_custom = definition.get("type").and_then(Value::as_str) == Some("custom");
    is_custom.then(|| definition.get("custom").unwrap_or(definition))
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
    id: Option<String>,
    function: Option<Function>,
    custom: Option<CustomCall>,
}

/// A call of a custom tool.
#[derive(Debug, Deserialize, JsonSchema)]
struct CustomCall {
    name: String,
    #[serde(default)]
    input: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Function {
    name: String,
    /// Text with JSON; Ollama's clients send the object itself.
    #[serde(default)]
    arguments: Value,
}

impl ToolCall {
    /// The call of a function or of a custom tool. `None` for a call of neither.
    fn into_message_call(self) -> Option<MessageCall> {
        let (name, arguments) = match (self.function, self.custom) {
            (Some(function), _) => (function.name, arguments(function.arguments)),
            (None, Some(custom)) => (custom.name, custom_tools::text_argument(custom.input)),
            (None, None) => return None,
        };
        Some(MessageCall { id: self.id.unwrap_or_default(), name, arguments })
    }
}

/// The arguments of a call, which are text with JSON.
pub(crate) fn arguments(arguments: Value) -> Value {
    match arguments {
        Value::String(text) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
        Value::Null => Value::Object(Map::new()),
        object => object,
    }
}

/// The text of a content. `path` is that of the content, for errors. A picture or a sound that a
/// user sends is added to `attachments`, and has a mark. Another part that is no text is refused
/// where a user sends it; elsewhere it is noted, because agents send it in each later turn.
pub(crate) fn text(
    content: Option<TextOr<Part>>,
    role: &str,
    path: &str,
    attachments: &mut Vec<Attachment>,
) -> Result<String, ApiError> {
    let parts = match content {
        Some(TextOr::List(parts)) if role == "user" => parts,
        content => return Ok(noted_text(content)),
    };
    let mut marked = MarkedText::new(false);
    for (index, part) in parts.iter().enumerate() {
        let path = format!("{path}[{index}]");
        match part.readable() {
            Some(text) => marked.push(text),
            None if matches!(&*part.kind, "image_url" | "input_image") => {
                attachments.push(from_url(part.others.get("image_url"), &path)?);
                marked.push_mark();
            }
            None if part.kind == "input_audio" => {
                attachments.push(from_audio(part.others.get("input_audio"), &path)?);
                marked.push_mark();
            }
            None => {
                let message = format!("a part of type {:?} cannot be read: send text", part.kind);
                return Err(ApiError::field(format!("{path}.type"), message));
            }
        }
    }
    Ok(marked.text)
}

/// The text of a content, with notes such as `[image]` instead of parts that are no text.
pub(crate) fn noted_text(content: Option<TextOr<Part>>) -> String {
    let parts = match content {
        None => return String::new(),
        Some(TextOr::Text(text)) => return text,
        Some(TextOr::List(parts)) => parts,
    };
    parts.iter().map(|part| part.readable().unwrap_or_else(|| note(&part.kind))).collect()
}

/// The note that stands for a part that a model of texts cannot read.
pub(crate) fn note(kind: &str) -> &'static str {
    match kind {
        _ if kind.contains("image") || kind.contains("screenshot") => "[image]",
        _ if kind.contains("audio") => "[audio]",
        _ if kind.contains("file") || kind.contains("document") => "[file]",
        _ => "[no text]",
    }
}

impl Part {
    /// The text of the part, if it is text.
    fn readable(&self) -> Option<&str> {
        match self.kind.as_str() {
            "text" | "input_text" | "output_text" => self.text.as_deref(),
            "refusal" => self.text.as_deref().or_else(|| self.others.get("refusal")?.as_str()),
            _ => None,
        }
    }
}

/// A role as templates know it.
pub(crate) fn role(role: &str) -> &str {
    if role == "developer" { "system" } else { role }
}

fn messages(
    messages: Vec<ChatMessage>,
    attachments: &mut Vec<Attachment>,
) -> Result<Vec<Message>, ApiError> {
    let message = |(index, message): (usize, ChatMessage)| {
        let calls = message.tool_calls.unwrap_or_default().into_iter().enumerate();
        let calls = calls.map(|(number, call)| {
            call.into_message_call().ok_or_else(|| {
                let path = format!("messages[{index}].tool_calls[{number}].function");
                ApiError::field(path, "expected the name and the arguments of the function")
            })
        });
        let tool_calls = calls.collect::<Result<_, _>>()?;
        let parts = match &message.content {
            // A template would make a mark for an image of a part that is one.
            Some(TextOr::List(parts)) if parts.iter().all(|part| part.readable().is_some()) => {
                parts.iter().map(|part| json!(part)).collect()
            }
            _ => Vec::new(),
        };
        Ok(Message {
            parts,
            role: role(&message.role).to_owned(),
            content: text(
                message.content,
                &message.role,
                &format!("messages[{index}].content"),
                &mut *attachments,
            )?,
            reasoning: message.reasoning_content.or(message.reasoning),
            tool_calls,
            tool_call_id: message.tool_call_id,
            name: message.name,
        })
    };
    messages.into_iter().enumerate().map(message).collect()
}
