//! Calls as Python writes them: `[f(city="Oslo", days=2), g()]`, of LFM2.

use super::call::{CallStep, Context};
use super::json::push_json_char;
use crate::tool::{MAX_NAME_BYTES, is_name, is_name_char};

/// The deepest nesting, as of JSON.
const MAX_DEPTH: usize = 127;

/// A call of a list, converted to JSON as it comes.
#[derive(Debug)]
pub(super) struct PythonCall {
    state: State,
    /// The open containers within the arguments: true for a dictionary.
    open: Vec<bool>,
    /// A name, a key or a value without quotes.
    pending: String,
    /// Arguments so far.
    count: usize,
    /// True if a comma precedes the next element. One before the end is left out.
    comma: bool,
    /// The first half of a character that is escaped as two.
    surrogate: Option<u16>,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// Before the bracket that opens the list.
    List,
    Name,
    KeyOrEnd,
    Key,
    /// Before a value; whether the list may end instead.
    Value {
        or_end: bool,
    },
    /// Before the key of a dictionary, or its end.
    DictionaryKey,
    Text {
        quote: char,
        is_escaped: bool,
        is_key: bool,
    },
    /// The hexadecimal digits of `\u0000` in a text.
    Unicode {
        quote: char,
        is_key: bool,
    },
    /// Before the colon of a dictionary.
    Colon,
    /// A number or a word.
    Bare,
    After,
}

impl PythonCall {
    /// A call after the marker that opens the list, or one of its later calls.
    pub(super) fn new(is_first: bool) -> Self {
        let state = if is_first { State::List } else { State::Name };
        Self {
            state,
            open: Vec::new(),
            pending: String::new(),
            count: 0,
            comma: false,
            surrogate: None,
        }
    }

    pub(super) fn push(&mut self, c: char, context: &mut Context<'_>) -> CallStep {
        let is_space = c.is_whitespace();
        match self.state {
            State::Name | State::Key if is_space && self.pending.is_empty() => CallStep::Inside,
            State::List
            | State::KeyOrEnd
            | State::Value { .. }
            | State::DictionaryKey
            | State::Colon
            | State::After
                if is_space =>
            {
                CallStep::Inside
            }
            State::List if c == '[' => self.go(State::Name),
            State::Name if c == '(' && is_name(&self.pending) => {
                context.start_call(&self.pending);
                self.pending.clear();
                self.go(State::KeyOrEnd)
            }
            State::KeyOrEnd if c == ')' => self.end(context),
            State::KeyOrEnd => {
                self.state = State::Key;
                self.push(c, context)
            }
            State::Key if c == '=' && !self.pending.is_empty() => {
                let key = serde_json::Value::from(self.pending.trim()).to_string();
                self.pending.clear();
                context.sink.arguments(if self.count == 0 { "{" } else { ", " });
                context.sink.arguments(&key);
                context.sink.arguments(": ");
                self.count += 1;
                self.go(State::Value { or_end: false })
            }
            State::Name | State::Key => {
                self.pending.push(c);
                let fits = is_name_char(c) && self.pending.len() <= MAX_NAME_BYTES;
                if fits { CallStep::Inside } else { CallStep::Invalid }
            }
            State::Value { or_end } => self.begin_value(c, or_end, context),
            State::DictionaryKey => match c {
                '"' | '\'' => self.begin_text(c, true, context),
                '}' => self.close(c, context),
                _ => CallStep::Invalid,
            },
            State::Text { quote, is_escaped, is_key } => {
                self.text(c, quote, is_escaped, is_key, context)
            }
            State::Unicode { quote, is_key } => self.unicode(c, quote, is_key, context),
            State::Colon if c == ':' => {
                context.sink.arguments(": ");
                self.go(State::Value { or_end: false })
            }
            State::Bare if is_space || matches!(c, ',' | ')' | ']' | '}') => {
                self.bare(context);
                self.state = State::After;
                self.push(c, context)
            }
            State::Bare => {
                self.pending.push(c);
                CallStep::Inside
            }
            State::After => self.after(c, context),
            State::List | State::Colon => CallStep::Invalid,
        }
    }

    /// Reports the part of a value that was cut off.
    pub(super) fn finish(&mut self, context: &mut Context<'_>) {
        if matches!(self.state, State::Bare) {
            context.sink.arguments(&std::mem::take(&mut self.pending));
        }
    }

    fn go(&mut self, state: State) -> CallStep {
        self.state = state;
        CallStep::Inside
    }

    fn end(&mut self, context: &mut Context<'_>) -> CallStep {
        context.sink.arguments(if self.count == 0 { "{}" } else { "}" });
        context.sink.complete_arguments();
        CallStep::Last
    }

    fn begin_value(&mut self, c: char, or_end: bool, context: &mut Context<'_>) -> CallStep {
        match c {
            '"' | '\'' => self.begin_text(c, false, context),
            '[' | '{' if self.open.len() < MAX_DEPTH => {
                let is_dictionary = c == '{';
                self.separate(context);
                self.open.push(is_dictionary);
                context.sink.argument(c);
                let list = State::Value { or_end: true };
                self.go(if is_dictionary { State::DictionaryKey } else { list })
            }
            ']' if or_end => self.close(c, context),
            _ if c.is_alphanumeric() || matches!(c, '-' | '+' | '.' | '_') => {
                self.separate(context);
                self.pending.push(c);
                self.go(State::Bare)
            }
            _ => CallStep::Invalid,
        }
    }

    fn separate(&mut self, context: &mut Context<'_>) {
        if std::mem::take(&mut self.comma) {
            context.sink.arguments(", ");
        }
    }

    fn begin_text(&mut self, quote: char, is_key: bool, context: &mut Context<'_>) -> CallStep {
        self.separate(context);
        context.sink.argument('"');
        self.go(State::Text { quote, is_escaped: false, is_key })
    }

    fn text(
        &mut self,
        c: char,
        quote: char,
        is_escaped: bool,
        is_key: bool,
        context: &mut Context<'_>,
    ) -> CallStep {
        if !is_escaped && c == quote {
            context.sink.argument('"');
            return self.go(if is_key { State::Colon } else { State::After });
        }
        if is_escaped && c == 'u' {
            return self.go(State::Unicode { quote, is_key });
        }
        let escapes = !is_escaped && c == '\\';
        if !escapes {
            let mut json = String::new();
            match c {
                // Escapes that JSON has, too.
                'n' | 't' | 'r' | 'b' | 'f' if is_escaped => json.extend(['\\', c]),
                // One that it has not stays what it is.
                _ if is_escaped && !matches!(c, '\\' | '"' | '\'' | '/' | '\n') => {
                    json.push_str("\\\\");
                    push_json_char(c, &mut json);
                }
                // A line that continues.
                '\n' if is_escaped => {}
                _ => push_json_char(c, &mut json),
            }
            context.sink.arguments(&json);
        }
        self.go(State::Text { quote, is_escaped: escapes, is_key })
    }

    fn unicode(
        &mut self,
        c: char,
        quote: char,
        is_key: bool,
        context: &mut Context<'_>,
    ) -> CallStep {
        let text = State::Text { quote, is_escaped: false, is_key };
        if !c.is_ascii_hexdigit() {
            // Not an escape: it stays what it is.
            let digits = std::mem::take(&mut self.pending);
            context.sink.arguments("\\\\u");
            context.sink.arguments(&digits);
            self.state = text;
            return self.push(c, context);
        }
        self.pending.push(c);
        if self.pending.len() < 4 {
            return CallStep::Inside;
        }
        let unit = u16::from_str_radix(&self.pending, 16).unwrap_or_default();
        self.pending.clear();
        let first = self.surrogate.take();
        if first.is_none() && (0xD800..0xDC00).contains(&unit) {
            self.surrogate = Some(unit);
        } else {
            let mut json = String::new();
            for found in char::decode_utf16(first.into_iter().chain([unit])) {
                push_json_char(found.unwrap_or(char::REPLACEMENT_CHARACTER), &mut json);
            }
            context.sink.arguments(&json);
        }
        self.go(text)
    }

    fn bare(&mut self, context: &mut Context<'_>) {
        let word = std::mem::take(&mut self.pending);
        let json = match word.as_str() {
            "True" | "true" => "true".to_owned(),
            "False" | "false" => "false".to_owned(),
            "None" | "null" => "null".to_owned(),
            number if serde_json::from_str::<serde_json::Number>(number).is_ok() => word,
            _ => serde_json::Value::from(word).to_string(),
        };
        context.sink.arguments(&json);
    }

    fn after(&mut self, c: char, context: &mut Context<'_>) -> CallStep {
        match (c, self.open.last()) {
            (',', None) => self.go(State::KeyOrEnd),
            (')', None) => self.end(context),
            (',', Some(is_dictionary)) => {
                self.comma = true;
                let list = State::Value { or_end: true };
                self.go(if *is_dictionary { State::DictionaryKey } else { list })
            }
            ('}', Some(true)) | (']', Some(false)) => self.close(c, context),
            _ => CallStep::Invalid,
        }
    }

    fn close(&mut self, c: char, context: &mut Context<'_>) -> CallStep {
        self.open.pop();
        self.comma = false;
        context.sink.argument(c);
        self.go(State::After)
    }
}
