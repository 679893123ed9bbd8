//! A conversation with tools, and the prompt that a chat template makes of it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use rf_tokenizer::Tokenizer;
use serde_json::{Value, json};

use crate::error::Error;
use crate::format::{OutputFormat, ReasoningFormat};
use crate::message::{Message, MessageCall, odd_arguments};
use crate::parser::OutputParser;
use crate::repair;
use crate::template::{ChatTemplate, RenderOptions};
use crate::tool::Tool;

/// The tool calls that an answer may or must have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// It must not: the model does not see the tools.
    None,
    /// It must call one.
    Required,
    /// It must call the one of this name.
    Named(String),
}

impl ToolChoice {
    /// Returns true if an answer must have a call.
    pub fn demands_call(&self) -> bool {
        matches!(self, Self::Required | Self::Named(_))
    }

    /// Reads `tool_choice` of an `OpenAI` request: a word, or a function by its name.
    ///
    /// # Errors
    ///
    /// [`Error::ToolChoice`] for anything else.
    pub fn from_json(value: &Value) -> Result<Self, Error> {
        match value {
            Value::Null => Ok(Self::Auto),
            Value::String(word) => match word.as_str() {
                "auto" => Ok(Self::Auto),
                "none" => Ok(Self::None),
                "required" | "any" => Ok(Self::Required),
                _ => Err(Error::ToolChoice),
            },
            Value::Object(_) => {
                let name = value.get("function").unwrap_or(value).get("name");
                let name = name.and_then(Value::as_str).ok_or(Error::ToolChoice)?;
                Ok(Self::Named(name.to_owned()))
            }
            _ => Err(Error::ToolChoice),
        }
    }
}

/// The messages and tools of a request, and the form of the answer.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Conversation {
    /// The messages, oldest first.
    pub messages: Vec<Message>,
    /// The tools that the model may call.
    pub tools: Vec<Tool>,
    /// The tool calls that the answer may or must have.
    pub tool_choice: ToolChoice,
    /// The effort of reasoning: `none`, or a word that the template knows, such as `high`.
    pub reasoning_effort: Option<String>,
    /// Variables of the template (`chat_template_kwargs`). They win over all others.
    pub variables: BTreeMap<String, Value>,
    /// Continue the last message instead of answering it.
    pub continue_final_message: bool,
}

/// A prompt, and how to read the answer to it.
#[derive(Debug, Clone)]
pub struct Prompt {
    /// The text. Tokenize it with special tokens.
    pub text: String,
    /// The form of the answer.
    pub format: OutputFormat,
    /// True if the answer begins within reasoning.
    pub in_reasoning: bool,
    /// True if the answer continues the content of the last message.
    pub in_content: bool,
    /// The tools that the answer may call.
    pub tools: Vec<Tool>,
    /// The tool calls that the answer may or must have.
    pub tool_choice: ToolChoice,
}

/// A prompt as token ids: all that a generation and the reading of its answer need. Tokens that end
/// an answer are those of the tokenizer ([`Tokenizer::eog_ids`]).
#[derive(Debug, Clone)]
pub struct ChatPrompt {
    /// The ids, with the beginning-of-sequence token if the model has one.
    pub ids: Vec<u32>,
    /// The ids of control tokens whose text the parser needs: pass them to the decoder of the
    /// answer, [`StreamDecoder::rendering`](rf_tokenizer::StreamDecoder::rendering).
    pub rendered_tokens: Vec<u32>,
    /// The text, the tools, and the form of the answer.
    pub prompt: Prompt,
}

impl ChatPrompt {
    /// A parser of one answer.
    pub fn parser(&self) -> OutputParser {
        self.prompt.parser()
    }
}

impl Prompt {
    /// A parser of one answer.
    pub fn parser(&self) -> OutputParser {
        OutputParser::new(self.format, &self.tools, self.in_reasoning)
    }

    /// The prompt for the model of `tokenizer`.
    pub fn tokenized(self, tokenizer: &Tokenizer) -> ChatPrompt {
        ChatPrompt {
            ids: tokenizer.encode_rendered(&self.text),
            rendered_tokens: self.format.rendered_tokens(tokenizer),
            prompt: self,
        }
    }
}

impl Conversation {
    /// Sets [`messages`](Self::messages).
    #[must_use]
    pub fn with_messages(mut self, messages: Vec<Message>) -> Self {
        self.messages = messages;
        self
    }

    /// Sets [`tools`](Self::tools).
    #[must_use]
    pub fn with_tools(mut self, tools: Vec<Tool>) -> Self {
        self.tools = tools;
        self
    }

    /// Sets [`tool_choice`](Self::tool_choice).
    #[must_use]
    pub fn with_tool_choice(mut self, tool_choice: ToolChoice) -> Self {
        self.tool_choice = tool_choice;
        self
    }

    /// Sets [`reasoning_effort`](Self::reasoning_effort).
    #[must_use]
    pub fn with_reasoning_effort(mut self, reasoning_effort: impl Into<Option<String>>) -> Self {
        self.reasoning_effort = reasoning_effort.into();
        self
    }

    /// Sets [`variables`](Self::variables).
    #[must_use]
    pub fn with_variables(mut self, variables: BTreeMap<String, Value>) -> Self {
        self.variables = variables;
        self
    }

    /// Sets [`continue_final_message`](Self::continue_final_message).
    #[must_use]
    pub fn with_continue_final_message(mut self, continue_final_message: bool) -> Self {
        self.continue_final_message = continue_final_message;
        self
    }

    /// The prompt. A template that knows no tools gets them as text of the first message, with
    /// calls and their results as text, too.
    ///
    /// ```
    /// use rf_chat::serde_json::json;
    /// use rf_chat::{ChatTemplate, Conversation, Message, MessageCall, Tool};
    ///
    /// let (id, name) = ("1".to_owned(), "weather".to_owned());
    /// let call = MessageCall { id, name, arguments: json!({"town": "Oslo"}) };
    /// let messages = vec![
    ///     Message::new("user", "Is it cold in Oslo?"),
    ///     Message { tool_calls: vec![call], ..Message::new("assistant", "") },
    ///     Message { tool_call_id: Some("1".to_owned()), ..Message::new("tool", "-3 °C") },
    /// ];
    /// let tool = Tool::from_json(&json!({"name": "weather"}))?;
    /// let conversation = Conversation::default().with_messages(messages).with_tools(vec![tool]);
    /// let prompt = conversation.prompt(&ChatTemplate::builtin("chatml")?)?;
    /// assert!(prompt.text.contains("-3 °C"));
    /// assert!(prompt.text.ends_with("<|im_start|>assistant\n"));
    /// # Ok::<(), rf_chat::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If `tool_choice` does not fit the tools, or the template refuses the messages or fails.
    pub fn prompt(&self, template: &ChatTemplate) -> Result<Prompt, Error> {
        let tools = self.offered_tools()?;
        let format = OutputFormat::of_template(template.source());
        // Past calls keep the form of the template, unless the prompt asks for another one.
        let knows_calls = template.source().contains("tool_calls") && tools.is_empty();
        let in_text = !format.template_knows_tools && !knows_calls;
        let mut options = RenderOptions {
            add_generation_prompt: !self.continue_final_message,
            continue_final_message: self.continue_final_message,
            variables: self.effort(format),
            now: None,
        };
        if !tools.is_empty() && !in_text {
            let tools: Value = tools.iter().map(Tool::to_json).collect();
            options.variables.insert("tools".to_owned(), tools);
        }
        options.variables.extend(self.variables.clone());
        let mut messages = repair::joined(&self.messages);
        if in_text {
            messages = Cow::Owned(with_tools_as_text(&messages, tools));
        }
        let text = self.render(template, &messages, &options)?;
        let in_reasoning = if self.continue_final_message {
            self.messages.last().is_some_and(|m| m.content.is_empty() && m.reasoning.is_some())
        } else {
            format.prompt_opens_reasoning(&text)
        };
        Ok(Prompt {
            text,
            format,
            in_reasoning,
            in_content: self.continue_final_message && !in_reasoning,
            tools: tools.to_vec(),
            tool_choice: self.tool_choice.clone(),
        })
    }

    /// The text of a prompt. A template that refuses the messages gets them in other forms, too.
    fn render(
        &self,
        template: &ChatTemplate,
        messages: &[Message],
        options: &RenderOptions,
    ) -> Result<String, Error> {
        let refusal = match template.render(messages, options) {
            Err(error @ Error::TemplateRefused(_)) => error,
            Err(error @ Error::TemplateFailed(_)) => return Err(self.cause(error)),
            rendered => return rendered,
        };
        let repaired = repair::LEVELS.iter().filter_map(|repair| repair(messages));
        let mut rendered = repaired.map(|messages| template.render(&messages, options));
        // The first refusal is the one of what the client sent.
        rendered.find_map(Result::ok).map_or_else(|| Err(self.cause(refusal)), Ok)
    }

    /// Why a template failed: arguments that are no object, if there are any.
    fn cause(&self, error: Error) -> Error {
        let Some((message, call)) = odd_arguments(&self.messages) else { return error };
        let name = self.messages[message].tool_calls[call].name.clone();
        Error::CallArguments { message, call, name, source: Box::new(error) }
    }

    /// The tools that the model sees.
    fn offered_tools(&self) -> Result<&[Tool], Error> {
        match &self.tool_choice {
            ToolChoice::None => Ok(&[]),
            ToolChoice::Required if self.tools.is_empty() => Err(Error::NoTools),
            ToolChoice::Named(name) if !self.tools.iter().any(|tool| tool.name == *name) => {
                let known: Vec<_> = self.tools.iter().map(|tool| tool.name.as_str()).collect();
                Err(Error::UnknownTool { name: name.clone(), known: known.join(", ") })
            }
            ToolChoice::Auto | ToolChoice::Required | ToolChoice::Named(_) => Ok(&self.tools),
        }
    }

    /// The variables by which templates turn reasoning on and off.
    fn effort(&self, format: OutputFormat) -> BTreeMap<String, Value> {
        let Some(effort) = &self.reasoning_effort else { return BTreeMap::new() };
        let reasons = effort != "none";
        let level = match (format.reasoning, effort.as_str()) {
            // gpt-oss always reasons, and knows three levels.
            (ReasoningFormat::Harmony, "none" | "minimal") => "low",
            (_, effort) => effort,
        };
        [
            ("reasoning_effort", json!(level)),
            ("enable_thinking", json!(reasons)),
            ("thinking", json!(reasons)),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }
}

/// Messages for a template that knows no tools.
fn with_tools_as_text(messages: &[Message], tools: &[Tool]) -> Vec<Message> {
    let mut messages: Vec<_> = messages.iter().map(as_text).collect();
    if tools.is_empty() {
        return messages;
    }
    let tools: Vec<_> = tools.iter().map(|tool| tool.to_json()["function"].to_string()).collect();
    let text = format!(
        "You can call these tools:\n{}\n\nTo call one, answer with nothing but a JSON object: \
         {{\"name\": \"…\", \"arguments\": {{…}}}}",
        tools.join("\n")
    );
    // Some templates refuse system messages: only one that the request has is certain to fit.
    match messages.first_mut() {
        Some(first) => {
            first.parts.clear();
            first.content = match first.content.as_str() {
                "" => text,
                content => format!("{text}\n\n{content}"),
            };
        }
        None => messages.push(Message::new("user", text)),
    }
    messages
}

fn as_text(message: &Message) -> Message {
    let call = |call: &MessageCall| json!({"name": call.name, "arguments": call.value()});
    if message.role == "tool" {
        let text = match &message.name {
            Some(name) => format!("Result of {name}: {}", message.content),
            None => format!("Result: {}", message.content),
        };
        return Message::new("user", text);
    }
    if message.tool_calls.is_empty() {
        return message.clone();
    }
    let calls = message.tool_calls.iter().map(|c| call(c).to_string());
    let text = Some(&message.content).filter(|text| !text.is_empty()).cloned();
    let parts: Vec<_> = text.into_iter().chain(calls).collect();
    Message {
        content: parts.join("\n"),
        reasoning: message.reasoning.clone(),
        ..Message::new(&message.role, "")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::ToolFormat;

    const KNOWS: &str = "{% for t in tools or [] %}[{{ t.function.name }}]{% endfor %}\
        {% for m in messages %}{{ m.content }}{% endfor %}\
        {{ reasoning_effort }}{{ enable_thinking }}\
        {{ '<think>\n' if add_generation_prompt }}<tool_call></tool_call>";

    fn tool(name: &str) -> Tool {
        Tool { name: name.into(), description: None, parameters: json!({"type": "object"}) }
    }

    fn conversation() -> Conversation {
        Conversation {
            messages: vec![Message::new("user", "Hi")],
            tools: vec![tool("time")],
            ..Conversation::default()
        }
    }

    fn text(conversation: &Conversation, source: &str) -> String {
        let template = ChatTemplate::new(source, "", "").unwrap();
        conversation.prompt(&template).unwrap().text
    }

    #[test]
    fn tools_and_variables_reach_the_template() {
        let source = KNOWS.replace("<tool_call></tool_call>", "{# <tool_call> #}");
        assert_eq!(text(&conversation(), &source), "[time]Hi<think>\n");
        let none = Conversation { tool_choice: ToolChoice::None, ..conversation() };
        assert_eq!(text(&none, &source), "Hi<think>\n");
        let mut effort = Conversation { reasoning_effort: Some("none".into()), ..conversation() };
        assert_eq!(text(&effort, &source), "[time]HinoneFalse<think>\n");
        effort.variables.insert("enable_thinking".into(), json!("x"));
        assert_eq!(text(&effort, &source), "[time]Hinonex<think>\n");
        let template = ChatTemplate::new(&source, "", "").unwrap();
        let prompt = conversation().prompt(&template).unwrap();
        assert!(prompt.in_reasoning && prompt.format.tools == ToolFormat::Hermes);
        let continued = Conversation { continue_final_message: true, ..conversation() };
        let prompt = continued.prompt(&template).unwrap();
        assert_eq!((prompt.text.as_str(), prompt.in_reasoning), ("[time]Hi", false));
    }

    #[test]
    fn a_template_without_tools_gets_them_as_text() {
        let source = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
        let mut conversation = conversation();
        conversation.messages.push(Message {
            tool_calls: vec![MessageCall {
                id: "1".into(),
                name: "time".into(),
                arguments: json!({"zone": 1}),
            }],
            ..Message::new("assistant", "")
        });
        conversation.messages.push(Message::new("tool", "noon"));
        let text = text(&conversation, source);
        assert!(text.starts_with("<user>You can call these tools:\n{\"name\":\"time\""), "{text}");
        assert!(
            text.ends_with(
                "\n\nHi<assistant>{\"name\":\"time\",\"arguments\":{\"zone\":1}}<user>Result: noon"
            ),
            "{text}"
        );
    }

    #[test]
    fn a_choice_must_fit_the_tools() {
        let template = ChatTemplate::new("", "", "").unwrap();
        let prompt = |tool_choice, tools| {
            let conversation = Conversation { tools, tool_choice, ..conversation() };
            conversation.prompt(&template)
        };
        assert!(matches!(prompt(ToolChoice::Required, vec![]), Err(Error::NoTools)));
        let error = prompt(ToolChoice::Named("x".into()), vec![tool("a"), tool("b")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "tool_choice names the tool `x`, which is not among the tools: a, b"
        );
        for (value, expected) in [
            (json!("required"), Some(ToolChoice::Required)),
            (
                json!({"type": "function", "function": {"name": "f"}}),
                Some(ToolChoice::Named("f".into())),
            ),
            (json!({"type": "function", "name": "f"}), Some(ToolChoice::Named("f".into()))),
            (json!(null), Some(ToolChoice::Auto)),
            (json!("never"), None),
            (json!(5), None),
        ] {
            assert_eq!(ToolChoice::from_json(&value).ok(), expected, "{value}");
        }
    }
}
