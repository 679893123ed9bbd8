//! Grammars of whole answers: reasoning, then content or calls in the model's own form.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use rf_chat::{Prompt, Tool, ToolChoice, ToolFormat};
use rf_tokenizer::Tokenizer;
use serde_json::Value;

use crate::grammar::with_options;
use crate::lark::literal;
use crate::{Error, Grammar};

/// The beginning of names in `DeepSeek`'s tags. Some vocabularies have it as a control token.
const DEEP_SEEK: &str = "｜DSML｜";

/// The grammar of an answer with reasoning and content, in Lark; `None` if nothing precedes the
/// content.
pub(crate) fn content(
    prompt: &Prompt,
    tokenizer: &Tokenizer,
    grammar: &Grammar,
) -> Result<Option<String>, Error> {
    let mut writer = Writer::new(tokenizer);
    let reasoning = writer.reasoning(prompt);
    let header = if prompt.format.tools == ToolFormat::Harmony && !prompt.in_content {
        let [channel, message] = ["<|channel|>", "<|message|>"].map(|m| writer.marker(m));
        format!("{channel} \"final\" {message}")
    } else {
        String::new()
    };
    if reasoning.is_empty() && header.is_empty() {
        return Ok(None);
    }
    let value = grammar.value()?;
    Ok(Some(writer.finish(&format!("{reasoning} {header} output"), &format!("output: {value}\n"))))
}

/// The grammar of an answer with reasoning and calls, in Lark; `None` if no call is demanded.
pub(crate) fn calls(prompt: &Prompt, tokenizer: &Tokenizer, parallel: bool) -> Option<String> {
    let demanded = |tool: &&Tool| match &prompt.tool_choice {
        ToolChoice::Required => true,
        ToolChoice::Named(name) => tool.name == *name,
        ToolChoice::Auto | ToolChoice::None => false,
    };
    let tools: Vec<_> = prompt.tools.iter().filter(demanded).collect();
    if tools.is_empty() {
        return None;
    }
    let several = parallel && prompt.tool_choice == ToolChoice::Required;
    let mut writer = Writer::new(tokenizer);
    let reasoning = writer.reasoning(prompt);
    let calls: Vec<_> = tools.iter().map(|tool| writer.call(prompt.format.tools, tool)).collect();
    let all = writer.sequence(prompt.format.tools, several);
    Some(writer.finish(&format!("{reasoning} {all}"), &format!("call: {}\n", calls.join(" | "))))
}

/// Collects rules.
struct Writer<'a> {
    tokenizer: &'a Tokenizer,
    rules: BTreeSet<String>,
}

impl<'a> Writer<'a> {
    fn new(tokenizer: &'a Tokenizer) -> Self {
        Self { tokenizer, rules: BTreeSet::new() }
    }

    fn finish(self, start: &str, rules: &str) -> String {
        let mut lark = format!("start: {start}\n{rules}");
        for rule in self.rules {
            // Writing to a string cannot fail.
            let _: std::fmt::Result = writeln!(lark, "{rule}");
        }
        lark
    }

    /// A marker: a control token by its id, otherwise its text.
    fn marker(&self, text: &str) -> String {
        match self.tokenizer.id_of(text).filter(|id| self.tokenizer.is_control(*id)) {
            Some(id) => format!("<[{id}]>"),
            None => literal(text),
        }
    }

    /// A text in which `DeepSeek`'s prefix may be a control token.
    fn tag(&self, text: &str) -> String {
        let prefix = self.marker(DEEP_SEEK);
        match text.split_once(DEEP_SEEK).filter(|_| prefix.starts_with('<')) {
            Some((before, after)) => format!("{} {prefix} {}", literal(before), literal(after)),
            None => literal(text),
        }
    }

    /// Any text up to and with `end`.
    fn until(&mut self, name: &str, end: &str) -> String {
        let marker = self.marker(end);
        let prefix = self.marker(DEEP_SEEK);
        let after_prefix = end.split_once(DEEP_SEEK).filter(|_| prefix.starts_with('<'));
        let rule = if let Some((_, after)) = after_prefix {
            // The text before a token ends with that of the tag.
            format!("{name}: /(?s:.*)<\\// {prefix} {}", literal(after))
        } else if marker.starts_with('<') {
            format!("{name}: /(?s:.*)/ {marker}")
        } else {
            format!("{name}[suffix={marker}]: /(?s:.*)/")
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
        if format.tools == ToolFormat::Harmony {
            let [start, channel, message] =
                ["<|start|>", "<|channel|>", "<|message|>"].map(|marker| self.marker(marker));
            let thought = self.until("thought", "<|end|>");
            return format!("({channel} \"analysis\" {message} {thought} {start} \"assistant\")?");
        }
        let thought = self.until("thought", close) + " /[ \\n]{1,4}/?";
        if prompt.in_reasoning {
            return thought;
        }
        if prompt.text.trim_end().ends_with(close) {
            // The prompt says that there is no reasoning.
            return String::new();
        }
        let open = match open.strip_suffix("thought") {
            Some(token) => self.marker(token) + " \"thought\"",
            None => self.marker(open),
        };
        format!("({open} {thought})?")
    }

    /// One call or several, by the rule `call`.
    fn sequence(&self, format: ToolFormat, several: bool) -> String {
        let array = |inner: &str| format!("{} \"[\" {inner} \"]\"", self.marker("[TOOL_CALLS]"));
        let section = |open: &str, close: &str, several: bool| {
            let calls = if several { "call (/\\n/? call)*" } else { "call" };
            format!("{} {calls} {}", self.marker(open), self.marker(close))
        };
        match (format, several) {
            (ToolFormat::MistralArray, false) => array("call"),
            (ToolFormat::MistralArray, true) => array("call (\", \" call)*"),
            (ToolFormat::DeepSeek | ToolFormat::DeepSeekFenced, _) => {
                section("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", several)
            }
            (ToolFormat::DeepSeekFunctionCalls | ToolFormat::DeepSeekToolCalls, _) => {
                let calls = if several { "call (\"\\n\" call)*" } else { "call" };
                let name = match format {
                    ToolFormat::DeepSeekToolCalls => "tool_calls",
                    _ => "function_calls",
                };
                let [open, close] =
                    ["<", "</"].map(|tag| self.tag(&format!("{tag}{DEEP_SEEK}{name}>")));
                format!("{open} \"\\n\" {calls} \"\\n\" {close}")
            }
            (ToolFormat::Kimi, _) => {
                section("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", several)
            }
            (ToolFormat::Lfm2, _) => {
                let calls = if several { "call (\", \" call)*" } else { "call" };
                let [open, close] =
                    ["<|tool_call_start|>", "<|tool_call_end|>"].map(|m| self.marker(m));
                format!("{open} \"[\" {calls} \"]\" {close}")
            }
            (ToolFormat::MiniMax, _) => {
                let calls = if several { "call (\"\\n\" call)*" } else { "call" };
                let [open, close] =
                    ["<minimax:tool_call>", "</minimax:tool_call>"].map(|m| self.marker(m));
                format!("{open} \"\\n\" {calls} \"\\n\" {close}")
            }
            (ToolFormat::Harmony | ToolFormat::Object, _) | (_, false) => "call".to_owned(),
            (ToolFormat::Llama, true) => "call (\"; \" call)*".to_owned(),
            (_, true) => "call (/\\n/? call)*".to_owned(),
        }
    }

    /// One call of `tool`.
    fn call(&mut self, format: ToolFormat, tool: &Tool) -> String {
        let name = &tool.name;
        let arguments = format!("%json {}", with_options(&tool.parameters));
        let object = |key: &str| {
            let head = format!("{{\"name\": {}, \"{key}\": ", Value::from(name.as_str()));
            format!("{} {arguments} \"}}\"", literal(&head))
        };
        match format {
            ToolFormat::Hermes => format!(
                "{} \"\\n\" {} \"\\n\" {}",
                self.marker("<tool_call>"),
                object("arguments"),
                self.marker("</tool_call>")
            ),
            ToolFormat::Function => self.function(tool),
            ToolFormat::Glm => self.glm(tool),
            ToolFormat::Llama => object("parameters"),
            ToolFormat::Mistral => format!(
                "{} {} {} {arguments}",
                self.marker("[TOOL_CALLS]"),
                literal(name),
                self.marker("[ARGS]")
            ),
            // The parser takes JSON in place of Gemma's notation.
            ToolFormat::Gemma | ToolFormat::FunctionGemma => {
                let [open, close] = if format == ToolFormat::Gemma {
                    ["<|tool_call>", "<tool_call|>"]
                } else {
                    ["<start_function_call>", "<end_function_call>"]
                };
                format!(
                    "{} {} {arguments} {}",
                    self.marker(open),
                    literal(&format!("call:{name}")),
                    self.marker(close)
                )
            }
            ToolFormat::Harmony => format!(
                "{} {} {} \"json\" {} {arguments}",
                self.marker("<|channel|>"),
                literal(&format!("commentary to=functions.{name} ")),
                self.marker("<|constrain|>"),
                self.marker("<|message|>")
            ),
            ToolFormat::DeepSeek => format!(
                "{} {} {} {arguments} {}",
                self.marker("<｜tool▁call▁begin｜>"),
                literal(name),
                self.marker("<｜tool▁sep｜>"),
                self.marker("<｜tool▁call▁end｜>")
            ),
            ToolFormat::DeepSeekFenced => format!(
                "{} \"function\" {} {} {arguments} \"\\n```\" {}",
                self.marker("<｜tool▁call▁begin｜>"),
                self.marker("<｜tool▁sep｜>"),
                literal(&format!("{name}\n```json\n")),
                self.marker("<｜tool▁call▁end｜>")
            ),
            ToolFormat::Kimi => format!(
                "{} {} /[0-9]/ {} {arguments} {}",
                self.marker("<|tool_call_begin|>"),
                literal(&format!("functions.{name}:")),
                self.marker("<|tool_call_argument_begin|>"),
                self.marker("<|tool_call_end|>")
            ),
            ToolFormat::Lfm2 => self.python(tool),
            ToolFormat::DeepSeekFunctionCalls | ToolFormat::DeepSeekToolCalls => {
                self.invoke(DEEP_SEEK, tool)
            }
            ToolFormat::MiniMax => self.invoke("", tool),
            _ => object("arguments"),
        }
    }

    /// `f(key=value, key=value)`, with values in JSON, which the parser takes in place of Python's.
    fn python(&mut self, tool: &Tool) -> String {
        let none = serde_json::Map::new();
        let properties = tool.parameters.get("properties").and_then(Value::as_object);
        let required = tool.parameters.get("required").and_then(Value::as_array);
        // From the last argument to the first: what may follow an argument, and what may be all.
        let (mut rest, mut all) = ("\"\"".to_owned(), "\"\"".to_owned());
        for (key, schema) in properties.unwrap_or(&none).iter().rev() {
            let is_required = required.is_some_and(|names| names.iter().any(|name| name == key));
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
        format!("{} {all} \")\"", literal(&format!("{}(", tool.name)))
    }

    /// `<invoke name="f">\n<parameter name="key">value</parameter>\n</invoke>` of `MiniMax`, and
    /// the same of `DeepSeek` with a prefix of the names, and `string="true"` or `"false"` after
    /// keys.
    fn invoke(&mut self, prefix: &str, tool: &Tool) -> String {
        let end = format!("</{prefix}parameter>\n");
        let arguments = self.each(tool, |writer, key, schema| {
            let (value, is_text) = match texts(schema) {
                Texts::Any => (writer.until("parameter", &end), true),
                Texts::Some(texts) => (format!("({texts}) {}", writer.tag(&end)), true),
                Texts::None => (format!("{} {}", json(tool, schema), writer.tag(&end)), false),
            };
            let flag =
                if prefix.is_empty() { String::new() } else { format!(" string=\"{is_text}\"") };
            let open = format!("<{prefix}parameter name=\"{key}\"{flag}>");
            format!("{} {value}", writer.tag(&open))
        });
        let open = self.tag(&format!("<{prefix}invoke name=\"{}\">\n", tool.name));
        format!("{open} {arguments} {}", self.tag(&format!("</{prefix}invoke>")))
    }

    /// `<tool_call>\n<function=f>\n<parameter=key>\nvalue\n</parameter>\n</function>\n</tool_call>`
    fn function(&mut self, tool: &Tool) -> String {
        let arguments = self.each(tool, |writer, key, schema| {
            let value = match texts(schema) {
                Texts::Any => writer.until("parameter", "\n</parameter>\n"),
                Texts::Some(texts) => format!("({texts}) \"\\n</parameter>\\n\""),
                Texts::None => format!("{} \"\\n</parameter>\\n\"", json(tool, schema)),
            };
            format!("{} {value}", literal(&format!("<parameter={key}>\n")))
        });
        format!(
            "{} {} {arguments} {} {}",
            self.marker("<tool_call>"),
            literal(&format!("\n<function={}>\n", tool.name)),
            literal("</function>\n"),
            self.marker("</tool_call>")
        )
    }

    /// `<tool_call>f\n<arg_key>key</arg_key>\n<arg_value>value</arg_value>\n</tool_call>`
    fn glm(&mut self, tool: &Tool) -> String {
        let close = self.marker("</arg_value>");
        let arguments = self.each(tool, |writer, key, schema| {
            let value = match texts(schema) {
                Texts::Any => writer.until("arg_value", "</arg_value>"),
                Texts::Some(texts) => format!("({texts}) {close}"),
                Texts::None => format!("{} {close}", json(tool, schema)),
            };
            let [open, key_close, value_open] =
                ["<arg_key>", "</arg_key>", "<arg_value>"].map(|marker| writer.marker(marker));
            format!("{open} {} {key_close} \"\\n\" {value_open} {value} \"\\n\"", literal(key))
        });
        format!(
            "{} {} {arguments} {}",
            self.marker("<tool_call>"),
            literal(&format!("{}\n", tool.name)),
            self.marker("</tool_call>")
        )
    }

    /// The arguments in the order of the schema. Those that are not required may be left out.
    fn each(
        &mut self,
        tool: &Tool,
        mut write: impl FnMut(&mut Self, &str, &Value) -> String,
    ) -> String {
        let none = serde_json::Map::new();
        let properties = tool.parameters.get("properties").and_then(Value::as_object);
        let required = tool.parameters.get("required").and_then(Value::as_array);
        let mut arguments = Vec::new();
        for (key, schema) in properties.unwrap_or(&none) {
            let is_required = required.is_some_and(|names| names.iter().any(|name| name == key));
            let argument = write(self, key, schema);
            arguments.push(format!("({argument}){}", if is_required { "" } else { "?" }));
        }
        arguments.join(" ")
    }
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
    let mut schema = with_options(schema);
    if let Some(object) = schema.as_object_mut() {
        for keyword in ["$defs", "definitions"] {
            if let Some(definitions) = tool.parameters.get(keyword) {
                object.entry(keyword).or_insert_with(|| definitions.clone());
            }
        }
    }
    format!("%json {schema}")
}
