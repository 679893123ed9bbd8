//! Requests as conversations.

use rocmforge::messages::{Conversation, Message, MessageCall, Tool, ToolChoice};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::api::conversation::note;
use crate::attachments::{Attachment, IllustratedConversation, MarkedText, from_source};
use crate::error::{ApiError, check_count};
use crate::fields::TextOr;
use crate::grammar::{Format, Structure};
use crate::known_fields::note_left_out;
use crate::prompt::MAX_TOOLS;

/// The fields of a request. Those of sampling that `OpenAI` has, too, are read apart.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct MessagesFields {
    pub(super) model: Option<String>,
    messages: Option<Vec<InputMessage>>,
    system: Option<TextOr<Block>>,
    pub(super) stop_sequences: Option<Vec<String>>,
    pub(super) stream: Option<bool>,
    tools: Option<Vec<ToolDefinition>>,
    tool_choice: Option<Choose>,
    thinking: Option<Thinking>,
    output_config: Option<OutputConfig>,
    /// The format under the name that it had before `output_config`.
    output_format: Option<Format>,
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
    disable_parallel_tool_use: Option<bool>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Thinking {
    #[serde(rename = "type")]
    kind: String,
    /// The most tokens of reasoning.
    budget_tokens: Option<i64>,
}

/// The form of the answer.
#[derive(Debug, Deserialize, JsonSchema)]
struct OutputConfig {
    format: Option<Format>,
    /// The effort of reasoning.
    effort: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct InputMessage {
    role: String,
    content: Option<TextOr<Block>>,
}

/// A part of a message. Blocks of other types have fields of other types, so that some are read
/// only for the type that they belong to.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "InputBlock")]
struct Block {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    thinking: Option<String>,
    /// The result of a tool or of a search.
    #[schemars(with = "Option<TextOr<Self>>")]
    content: Option<Value>,
    tool_use_id: Option<String>,
    /// The id of a call, which its result repeats.
    id: Option<String>,
    name: Option<String>,
    input: Option<Value>,
    /// The data of an image or a document.
    source: Option<Value>,
    title: Option<Value>,
    /// The tool that a search of tools found.
    tool_name: Option<String>,
}

impl MessagesFields {
    /// The structure that the answer must have.
    pub(crate) fn structure(&mut self) -> Result<Structure, ApiError> {
        let config = self.output_config.as_mut().and_then(|config| config.format.take());
        let structure = match config {
            Some(format) => Structure::of_format("output_config.format", Some(format)),
            None => Structure::of_format("output_format", self.output_format.take()),
        };
        let choice = self.tool_choice.as_ref();
        let is_single = choice.and_then(|choice| choice.disable_parallel_tool_use);
        Ok(structure?.with_single_call(is_single.unwrap_or(false)))
    }

    /// The most tokens of reasoning.
    pub(super) fn reasoning_budget(&self) -> Option<i64> {
        let thinking = self.thinking.as_ref().filter(|thinking| thinking.kind != "disabled");
        thinking?.budget_tokens
    }

    pub(crate) fn conversation(self) -> Result<IllustratedConversation, ApiError> {
        let tools = self.tools.unwrap_or_default();
        check_count("tools", tools.len(), MAX_TOOLS)?;
        let given = self.messages.unwrap_or_default();
        if given.is_empty() {
            return Err(ApiError::field("messages", "expected at least one message"));
        }
        let (mut messages, mut attachments) = (Vec::new(), Vec::new());
        let system = match self.system {
            None => String::new(),
            Some(TextOr::Text(text)) => without_billing_line(&text).to_owned(),
            Some(TextOr::List(blocks)) => texts_of(&blocks),
        };
        if !system.is_empty() {
            messages.push(Message::new("system", system));
        }
        for (index, message) in given.into_iter().enumerate() {
            match message.content {
                None => messages.push(Message::new(message.role, "")),
                Some(TextOr::Text(text)) => messages.push(Message::new(message.role, text)),
                Some(TextOr::List(blocks)) => {
                    let path = format!("messages[{index}].content");
                    add_blocks(message.role, blocks, &path, (&mut messages, &mut attachments))?;
                }
            }
        }
        // A last message of the assistant is the beginning of the answer.
        let continue_final_message = messages
            .last()
            .is_some_and(|message| message.role == "assistant" && message.tool_calls.is_empty());
        let is_off = self.thinking.is_some_and(|thinking| thinking.kind == "disabled");
        let effort = self.output_config.and_then(|config| config.effort);
        let conversation = Conversation::default()
            .with_messages(messages)
            .with_tools(tools.into_iter().filter_map(tool).collect())
            .with_tool_choice(self.tool_choice.map_or(Ok(ToolChoice::Auto), tool_choice)?)
            .with_reasoning_effort(if is_off { Some("none".to_owned()) } else { effort })
            .with_continue_final_message(continue_final_message);
        Ok(IllustratedConversation { conversation, attachments, field: "messages" })
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

/// Adds the message of blocks, after a message for each result of a tool among them. Blocks that
/// are not known are left out, because agents send them again in each later turn.
fn add_blocks(
    role: String,
    blocks: Vec<Block>,
    path: &str,
    (messages, attachments): (&mut Vec<Message>, &mut Vec<Attachment>),
) -> Result<(), ApiError> {
    let mut message = Message::new(role, "");
    let mut texts = MarkedText::new(true);
    let mut has_result = false;
    for (index, block) in blocks.into_iter().enumerate() {
        let path = format!("{path}[{index}]");
        match block.kind.as_str() {
            "tool_result" => {
                has_result = true;
                messages.push(Message {
                    tool_call_id: block.tool_use_id,
                    ..Message::new("tool", result_text(block.content))
                });
            }
            "tool_use" => message.tool_calls.push(MessageCall {
                id: block.id.unwrap_or_default(),
                name: block.name.unwrap_or_default(),
                arguments: block.input.unwrap_or_else(|| Value::Object(Map::new())),
            }),
            "thinking" => message.reasoning = block.thinking,
            kind => match block.text() {
                Some(text) if text.is_empty() => {}
                Some(text) => texts.push(&text),
                None if kind == "image" && message.role == "user" => {
                    attachments.push(from_source(block.source.as_ref(), &path)?);
                    texts.push_mark();
                }
                None if kind == "document" && message.role == "user" => {
                    let problem = format!("a block of type {kind:?} cannot be read: send text");
                    return Err(ApiError::field(format!("{path}.type"), problem));
                }
                None => note_left_out("a block", kind),
            },
        }
    }
    message.content = texts.text;
    let is_empty = message.content.is_empty() && message.tool_calls.is_empty();
    if !(is_empty && has_result) {
        messages.push(message);
    }
    Ok(())
}

impl Block {
    /// The text of a block that a model of texts can read.
    fn text(&self) -> Option<String> {
        match self.kind.as_str() {
            "text" => self.text.as_deref().map(|text| without_billing_line(text).to_owned()),
            "document" => {
                let source = self.source.as_ref()?;
                let data = || source["data"].as_str().map(str::to_owned);
                match source["type"].as_str()? {
                    "text" => data(),
                    "content" => blocks_of(Some(source["content"].clone())).map(text_of_content),
                    _ => None,
                }
            }
            "search_result" => {
                let title = self.title.as_ref().and_then(Value::as_str).map(str::to_owned);
                let found = blocks_of(self.content.clone()).map(text_of_content);
                Some(title.into_iter().chain(found).collect::<Vec<_>>().join("\n"))
            }
            "tool_reference" => self.tool_name.as_ref().map(|name| format!("[tool: {name}]")),
            _ => None,
        }
    }
}

/// The result of a tool as text, with notes such as `[image]` instead of blocks that are no text.
fn result_text(content: Option<Value>) -> String {
    let Some(content) = content else { return String::new() };
    // Any other JSON is shown as it is.
    blocks_of(Some(content.clone())).map_or_else(|| content.to_string(), text_of_content)
}

fn blocks_of(content: Option<Value>) -> Option<TextOr<Block>> {
    serde_json::from_value(content?).ok()
}

fn text_of_content(content: TextOr<Block>) -> String {
    match content {
        TextOr::Text(text) => text,
        TextOr::List(blocks) => texts_of(&blocks),
    }
}

/// The text of blocks, with a line break between them.
fn texts_of(blocks: &[Block]) -> String {
    let text = |block: &Block| block.text().unwrap_or_else(|| note(&block.kind).to_owned());
    let texts = blocks.iter().map(text).filter(|text| !text.is_empty());
    texts.collect::<Vec<_>>().join("\n")
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
        let conversation = fields.conversation().unwrap().into_text().unwrap();
        let expected = [("system", "Be brief."), ("user", "Hi"), ("tool", "4"), ("user", "Go on.")];
        let found = conversation.messages.iter();
        let found: Vec<_> = found.map(|m| (m.role.as_str(), m.content.as_str())).collect();
        assert_eq!(found, expected);
        assert_eq!(conversation.messages[2].tool_call_id.as_deref(), Some("t"));
        assert!(!conversation.continue_final_message);
    }
}
