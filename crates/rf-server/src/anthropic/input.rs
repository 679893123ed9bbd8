//! Requests as conversations.

use rocmforge::messages::{Conversation, Message, MessageCall, Tool, ToolChoice};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::fields::TextOr;

/// The fields of a request. Those of sampling that `OpenAI` has, too, are read apart.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct MessagesFields {
    pub(super) model: Option<String>,
    #[serde(default)]
    messages: Vec<InputMessage>,
    system: Option<TextOr<Block>>,
    pub(super) stop_sequences: Option<Vec<String>>,
    pub(super) stream: Option<bool>,
    tools: Option<Vec<ToolDefinition>>,
    tool_choice: Option<Choose>,
    thinking: Option<Thinking>,
}

/// A tool; those of Anthropic's own servers have a type and no schema.
#[derive(Debug, Deserialize, JsonSchema)]
struct ToolDefinition {
    name: String,
    description: Option<String>,
    input_schema: Option<Value>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Choose {
    #[serde(rename = "type")]
    kind: String,
    name: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Thinking {
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct InputMessage {
    role: String,
    content: TextOr<Block>,
}

/// A part of a message.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "InputBlock")]
struct Block {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    thinking: Option<String>,
    /// The result of a tool.
    content: Option<TextOr<Self>>,
    tool_use_id: Option<String>,
    /// The id of a call, which its result repeats.
    id: Option<String>,
    name: Option<String>,
    input: Option<Value>,
}

impl MessagesFields {
    pub(super) fn conversation(self) -> Result<Conversation, ApiError> {
        if self.messages.is_empty() {
            return Err(ApiError::field("messages", "expected at least one message"));
        }
        let mut messages = Vec::new();
        let system = match self.system {
            None => String::new(),
            Some(TextOr::Text(text)) => without_billing_line(&text).to_owned(),
            Some(TextOr::List(blocks)) => text_of(blocks, "system")?,
        };
        if !system.is_empty() {
            messages.push(Message::new("system", system));
        }
        for (index, message) in self.messages.into_iter().enumerate() {
            match message.content {
                TextOr::Text(text) => messages.push(Message::new(message.role, text)),
                TextOr::List(blocks) => {
                    let path = format!("messages[{index}].content");
                    add_blocks(message.role, blocks, &path, &mut messages)?;
                }
            }
        }
        // A last message of the assistant is the beginning of the answer.
        let continue_final_message = messages
            .last()
            .is_some_and(|message| message.role == "assistant" && message.tool_calls.is_empty());
        let is_off = self.thinking.is_some_and(|thinking| thinking.kind == "disabled");
        Ok(Conversation::default()
            .with_messages(messages)
            .with_tools(self.tools.unwrap_or_default().into_iter().filter_map(tool).collect())
            .with_tool_choice(self.tool_choice.map_or(Ok(ToolChoice::Auto), tool_choice)?)
            .with_reasoning_effort(is_off.then(|| "none".to_owned()))
            .with_continue_final_message(continue_final_message))
    }
}

fn tool(tool: ToolDefinition) -> Option<Tool> {
    let ToolDefinition { name, description, input_schema } = tool;
    Some(Tool { name, description, parameters: input_schema? })
}

fn tool_choice(choice: Choose) -> Result<ToolChoice, ApiError> {
    match (choice.kind.as_str(), choice.name) {
        ("auto", _) => Ok(ToolChoice::Auto),
        ("any", _) => Ok(ToolChoice::Required),
        ("none", _) => Ok(ToolChoice::None),
        ("tool", Some(name)) => Ok(ToolChoice::Named(name)),
        ("tool", None) => Err(ApiError::field("tool_choice.name", "expected a string")),
        _ => Err(ApiError::field("tool_choice.type", "expected auto, any, none or tool")),
    }
}

/// Adds the message of blocks, after a message for each result of a tool among them.
fn add_blocks(
    role: String,
    blocks: Vec<Block>,
    path: &str,
    messages: &mut Vec<Message>,
) -> Result<(), ApiError> {
    let mut message = Message::new(role, "");
    let mut texts = Vec::new();
    let mut has_result = false;
    for (index, block) in blocks.into_iter().enumerate() {
        let path = format!("{path}[{index}]");
        match block.kind.as_str() {
            "tool_result" => {
                has_result = true;
                let content = match block.content {
                    None => String::new(),
                    Some(TextOr::Text(text)) => text,
                    Some(TextOr::List(blocks)) => text_of(blocks, &format!("{path}.content"))?,
                };
                messages.push(Message {
                    tool_call_id: block.tool_use_id,
                    ..Message::new("tool", content)
                });
            }
            "tool_use" => message.tool_calls.push(MessageCall {
                id: block.id.unwrap_or_default(),
                name: block.name.unwrap_or_default(),
                arguments: block.input.unwrap_or_else(|| Value::Object(Map::new())),
            }),
            "thinking" => message.reasoning = block.thinking,
            // Its text is a secret of the server that wrote it.
            "redacted_thinking" => {}
            _ => texts.push(text_of(vec![block], &path)?),
        }
    }
    message.content = texts.join("\n");
    let is_empty = message.content.is_empty() && message.tool_calls.is_empty();
    if !(is_empty && has_result) {
        messages.push(message);
    }
    Ok(())
}

/// The text of blocks, with a line break between them.
fn text_of(blocks: Vec<Block>, path: &str) -> Result<String, ApiError> {
    let mut texts = Vec::new();
    for (index, block) in blocks.into_iter().enumerate() {
        match (block.kind.as_str(), block.text) {
            ("text", Some(text)) => {
                let text = without_billing_line(&text);
                if !text.is_empty() {
                    texts.push(text.to_owned());
                }
            }
            (kind, _) => {
                let message = format!("a block of type {kind:?} cannot be read: send text");
                return Err(ApiError::field(format!("{path}[{index}].type"), message));
            }
        }
    }
    Ok(texts.join("\n"))
}

/// Claude Code begins the system prompt with a line that differs in every request. It is no part of
/// the prompt, and with it no two prompts would have a common beginning to cache.
fn without_billing_line(text: &str) -> &str {
    if !text.starts_with("x-anthropic-billing-header:") {
        return text;
    }
    text.split_once('\n').map_or("", |(_, rest)| rest.trim_start_matches('\n'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_billing_line_is_left_out_of_the_prompt() {
        let line = "x-anthropic-billing-header: cc_version=2.1.36; cch=1f0a;";
        for (text, expected) in [
            (line.to_owned(), ""),
            (format!("{line}\nYou are"), "You are"),
            (format!("{line}\n\nYou are"), "You are"),
            (
                "You are\nx-anthropic-billing-header: x".to_owned(),
                "You are\nx-anthropic-billing-header: x",
            ),
        ] {
            assert_eq!(without_billing_line(&text), expected);
        }
        let fields: MessagesFields = serde_json::from_value(json!({
            "system": [{ "type": "text", "text": line }, { "type": "text", "text": "Be brief." }],
            "messages": [
                { "role": "user", "content": "Hi" },
                { "role": "user", "content": [
                    { "type": "tool_result", "tool_use_id": "t", "content": [{ "type": "text", "text": "4" }] },
                    { "type": "text", "text": "Go on." },
                ]},
            ],
        }))
        .unwrap();
        let conversation = fields.conversation().unwrap();
        let expected = [("system", "Be brief."), ("user", "Hi"), ("tool", "4"), ("user", "Go on.")];
        let found = conversation.messages.iter();
        let found: Vec<_> = found.map(|m| (m.role.as_str(), m.content.as_str())).collect();
        assert_eq!(found, expected);
        assert_eq!(conversation.messages[2].tool_call_id.as_deref(), Some("t"));
        assert!(!conversation.continue_final_message);
    }
}
