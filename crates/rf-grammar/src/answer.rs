//! Grammars of whole answers: reasoning, then content or calls in the model's own form.
//!
//! The text of calls is data of rf-chat ([`CallSyntax`](rf_chat::CallSyntax)). It becomes Lark
//! here.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use rf_chat::{CallPiece, Prompt, Tags, Tool, ToolChoice};
use rf_tokenizer::Tokenizer;
use serde_json::Value;

use crate::check::schema_bytes;
use crate::lark::literal;
use crate::limits::{MAX_TOOLS_BYTES, at_most};
use crate::schema::{Purpose, has_references, part_of, prepared};
use crate::{Error, Grammar};

/// The grammar of an answer with reasoning and content, in Lark; `None` if nothing precedes the
/// content.
pub(crate) fn content(
    prompt: &Prompt,
    tokenizer: &Tokenizer,
    grammar: &Grammar,
) -> Result<Option<String>, Error> {
    let mut writer = Writer::new(prompt, tokenizer);
    let reasoning = writer.reasoning(prompt);
    let header = if prompt.in_content { "" } else { prompt.format.before_content() };
    let header = writer.text(header);
    if reasoning.is_empty() && header.is_empty() {
        return Ok(None);
    }
    let value = grammar.value()?;
    Ok(Some(writer.finish(&format!("{reasoning} {header} output"), &format!("output: {value}\n"))))
}

/// The tools of which one call is demanded.
pub(crate) fn demanded(prompt: &Prompt) -> Vec<&Tool> {
    let is_demanded = |tool: &&Tool| match &prompt.tool_choice {
        ToolChoice::Required => true,
        ToolChoice::Named(name) => tool.name == *name,
        ToolChoice::Auto | ToolChoice::None => false,
    };
    prompt.tools.iter().filter(is_demanded).collect()
}

/// The grammar of an answer with reasoning and calls of `tools`, in Lark.
pub(crate) fn calls(
    prompt: &Prompt,
    tools: &[&Tool],
    tokenizer: &Tokenizer,
    parallel: bool,
) -> Result<String, Error> {
    // Each argument with references has the whole schema.
    let repeated = tools.iter().map(|tool| {
        let arguments = arguments(tool).into_iter();
        let with_references = arguments.filter(|argument| has_references(argument.schema)).count();
        with_references * schema_bytes(&tool.parameters)
    });
    let quantity = "the size of the arguments with the schemas that they refer to, in bytes,";
    at_most(quantity, repeated.sum(), 4 * MAX_TOOLS_BYTES)?;
    let several = parallel && prompt.tool_choice == ToolChoice::Required;
    let mut writer = Writer::new(prompt, tokenizer);
    let reasoning = writer.reasoning(prompt);
    let syntax = prompt.format.tools.syntax();
    let calls: Vec<_> = tools.iter().map(|tool| writer.pieces(syntax.call, tool)).collect();
    let all = match syntax.between.filter(|_| several) {
        Some(CallPiece::LineBreak) => "call (/\\n/? call)*".to_owned(),
        Some(CallPiece::Text(text)) => format!("call ({} call)*", literal(text)),
        _ => "call".to_owned(),
    };
    let [header, first, last] =
        [prompt.format.before_calls(), syntax.first, syntax.last].map(|text| writer.text(text));
    let start = format!("{reasoning} {header} {first} {all} {last}");
    Ok(writer.finish(&start, &format!("call: {}\n", calls.join(" | "))))
}

/// Collects rules.
struct Writer {
    /// The markers of the format that are control tokens.
    tokens: Vec<(&'static str, u32)>,
    rules: BTreeSet<String>,
}

impl Writer {
    fn new(prompt: &Prompt, tokenizer: &Tokenizer) -> Self {
        let token = |text: &'static str| {
            let id = tokenizer.id_of(text).filter(|id| tokenizer.is_control(*id))?;
            Some((text, id))
        };
        let tokens = prompt.format.markers().filter_map(token).collect();
        Self { tokens, rules: BTreeSet::new() }
    }

    fn finish(self, start: &str, rules: &str) -> String {
        let mut lark = format!("start: {start}\n{rules}");
        for rule in self.rules {
            // Writing to a string cannot fail.
            let _: std::fmt::Result = writeln!(lark, "{rule}");
        }
        lark
    }

    /// The first control token in `text`: the text before it, its id, and the text after it.
    fn split<'t>(&self, text: &'t str) -> Option<(&'t str, u32, &'t str)> {
        let found = self.tokens.iter().filter_map(|(marker, id)| {
            let at = text.find(marker)?;
            Some((at, std::cmp::Reverse(marker.len()), *id))
        });
        let (at, std::cmp::Reverse(len), id) = found.min()?;
        Some((&text[..at], id, &text[at + len..]))
    }

    /// A text of the format: control tokens by their ids, the rest as it is.
    fn text(&self, mut text: &str) -> String {
        let mut parts = Vec::new();
        while let Some((before, id, after)) = self.split(text) {
            parts.extend((!before.is_empty()).then(|| literal(before)));
            parts.push(format!("<[{id}]>"));
            text = after;
        }
        parts.extend((!text.is_empty()).then(|| literal(text)));
        parts.join(" ")
    }

    /// Any text up to and with `end`.
    fn until(&mut self, name: &str, end: &str) -> String {
        let rule = match self.split(end) {
            // No text contains the token, so that what precedes the token ends the text.
            Some((before, id, after)) => {
                let before = pattern(before);
                format!("{name}: /(?s:.*){before}/ <[{id}]> {}", self.text(after))
            }
            None => format!("{name}[suffix={}]: /(?s:.*)/", literal(end)),
        };
        self.rules.insert(rule);
        name.to_owned()
    }

    /// The reasoning that may or must come first.
    fn reasoning(&mut self, prompt: &Prompt) -> String {
        let format = prompt.format;
        let (open, close) = format.reasoning.markers();
        if prompt.in_content || !format.template_knows_reasoning {
            return String::new();
        }
        // The prompt may say that there is no reasoning.
        if !prompt.in_reasoning && prompt.text.trim_end().ends_with(close) {
            return String::new();
        }
        let after = match format.reasoning.after() {
            "" => "/[ \\n]{1,4}/?".to_owned(),
            text => self.text(text),
        };
        let thought = format!("{} {after}", self.until("thought", close));
        if prompt.in_reasoning { thought } else { format!("({} {thought})?", self.text(open)) }
    }

    /// One call of `tool`.
    fn pieces(&mut self, pieces: &[CallPiece], tool: &Tool) -> String {
        let written: Vec<_> = pieces.iter().map(|piece| self.piece(*piece, tool)).collect();
        written.join(" ")
    }

    fn piece(&mut self, piece: CallPiece, tool: &Tool) -> String {
        match piece {
            CallPiece::Text(text) => self.text(text),
            CallPiece::LineBreak => "/\\n/?".to_owned(),
            CallPiece::Digit => "/[0-9]/".to_owned(),
            CallPiece::Name => literal(&tool.name),
            CallPiece::QuotedName => literal(&Value::from(tool.name.as_str()).to_string()),
            CallPiece::Arguments => {
                format!("%json {}", prepared(&tool.parameters, Purpose::Arguments))
            }
            CallPiece::Tagged(tags) => self.tagged(tags, tool),
            CallPiece::Keywords => self.keywords(tool),
            // A piece that this adapter does not know allows nothing.
            _ => "/[^\\s\\S]/".to_owned(),
        }
    }

    /// `key=value, key=value`, with values in JSON.
    fn keywords(&mut self, tool: &Tool) -> String {
        // From the last argument to the first: what may follow an argument, and what may be all.
        let (mut rest, mut all) = ("\"\"".to_owned(), "\"\"".to_owned());
        for Argument { key, schema, is_required } in arguments(tool).into_iter().rev() {
            let argument = format!("{} {}", literal(&format!("{key}=")), json(tool, schema));
            let number = self.rules.len();
            let (skip_rest, skip_all) = if is_required {
                (String::new(), String::new())
            } else {
                (format!(" | {rest}"), format!(" | {all}"))
            };
            self.rules.insert(format!("rest{number}: \", \" {argument} {rest}{skip_rest}"));
            self.rules.insert(format!("all{number}: {argument} {rest}{skip_all}"));
            (rest, all) = (format!("rest{number}"), format!("all{number}"));
        }
        all
    }

    /// The arguments in the order of the schema. Those that are not required may be left out.
    fn tagged(&mut self, tags: &Tags, tool: &Tool) -> String {
        let end = tags.value_end();
        let argument = |Argument { key, schema, is_required }| {
            let (value, is_text) = match texts(schema) {
                Texts::Any => (self.until("value", &end), true),
                Texts::Some(texts) => (format!("({texts}) {}", self.text(&end)), true),
                Texts::None => (format!("{} {}", json(tool, schema), self.text(&end)), false),
            };
            let open = self.text(&tags.before_value(key, is_text));
            let optional = if is_required { "" } else { "?" };
            format!("({open} {value} \"\\n\"){optional}")
        };
        arguments(tool).into_iter().map(argument).collect::<Vec<_>>().join(" ")
    }
}

/// An argument of a tool.
struct Argument<'t> {
    key: &'t str,
    schema: &'t Value,
    is_required: bool,
}

/// The arguments of a tool, in the order of its schema.
fn arguments(tool: &Tool) -> Vec<Argument<'_>> {
    let properties = tool.parameters.get("properties").and_then(Value::as_object);
    let required = tool.parameters.get("required").and_then(Value::as_array);
    let is_required =
        |key: &str| required.is_some_and(|names| names.iter().any(|name| name == key));
    let all = properties.into_iter().flatten();
    all.map(|(key, schema)| Argument { key, schema, is_required: is_required(key) }).collect()
}

/// The texts that an argument without quotes may be.
enum Texts {
    /// The argument is JSON.
    None,
    /// Alternatives in Lark.
    Some(String),
    Any,
}

fn texts(schema: &Value) -> Texts {
    let texts = |values: &[Value]| -> Option<Vec<String>> {
        values.iter().map(|value| value.as_str().map(literal)).collect()
    };
    let listed = match (schema.get("enum"), schema.get("const")) {
        (Some(Value::Array(values)), _) => texts(values),
        (_, Some(value)) => texts(std::slice::from_ref(value)),
        _ => None,
    };
    match listed {
        Some(texts) if !texts.is_empty() => Texts::Some(texts.join(" | ")),
        _ if schema.get("type").is_some_and(|name| name == "string") => Texts::Any,
        _ => Texts::None,
    }
}

/// An argument as JSON. Its references refer to the whole schema.
fn json(tool: &Tool, schema: &Value) -> String {
    format!("%json {}", prepared(&part_of(schema, &tool.parameters), Purpose::Arguments))
}

/// A text as a part of a regular expression between slashes.
fn pattern(text: &str) -> String {
    let escaped = |c: char| match c {
        '/' | '\\' | '.' | '+' | '*' | '?' | '(' | ')' | '|' | '[' | ']' | '{' | '}' | '^'
        | '$' => {
            format!("\\{c}")
        }
        '\n' => "\\n".to_owned(),
        c => c.to_string(),
    };
    text.chars().map(escaped).collect()
}
