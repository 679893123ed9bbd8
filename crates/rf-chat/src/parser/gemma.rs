//! Gemma's calls: `call:f{key:<|"|>text<|"|>,list:[1,true],object:{key:null}}`.

use super::call::{CallStep, Context};
use super::json::{JsonScanner, Scan, push_json_char};
use crate::tool::{MAX_NAME_BYTES, is_name};

/// The deepest nesting, as of JSON.
const MAX_DEPTH: usize = 127;

const PREFIX: &str = "call:";

/// A call of Gemma 4 or `FunctionGemma`, converted to JSON as it comes. Keys have no quotes; those
/// of strings are a special marker.
#[derive(Debug)]
pub(super) struct GemmaCall {
    quote: &'static str,
    state: State,
    /// The open containers: true for an object.
    open: Vec<bool>,
    /// A name, a key, a bare value or the beginning of a quote.
    pending: String,
    /// True if a comma precedes the next key or value. Models write one before the end, too.
    comma: bool,
}

#[derive(Debug)]
enum State {
    Prefix,
    Name,
    KeyOrEnd,
    Key,
    /// Before a value; whether the array may end instead.
    Value {
        or_end: bool,
    },
    /// The quote that opens a string.
    Quote,
    Text,
    /// A string in the quotes of JSON.
    JsonText(JsonScanner),
    /// A string in the quotes of Python; whether the next character is escaped. What may be its end
    /// is pending, because models write apostrophes as they are.
    PythonText {
        is_escaped: bool,
    },
    /// A number or a word.
    Bare,
    CommaOrEnd,
}

impl GemmaCall {
    /// A call after its opening marker.
    pub(super) fn new(quote: &'static str) -> Self {
        Self { quote, state: State::Prefix, open: Vec::new(), pending: String::new(), comma: false }
    }

    pub(super) fn push(&mut self, c: char, context: &mut Context<'_>) -> CallStep {
        match &mut self.state {
            State::Prefix => self.prefix(c),
            State::Name if c == '{' => {
                let name = self.pending.trim();
                if !is_name(name) {
                    return CallStep::Invalid;
                }
                context.start_call(name);
                self.pending.clear();
                self.begin_container(c, context)
            }
            State::Name => {
                self.pending.push(c);
                self.limited(!matches!(c, '<' | '\n'))
            }
            State::KeyOrEnd | State::Value { .. } | State::CommaOrEnd if c.is_whitespace() => {
                CallStep::Inside
            }
            State::KeyOrEnd if c == '}' => self.close(c, context),
            State::KeyOrEnd => {
                self.pending.push(c);
                self.go(State::Key)
            }
            State::Key => {
                self.pending.push(c);
                self.key(c, context)
            }
            State::Value { or_end } => {
                let or_end = *or_end;
                self.begin_value(c, or_end, context)
            }
            State::Quote => {
                self.pending.push(c);
                if self.pending == self.quote {
                    self.pending.clear();
                    self.separate(context);
                    context.sink.argument('"');
                    self.go(State::Text)
                } else if self.quote.starts_with(&self.pending) {
                    CallStep::Inside
                } else {
                    CallStep::Invalid
                }
            }
            State::Text => {
                self.pending.push(c);
                self.text(context)
            }
            State::JsonText(scanner) => {
                let scan = scanner.push(c);
                match scan {
                    Scan::Inside | Scan::Last if c.is_control() => {
                        let mut json = String::new();
                        push_json_char(c, &mut json);
                        context.sink.arguments(&json);
                    }
                    Scan::Inside | Scan::Last => context.sink.argument(c),
                    Scan::After | Scan::Invalid => return CallStep::Invalid,
                }
                if scan == Scan::Last { self.go(State::CommaOrEnd) } else { CallStep::Inside }
            }
            State::PythonText { is_escaped } => {
                let is_escaped = *is_escaped;
                self.python_text(c, is_escaped, context)
            }
            State::Bare if matches!(c, ',' | '}' | ']') => {
                self.bare(context);
                self.state = State::CommaOrEnd;
                self.push(c, context)
            }
            State::Bare => {
                self.pending.push(c);
                CallStep::Inside
            }
            State::CommaOrEnd => match (c, self.open.last()) {
                (',', Some(is_object)) => {
                    self.comma = true;
                    self.state =
                        if *is_object { State::KeyOrEnd } else { State::Value { or_end: true } };
                    CallStep::Inside
                }
                ('}', Some(true)) | (']', Some(false)) => self.close(c, context),
                // Models leave out commas.
                (_, Some(is_object)) if c.is_alphanumeric() || matches!(c, '"' | '\'') => {
                    self.comma = true;
                    self.state =
                        if *is_object { State::KeyOrEnd } else { State::Value { or_end: true } };
                    self.push(c, context)
                }
                _ => CallStep::Invalid,
            },
        }
    }

    /// Reports the part of a value that was cut off.
    pub(super) fn finish(&mut self, context: &mut Context<'_>) {
        match self.state {
            State::Text => self.pending.chars().for_each(|c| push_text(c, context)),
            State::Bare => self.bare(context),
            _ => {}
        }
    }

    fn bare(&mut self, context: &mut Context<'_>) {
        self.separate(context);
        context.sink.arguments(&bare_json(self.pending.trim()));
        self.pending.clear();
    }

    fn go(&mut self, state: State) -> CallStep {
        self.state = state;
        CallStep::Inside
    }

    fn limited(&self, fits: bool) -> CallStep {
        if fits && self.pending.len() <= MAX_NAME_BYTES {
            CallStep::Inside
        } else {
            CallStep::Invalid
        }
    }

    fn prefix(&mut self, c: char) -> CallStep {
        if self.pending.is_empty() && c.is_whitespace() {
            return CallStep::Inside;
        }
        self.pending.push(c);
        if self.pending == PREFIX {
            self.pending.clear();
            self.go(State::Name)
        } else if PREFIX.starts_with(&self.pending) {
            CallStep::Inside
        } else {
            CallStep::Invalid
        }
    }

    fn begin_container(&mut self, c: char, context: &mut Context<'_>) -> CallStep {
        if self.open.len() == MAX_DEPTH {
            return CallStep::Invalid;
        }
        self.separate(context);
        context.sink.argument(c);
        self.open.push(c == '{');
        self.go(if c == '{' { State::KeyOrEnd } else { State::Value { or_end: true } })
    }

    fn close(&mut self, c: char, context: &mut Context<'_>) -> CallStep {
        self.comma = false;
        context.sink.argument(c);
        self.open.pop();
        if self.open.is_empty() {
            context.sink.complete_arguments();
            return CallStep::Last;
        }
        self.go(State::CommaOrEnd)
    }

    /// A key ends at the colon, which may be part of it only in quotes.
    fn key(&mut self, c: char, context: &mut Context<'_>) -> CallStep {
        if c != ':' {
            let quoted = self.pending.starts_with(['"', '\'', '<']);
            return self.limited(quoted || !matches!(c, '{' | '}' | '\n'));
        }
        let text = self.pending.trim_end_matches(':').trim();
        let key = [self.quote, "\"", "'"]
            .iter()
            .find_map(|quote| text.strip_prefix(quote).map(|rest| rest.strip_suffix(quote)));
        let key = match key {
            None => text,
            Some(Some(key)) => key,
            // The quote is still open.
            Some(None) => return self.limited(true),
        };
        let json = serde_json::Value::from(key).to_string();
        self.pending.clear();
        self.separate(context);
        context.sink.arguments(&json);
        context.sink.arguments(": ");
        self.go(State::Value { or_end: false })
    }

    fn separate(&mut self, context: &mut Context<'_>) {
        if std::mem::take(&mut self.comma) {
            context.sink.arguments(", ");
        }
    }

    fn begin_value(&mut self, c: char, or_end: bool, context: &mut Context<'_>) -> CallStep {
        match c {
            '{' | '[' => self.begin_container(c, context),
            ']' if or_end => self.close(c, context),
            '"' => {
                self.separate(context);
                let mut scanner = JsonScanner::default();
                scanner.push(c);
                context.sink.argument(c);
                self.go(State::JsonText(scanner))
            }
            '\'' => {
                self.separate(context);
                context.sink.argument('"');
                self.go(State::PythonText { is_escaped: false })
            }
            ',' | '}' | ']' | ':' => CallStep::Invalid,
            _ if self.quote.starts_with(c) => {
                self.pending.push(c);
                self.go(State::Quote)
            }
            _ => {
                self.pending.push(c);
                self.go(State::Bare)
            }
        }
    }

    /// A quote ends the text if a comma or the end of a container follows it.
    fn python_text(&mut self, c: char, is_escaped: bool, context: &mut Context<'_>) -> CallStep {
        if !self.pending.is_empty() {
            if c.is_whitespace() {
                self.pending.push(c);
                return CallStep::Inside;
            }
            let pending = std::mem::take(&mut self.pending);
            if matches!(c, ',' | '}' | ']') {
                context.sink.argument('"');
                self.state = State::CommaOrEnd;
                return self.push(c, context);
            }
            pending.chars().for_each(|c| push_text(c, context));
        }
        match c {
            '\'' if !is_escaped => self.pending.push(c),
            '\\' if !is_escaped => return self.go(State::PythonText { is_escaped: true }),
            'n' | 't' | 'r' if is_escaped => {
                context.sink.argument('\\');
                context.sink.argument(c);
            }
            '\\' | '\'' | '"' => push_text(c, context),
            _ => {
                if is_escaped {
                    push_text('\\', context);
                }
                push_text(c, context);
            }
        }
        self.go(State::PythonText { is_escaped: false })
    }

    /// Passes on what cannot be the closing quote.
    fn text(&mut self, context: &mut Context<'_>) -> CallStep {
        loop {
            if self.pending == self.quote {
                self.pending.clear();
                context.sink.argument('"');
                return self.go(State::CommaOrEnd);
            }
            if self.quote.starts_with(&self.pending) {
                return CallStep::Inside;
            }
            push_text(self.pending.remove(0), context);
        }
    }
}

/// Adds a character of a string to the arguments.
fn push_text(c: char, context: &mut Context<'_>) {
    let mut json = String::new();
    push_json_char(c, &mut json);
    context.sink.arguments(&json);
}

/// A bare value as JSON: a number, `true`, `false` or `null`, otherwise a string.
fn bare_json(text: &str) -> String {
    match serde_json::from_str::<serde_json::Value>(text) {
        Ok(_) => text.to_owned(),
        Err(_) => serde_json::Value::from(text).to_string(),
    }
}
