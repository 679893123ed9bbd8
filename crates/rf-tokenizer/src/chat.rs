//! Chat templates: renders a conversation with the Jinja source of a model file.

mod builtin;
mod message;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use chrono::{DateTime, Local};
use minijinja::value::{Kwargs, Value};
use minijinja::{Environment, ErrorKind, State};
use serde::Serialize;
use serde_json::ser::Formatter;

use self::message::Arguments;
use crate::Error;

pub use self::message::{Message, MessageCall};

/// Inputs of a template besides the messages.
#[derive(Debug, Clone, Default)]
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
    pub variables: BTreeMap<String, serde_json::Value>,
    /// The time of `strftime_now`; the current time if `None`.
    pub now: Option<DateTime<Local>>,
}

/// A compiled chat template. It behaves as in the `transformers` library: blocks are trimmed, and
/// `raise_exception`, `strftime_now`, Python's string methods, `break` and `continue` are
/// available.
///
/// The source comes from an untrusted file, so rendering is limited in steps. An endless loop is an
/// error.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: String,
    bos: String,
    eos: String,
}

impl ChatTemplate {
    /// Compiles `source`. `bos` and `eos` are the texts of these tokens, or empty.
    ///
    /// # Errors
    ///
    /// If the source is not a Jinja template.
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<Self, Error> {
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_fuel(Some(MAX_STEPS));
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", strftime_now);
        environment.add_filter("tojson", to_json);
        environment.add_filter("length", length);
        environment.add_filter("count", length);
        environment.add_test("iterable", is_iterable);
        let executed = without_generation_blocks(source);
        environment.add_template_owned(NAME, executed).map_err(Error::TemplateSyntax)?;
        Ok(Self {
            environment,
            source: source.to_owned(),
            bos: bos.to_owned(),
            eos: eos.to_owned(),
        })
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
    /// [`parse_special`](crate::EncodeOptions::parse_special). Most templates include the
    /// beginning-of-sequence token.
    ///
    /// # Errors
    ///
    /// If the template refuses the messages, fails, runs for too long, or leaves out the message
    /// to continue.
    pub fn render(&self, messages: &[Message], options: &RenderOptions) -> Result<String, Error> {
        let mut rendered = self.render_with(messages, Arguments::Object, options);
        let has_calls = messages.iter().any(|message| !message.tool_calls.is_empty());
        if has_calls && matches!(rendered, Err(Error::TemplateFailed(_))) {
            // Older templates expect the arguments of calls as text.
            rendered = self.render_with(messages, Arguments::Text, options).or(rendered);
        }
        match messages.last().filter(|_| options.continue_final_message) {
            Some(last) => message::end_within(rendered?, last),
            None => rendered,
        }
    }

    /// The source of the template.
    pub fn source(&self) -> &str {
        &self.source
    }

    fn render_with(
        &self,
        messages: &[Message],
        arguments: Arguments,
        options: &RenderOptions,
    ) -> Result<String, Error> {
        let messages: Vec<_> = messages.iter().map(|m| m.to_value(arguments)).collect();
        let mut context: BTreeMap<&str, Value> =
            ["tools", "documents"].map(|name| (name, Value::from(()))).into();
        let variables = options.variables.iter();
        context.extend(variables.map(|(name, v)| (name.as_str(), Value::from_serialize(v))));
        context.insert("messages", Value::from_serialize(messages));
        context.insert("add_generation_prompt", Value::from(options.add_generation_prompt));
        context.insert("bos_token", Value::from(self.bos.as_str()));
        context.insert("eos_token", Value::from(self.eos.as_str()));
        let now = options.now.unwrap_or_else(Local::now);
        context.insert(NOW, Value::from(now.to_rfc3339()));
        let render = |template: minijinja::Template<'_, '_>| template.render(context);
        self.environment.get_template(NAME).and_then(render).map_err(template_error)
    }
}

/// The limit of steps. Real templates take a few hundred per message.
const MAX_STEPS: u64 = 5_000_000;

const NAME: &str = "chat_template";

/// The context variable that carries the time to [`strftime_now`].
const NOW: &str = "__now";

/// Marks the message of a refusal, as opposed to a failure.
const REFUSED: &str = "refused: ";

fn template_error(error: minijinja::Error) -> Error {
    match error.detail().and_then(|detail| detail.strip_prefix(REFUSED)) {
        Some(message) if error.kind() == ErrorKind::InvalidOperation => {
            Error::TemplateRefused(message.to_owned())
        }
        _ => Error::TemplateFailed(error),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the signature of template functions")]
fn raise_exception(message: String) -> Result<Value, minijinja::Error> {
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, format!("{REFUSED}{message}")))
}

#[expect(clippy::needless_pass_by_value, reason = "the signature of template functions")]
fn strftime_now(state: &State<'_, '_>, format: String) -> Result<String, minijinja::Error> {
    let invalid = || {
        minijinja::Error::new(ErrorKind::InvalidOperation, format!("bad time format `{format}`"))
    };
    let now = state.lookup(NOW).ok_or_else(invalid)?;
    let now = now.as_str().and_then(|now| DateTime::parse_from_rfc3339(now).ok());
    let mut text = String::new();
    write!(text, "{}", now.ok_or_else(invalid)?.format(&format)).map_err(|_| invalid())?;
    Ok(text)
}

/// As in Python, undefined values are empty, and none has no length.
fn length(value: &Value) -> Result<usize, minijinja::Error> {
    let unsized_value = || {
        let text = format!("a value of type {} has no length", value.kind());
        minijinja::Error::new(ErrorKind::InvalidOperation, text)
    };
    if value.is_undefined() { Ok(0) } else { value.len().ok_or_else(unsized_value) }
}

/// As in Python, none is not iterable; for minijinja it is empty.
fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

/// Python's `json.dumps(value, ensure_ascii=False)`. Unlike minijinja's filter, it escapes no HTML
/// and writes a space after separators. It supports `indent` and `ensure_ascii=True`.
#[expect(clippy::needless_pass_by_value, reason = "the signature of template filters")]
fn to_json(value: Value, options: Kwargs) -> Result<Value, minijinja::Error> {
    let indent: Option<usize> = options.get("indent")?;
    let mut json = Vec::new();
    let written = match indent {
        Some(width) => {
            let indent = " ".repeat(width.min(16));
            let formatter = serde_json::ser::PrettyFormatter::with_indent(indent.as_bytes());
            value.serialize(&mut serde_json::Serializer::with_formatter(&mut json, formatter))
        }
        None => {
            value.serialize(&mut serde_json::Serializer::with_formatter(&mut json, PythonFormatter))
        }
    };
    let error = |text: String| minijinja::Error::new(ErrorKind::BadSerialization, text);
    written.map_err(|cause| error(cause.to_string()))?;
    let mut json = String::from_utf8(json).map_err(|cause| error(cause.to_string()))?;
    if options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false) {
        json = escape_non_ascii(&json);
    }
    Ok(Value::from_safe_string(json))
}

/// JSON has other characters in strings only.
fn escape_non_ascii(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for unit in json.encode_utf16() {
        match u8::try_from(unit) {
            Ok(byte) if byte.is_ascii() => escaped.push(char::from(byte)),
            _ => escaped.extend(["\\u", &format!("{unit:04x}")]),
        }
    }
    escaped
}

/// Writes `{"a": [1, 2]}` instead of `{"a":[1,2]}`.
struct PythonFormatter;

impl Formatter for PythonFormatter {
    fn begin_array_value<W>(&mut self, writer: &mut W, first: bool) -> std::io::Result<()>
    where
        W: ?Sized + std::io::Write,
    {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W>(&mut self, writer: &mut W, first: bool) -> std::io::Result<()>
    where
        W: ?Sized + std::io::Write,
    {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W>(&mut self, writer: &mut W) -> std::io::Result<()>
    where
        W: ?Sized + std::io::Write,
    {
        writer.write_all(b": ")
    }
}

/// Replaces `{% generation %}`, which marks training data and is not Jinja, by `{% if true %}`.
fn without_generation_blocks(source: &str) -> String {
    #[expect(clippy::expect_used, reason = "the expression is a constant")]
    let tag = regex::Regex::new(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}").expect("valid");
    let replace = |tag: &regex::Captures<'_>| {
        let name = if tag.get(2).is_some() { "endif" } else { "if true" };
        format!("{{%{} {name} {}%}}", &tag[1], &tag[3])
    };
    tag.replace_all(source, replace).into_owned()
}
