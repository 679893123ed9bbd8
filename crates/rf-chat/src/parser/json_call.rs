//! Calls whose arguments are JSON: `{"name": …, "arguments": {…}}`, or a name and an object.

use serde_json::Value;

use super::call::{CallStep, Context};
use super::json::{JsonScanner, Scan, push_json_char};
use super::sink::Sink;
use crate::tool::{MAX_NAME_BYTES, is_name, is_name_char};

/// `{"name": "f", "arguments": {…}}`, with the keys in any order. `parameters` is another name of
/// `arguments`; other keys are skipped.
#[derive(Debug, Default)]
pub(super) struct JsonCall {
    /// True if only the tools of the request count.
    known_only: bool,
    state: Object,
    /// A string being read, in quotes.
    text: String,
    name: Option<String>,
    /// Arguments that precede the name.
    early: Option<String>,
    has_arguments: bool,
}

#[derive(Debug, Default)]
enum Object {
    /// Before `{`.
    #[default]
    Before,
    KeyOrEnd,
    Key(JsonScanner),
    Colon,
    BeforeValue,
    Name(JsonScanner),
    Arguments(ArgumentsReader),
    EarlyArguments(JsonScanner),
    /// Arguments as a string that contains JSON, or null.
    OtherArguments(JsonScanner),
    Skip(JsonScanner),
    CommaOrEnd,
    /// After a comma.
    NextKey,
}

impl JsonCall {
    /// A call of the tools of the request, if `known_only`, otherwise of any.
    pub(super) fn new(known_only: bool) -> Self {
        Self { known_only, ..Self::default() }
    }

    pub(super) fn push(&mut self, c: char, context: &mut Context<'_>) -> CallStep {
        let is_space = c.is_ascii_whitespace();
        match &mut self.state {
            Object::Before
            | Object::KeyOrEnd
            | Object::Colon
            | Object::BeforeValue
            | Object::CommaOrEnd
            | Object::NextKey
                if is_space =>
            {
                CallStep::Inside
            }
            Object::Before if c == '{' => self.go(Object::KeyOrEnd),
            Object::KeyOrEnd | Object::NextKey if c == '"' => {
                self.text.clear();
                let mut scanner = JsonScanner::default();
                self.text.push(c);
                scanner.push(c);
                self.go(Object::Key(scanner))
            }
            Object::Colon if c == ':' => self.go(Object::BeforeValue),
            Object::BeforeValue => self.begin_value(c, context),
            Object::Key(scanner) => {
                let scan = scanner.push(c);
                self.read_text(scan, c, Object::Colon)
            }
            Object::Name(scanner) => match scanner.push(c) {
                Scan::Last => {
                    self.text.push(c);
                    self.end_name(context)
                }
                scan => self.read_text(scan, c, Object::CommaOrEnd),
            },
            Object::Arguments(arguments) => match arguments.push(c, context.sink) {
                CallStep::Last => self.go(Object::CommaOrEnd),
                step => step,
            },
            Object::EarlyArguments(scanner) => {
                let early = self.early.get_or_insert_default();
                push_escaped(scanner.in_text(), c, early);
                let scan = scanner.push(c);
                self.skip(scan)
            }
            Object::OtherArguments(scanner) => match scanner.push(c) {
                Scan::Last => {
                    self.text.push(c);
                    self.end_other_arguments(context)
                }
                scan => {
                    self.text.push(c);
                    self.skip(scan)
                }
            },
            Object::Skip(scanner) => match scanner.push(c) {
                // The character ends the number and the object.
                Scan::After => {
                    self.state = Object::CommaOrEnd;
                    self.push(c, context)
                }
                scan => self.skip(scan),
            },
            Object::CommaOrEnd if c == ',' => self.go(Object::NextKey),
            Object::KeyOrEnd | Object::CommaOrEnd if c == '}' => self.end(context),
            Object::Before
            | Object::KeyOrEnd
            | Object::NextKey
            | Object::Colon
            | Object::CommaOrEnd => CallStep::Invalid,
        }
    }

    fn go(&mut self, state: Object) -> CallStep {
        self.state = state;
        CallStep::Inside
    }

    /// Collects a key or name, which is short.
    fn read_text(&mut self, scan: Scan, c: char, next: Object) -> CallStep {
        self.text.push(c);
        match scan {
            Scan::Inside if self.text.len() <= MAX_NAME_BYTES + 2 => CallStep::Inside,
            Scan::Last => self.go(next),
            _ => CallStep::Invalid,
        }
    }

    fn skip(&mut self, scan: Scan) -> CallStep {
        match scan {
            Scan::Inside => CallStep::Inside,
            Scan::Last => self.go(Object::CommaOrEnd),
            Scan::After | Scan::Invalid => CallStep::Invalid,
        }
    }

    fn begin_value(&mut self, c: char, context: &mut Context<'_>) -> CallStep {
        let key: String = serde_json::from_str(&self.text).unwrap_or_default();
        let is_arguments = matches!(key.as_str(), "arguments" | "parameters");
        self.text.clear();
        self.state = match (key.as_str(), c) {
            ("name", _) if self.name.is_some() => return CallStep::Invalid,
            ("name", '"') => Object::Name(JsonScanner::default()),
            ("name", _) => return CallStep::Invalid,
            _ if is_arguments && self.has_arguments => return CallStep::Invalid,
            (_, '{') if is_arguments && self.name.is_some() => {
                self.start(context);
                Object::Arguments(ArgumentsReader::default())
            }
            (_, '{') if is_arguments => Object::EarlyArguments(JsonScanner::default()),
            (_, '"' | 'n') if is_arguments => Object::OtherArguments(JsonScanner::default()),
            _ if is_arguments => return CallStep::Invalid,
            // An object that begins otherwise is an answer in JSON, not a call.
            _ if self.known_only && !matches!(key.as_str(), "type" | "id") => {
                return CallStep::Invalid;
            }
            _ => Object::Skip(JsonScanner::default()),
        };
        self.has_arguments |= is_arguments;
        self.push(c, context)
    }

    fn end_name(&mut self, context: &mut Context<'_>) -> CallStep {
        let name: String = serde_json::from_str(&self.text).unwrap_or_default();
        if !is_name(&name) || (self.known_only && context.tool(&name).is_none()) {
            return CallStep::Invalid;
        }
        self.name = Some(name);
        if let Some(early) = self.early.take() {
            self.start_whole(&early, context);
        }
        self.go(Object::CommaOrEnd)
    }

    fn end_other_arguments(&mut self, context: &mut Context<'_>) -> CallStep {
        let arguments = match serde_json::from_str(&self.text) {
            Ok(Value::Null) => "{}".to_owned(),
            Ok(Value::String(json)) if json.trim().is_empty() => "{}".to_owned(),
            Ok(Value::String(json)) if serde_json::from_str::<JsonObject>(&json).is_ok() => json,
            _ => return CallStep::Invalid,
        };
        if self.name.is_some() {
            self.start_whole(&arguments, context);
        } else {
            self.early = Some(arguments);
        }
        self.go(Object::CommaOrEnd)
    }

    fn start(&mut self, context: &mut Context<'_>) {
        context.start_call(self.name.as_deref().unwrap_or_default());
    }

    fn start_whole(&mut self, arguments: &str, context: &mut Context<'_>) {
        self.start(context);
        context.sink.arguments(arguments);
        context.sink.complete_arguments();
    }

    fn end(&mut self, context: &mut Context<'_>) -> CallStep {
        if self.name.is_none() {
            return CallStep::Invalid;
        }
        if !self.has_arguments {
            self.start_whole("{}", context);
        }
        CallStep::Last
    }
}

type JsonObject = serde_json::Map<String, Value>;

/// A name and a JSON object: `f[ARGS]{…}`, with or without `[CALL_ID]…` and `[ARGS]`.
#[derive(Debug, Default)]
pub(super) struct NamedCall {
    name: String,
    /// The text after `[`, or the white space after the name.
    bracket: Option<String>,
    arguments: Option<ArgumentsReader>,
}

impl NamedCall {
    pub(super) fn push(&mut self, c: char, context: &mut Context<'_>) -> CallStep {
        if let Some(arguments) = &mut self.arguments {
            return arguments.push(c, context.sink);
        }
        match (&mut self.bracket, c) {
            (_, '{') => {
                context.start_call(&self.name);
                self.arguments.insert(ArgumentsReader::default()).push(c, context.sink)
            }
            (bracket, '[') => {
                *bracket = Some(String::new());
                CallStep::Inside
            }
            (Some(text), _) => {
                text.push(c);
                if is_bracket(text) { CallStep::Inside } else { CallStep::Invalid }
            }
            (None, _) if is_name_char(c) && self.name.len() < MAX_NAME_BYTES => {
                self.name.push(c);
                CallStep::Inside
            }
            // Only a bracket or the arguments may follow.
            (bracket @ None, ' ') => {
                *bracket = Some(String::new());
                CallStep::Inside
            }
            _ => CallStep::Invalid,
        }
    }
}

/// Returns true if `text` may follow `[` before the arguments: `ARGS]`, or `CALL_ID]` and an id.
fn is_bracket(text: &str) -> bool {
    let rest = |marker: &str| match text.strip_prefix(marker) {
        Some(rest) => Some(rest.to_owned()),
        None => marker.starts_with(text).then(String::new),
    };
    let id =
        rest("CALL_ID]").filter(|id| id.len() < 64 && id.trim().chars().all(char::is_alphanumeric));
    text.trim().is_empty() || id.is_some() || rest("ARGS]").is_some_and(|r| r.trim().is_empty())
}

/// The JSON object of a call that has begun, passed on as it is. Control characters in strings,
/// which models write but JSON forbids, are escaped.
#[derive(Debug, Default)]
pub(super) struct ArgumentsReader {
    scanner: JsonScanner,
    begun: bool,
}

impl ArgumentsReader {
    pub(super) fn push(&mut self, c: char, sink: &mut Sink) -> CallStep {
        if !self.begun && c != '{' {
            return if c.is_whitespace() { CallStep::Inside } else { CallStep::Invalid };
        }
        self.begun = true;
        let in_text = self.scanner.in_text();
        let scan = self.scanner.push(c);
        if matches!(scan, Scan::Inside | Scan::Last) {
            let mut text = String::new();
            push_escaped(in_text, c, &mut text);
            sink.arguments(&text);
        }
        match scan {
            Scan::Inside => CallStep::Inside,
            Scan::Last => {
                sink.complete_arguments();
                CallStep::Last
            }
            Scan::After | Scan::Invalid => CallStep::Invalid,
        }
    }
}

/// Appends a character of JSON, escaped if a string contains it raw.
fn push_escaped(in_text: bool, c: char, json: &mut String) {
    if in_text && c.is_control() && c.is_ascii() {
        push_json_char(c, json);
    } else {
        json.push(c);
    }
}
