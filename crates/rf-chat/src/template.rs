//! Chat templates: renders a conversation with the Jinja source of a model file.

mod builtin;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::OnceLock;

use chrono::{DateTime, Local};
use rf_template::{Error as TemplateError, Template};
use rf_tokenizer::Tokenizer;
use serde_json::{Value, json};

use crate::Error;
use crate::message::{self, ArgumentsForm, Content, Message, MessageForm};

/// Inputs of a template besides the messages.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct RenderOptions {
    /// Append the text that starts an answer of the assistant.
    pub add_generation_prompt: bool,
    /// End the prompt within the last message, so that the answer continues its content, or its
    /// reasoning if it has no content. Leave [`add_generation_prompt`](Self::add_generation_prompt)
    /// off then.
    pub continue_final_message: bool,
    /// Further variables by name, such as `tools` or `enable_thinking`. Without a value, `tools`
    /// and `documents` are none, as in `transformers`, and other names are undefined. The variables
    /// of this crate take precedence.
    pub variables: BTreeMap<String, Value>,
    /// The time of `strftime_now`; the current time if `None`.
    pub now: Option<DateTime<Local>>,
}

impl RenderOptions {
    /// The options of a prompt that the model answers: with the text that starts an answer.
    pub fn answer() -> Self {
        Self { add_generation_prompt: true, ..Self::default() }
    }

    /// Sets [`add_generation_prompt`](Self::add_generation_prompt).
    #[must_use]
    pub fn with_add_generation_prompt(mut self, add_generation_prompt: bool) -> Self {
        self.add_generation_prompt = add_generation_prompt;
        self
    }

    /// Sets [`continue_final_message`](Self::continue_final_message).
    #[must_use]
    pub fn with_continue_final_message(mut self, continue_final_message: bool) -> Self {
        self.continue_final_message = continue_final_message;
        self
    }

    /// Sets [`variables`](Self::variables).
    #[must_use]
    pub fn with_variables(mut self, variables: BTreeMap<String, Value>) -> Self {
        self.variables = variables;
        self
    }

    /// Sets [`now`](Self::now).
    #[must_use]
    pub fn with_now(mut self, now: impl Into<Option<DateTime<Local>>>) -> Self {
        self.now = now.into();
        self
    }
}

/// The beginning of a part that a template prints as Python prints it.
const PRINTED_PART: &str = "{'type': 'text'";

/// A text that no template contains.
const PROBE: &str = "rf-chat-probe-5e1f";

/// A compiled chat template. It behaves as in the `transformers` library: blocks are trimmed, and
/// `raise_exception`, `strftime_now`, Python's string methods, `break` and `continue` are
/// available.
///
/// The source comes from an untrusted file. Parsing and rendering are bounded in time, memory and
/// depth, see [`rf_template`].
#[derive(Debug)]
pub struct ChatTemplate {
    template: Template,
    source: String,
    bos: String,
    eos: String,
    /// Variables of all renderings.
    variables: BTreeMap<String, Value>,
    /// True if the template shows the text of a content only as a part of a list.
    needs_parts: OnceLock<bool>,
}

impl ChatTemplate {
    /// Parses `source`. `bos` and `eos` are the texts of these tokens, or empty.
    ///
    /// # Errors
    ///
    /// If the source is not a Jinja template, or too large or deep.
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<Self, Error> {
        Ok(Self {
            template: Template::new(source).map_err(Error::TemplateSyntax)?,
            source: source.to_owned(),
            bos: bos.to_owned(),
            eos: eos.to_owned(),
            variables: BTreeMap::new(),
            needs_parts: OnceLock::new(),
        })
    }

    /// [`new`](Self::new) with the tokens of a model.
    ///
    /// # Errors
    ///
    /// Those of [`new`](Self::new).
    pub fn of_tokenizer(source: &str, tokenizer: &Tokenizer) -> Result<Self, Error> {
        let text = |id: Option<u32>| id.and_then(|id| tokenizer.token(id)).unwrap_or_default();
        Self::new(source, text(tokenizer.bos()), text(tokenizer.eos()))
    }

    /// The template with variables for all renderings, such as `enable_thinking`. Those of
    /// [`RenderOptions::variables`] take precedence.
    #[must_use]
    pub fn with_variables(self, variables: BTreeMap<String, Value>) -> Self {
        Self { variables, ..self }
    }

    /// The built-in template called `name`, for files without one. See
    /// [`builtin_names`](Self::builtin_names).
    ///
    /// # Errors
    ///
    /// If there is no such template.
    pub fn builtin(name: &str) -> Result<Self, Error> {
        let unknown = || Error::UnknownTemplate {
            name: name.to_owned(),
            known: Self::builtin_names().collect::<Vec<_>>().join(", "),
        };
        Self::new(builtin::source(name).ok_or_else(unknown)?, "", "")
    }

    /// The names of the built-in templates, most of them those of `llama.cpp`.
    pub fn builtin_names() -> impl Iterator<Item = &'static str> {
        builtin::names()
    }

    /// The prompt for `messages`. Tokenize it with
    /// [`encode_rendered`](rf_tokenizer::Tokenizer::encode_rendered). Most templates include the
    /// beginning-of-sequence token.
    ///
    /// # Errors
    ///
    /// If the template refuses the messages, fails, needs too much time, memory or depth, or leaves
    /// out the message to continue.
    pub fn render(&self, messages: &[Message], options: &RenderOptions) -> Result<String, Error> {
        let rendered = if self.needs_parts() {
            self.render_calls(messages, Content::OnlyParts, options)
        } else if self.reads_fields(messages) {
            let parts = self.render_calls(messages, Content::Parts, options);
            // Only a template for parts shows them as text: others fail, or print the list.
            match parts.ok().filter(|prompt| !prompt.contains(PRINTED_PART)) {
                Some(prompt) => Ok(prompt),
                None => self.render_calls(messages, Content::Text, options),
            }
        } else {
            self.render_calls(messages, Content::Text, options)
        };
        match messages.last().filter(|_| options.continue_final_message) {
            Some(last) => message::end_within(rendered?, last),
            None => rendered,
        }
    }

    /// The source of the template.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Renders with the arguments of calls as objects, or as older templates expect them.
    fn render_calls(
        &self,
        messages: &[Message],
        content: Content,
        options: &RenderOptions,
    ) -> Result<String, Error> {
        let form = MessageForm { arguments: ArgumentsForm::Object, content };
        let rendered = self.render_with(messages, form, options);
        let has_calls = messages.iter().any(|message| !message.tool_calls.is_empty());
        if !has_calls || !matches!(rendered, Err(Error::TemplateFailed(_))) {
            return rendered;
        }
        let form = MessageForm { arguments: ArgumentsForm::Text, ..form };
        self.render_with(messages, form, options).or(rendered)
    }

    /// Returns true if a text as content is not shown, and a list with the text is: a template of a
    /// model that also reads images may expect lists only.
    fn needs_parts(&self) -> bool {
        *self.needs_parts.get_or_init(|| {
            let messages = [Message::new("user", PROBE)];
            let shows = |content| {
                let form = MessageForm { arguments: ArgumentsForm::Object, content };
                let prompt = self.render_with(&messages, form, &RenderOptions::default());
                prompt.is_ok_and(|p| p.contains(PROBE) && !p.contains(PRINTED_PART))
            };
            // Such a template reads the type or the text of a part.
            self.source.contains("text") && !shows(Content::Text) && shows(Content::OnlyParts)
        })
    }

    /// Returns true if the template names a field of the parts that their text does not tell, such
    /// as the languages of a translation.
    fn reads_fields(&self, messages: &[Message]) -> bool {
        let parts = messages.iter().flat_map(|message| &message.parts);
        let mut fields = parts.filter_map(Value::as_object).flat_map(serde_json::Map::keys);
        fields.any(|field| {
            !matches!(field.as_str(), "type" | "text") && self.source.contains(field.as_str())
        })
    }

    fn render_with(
        &self,
        messages: &[Message],
        form: MessageForm,
        options: &RenderOptions,
    ) -> Result<String, Error> {
        let none = Value::Null;
        let own = [
            ("messages", messages.iter().map(|m| m.to_value(form)).collect()),
            ("add_generation_prompt", json!(options.add_generation_prompt)),
            ("bos_token", json!(self.bos)),
            ("eos_token", json!(self.eos)),
        ];
        let mut variables: BTreeMap<&str, &Value> =
            ["tools", "documents"].map(|name| (name, &none)).into();
        variables.extend(self.variables.iter().map(|(name, value)| (name.as_str(), value)));
        variables.extend(options.variables.iter().map(|(name, value)| (name.as_str(), value)));
        variables.extend(own.iter().map(|(name, value)| (*name, value)));
        let now = options.now.unwrap_or_else(Local::now);
        let clock = |format: &str| {
            let mut text = String::new();
            write!(text, "{}", now.format(format)).ok().map(|()| text)
        };
        self.template.render(variables, &clock).map_err(|error| match error {
            TemplateError::Refused(message) => Error::TemplateRefused(message),
            error => Error::TemplateFailed(error),
        })
    }
}
