//! Calls whose arguments are between tags: those of Qwen3-Coder, GLM, `MiniMax` and
//! `DeepSeek`.

use super::call::{CallStep, Context};
use super::value::ValueReader;
use crate::format::syntax::Tags;
use crate::tool::{MAX_NAME_BYTES, is_name};

/// A call in a tagged form.
#[derive(Debug)]
pub(super) struct TaggedCall {
    tags: &'static Tags,
    state: State,
    name: String,
    /// The beginning of a tag, or a key.
    pending: String,
    /// Arguments so far.
    count: usize,
}

#[derive(Debug)]
enum State {
    NameOpen,
    Name,
    /// Before a key or the end.
    Between,
    Key,
    ValueOpen {
        key: String,
    },
    Value {
        value: ValueReader,
        /// True before the first character of the value.
        first: bool,
    },
}

impl TaggedCall {
    /// A call whose name follows.
    pub(super) fn new(tags: &'static Tags) -> Self {
        Self { tags, state: State::Name, name: String::new(), pending: String::new(), count: 0 }
    }

    /// A call whose tag before the name follows.
    pub(super) fn before_name(tags: &'static Tags) -> Self {
        Self { state: State::NameOpen, ..Self::new(tags) }
    }

    pub(super) fn push(&mut self, c: char, context: &mut Context<'_>) -> CallStep {
        match &mut self.state {
            State::NameOpen => {
                self.pending.push(c);
                if self.pending == self.tags.name_open {
                    self.pending.clear();
                    self.state = State::Name;
                    CallStep::Inside
                } else if self.tags.name_open.starts_with(&self.pending) {
                    CallStep::Inside
                } else {
                    CallStep::Invalid
                }
            }
            State::Name => self.name(c, context),
            State::Between => self.between(c, context),
            State::Key => {
                self.pending.push(c);
                if let Some(key) = self.pending.strip_suffix(self.tags.key_close) {
                    let (key, is_text) = self.tags.key(key);
                    self.pending.clear();
                    if self.tags.value_open.is_empty() {
                        self.begin_value(&key, is_text, context);
                    } else {
                        self.state = State::ValueOpen { key };
                    }
                    CallStep::Inside
                } else if self.pending.len() > MAX_NAME_BYTES {
                    CallStep::Invalid
                } else {
                    CallStep::Inside
                }
            }
            State::ValueOpen { .. } if self.pending.is_empty() && c.is_whitespace() => {
                CallStep::Inside
            }
            State::ValueOpen { key } => {
                self.pending.push(c);
                if self.pending == self.tags.value_open {
                    let key = std::mem::take(key);
                    self.pending.clear();
                    self.begin_value(&key, None, context);
                    CallStep::Inside
                } else if self.tags.value_open.starts_with(&self.pending) {
                    CallStep::Inside
                } else {
                    CallStep::Invalid
                }
            }
            State::Value { .. } => self.value(c, context),
        }
    }

    /// Reports the part of a value that was cut off.
    pub(super) fn finish(&mut self, context: &mut Context<'_>) {
        if let State::Value { value, first: false } = &mut self.state {
            self.pending.chars().for_each(|c| value.push(c, context.sink));
            value.cut_off(context.sink);
        }
    }

    fn name(&mut self, c: char, context: &mut Context<'_>) -> CallStep {
        let close = self.tags.name_close;
        let is_between = close.is_empty() && (c.is_whitespace() || c == '<');
        if !is_between {
            self.name.push(c);
            if close.is_empty() || !self.name.ends_with(close) {
                let fits = self.name.len() <= MAX_NAME_BYTES && c != '<';
                return if fits { CallStep::Inside } else { CallStep::Invalid };
            }
            self.name.truncate(self.name.len() - close.len());
        }
        self.name.truncate(self.name.trim_end().len());
        if !is_name(&self.name) {
            return CallStep::Invalid;
        }
        self.state = State::Between;
        if close.is_empty() {
            // What is not followed by a tag was no name.
            return self.between(c, context);
        }
        context.start_call(&self.name);
        CallStep::Inside
    }

    fn between(&mut self, c: char, context: &mut Context<'_>) -> CallStep {
        if self.pending.is_empty() && c.is_whitespace() {
            return CallStep::Inside;
        }
        self.pending.push(c);
        let (is_key, is_end) = (self.pending == self.tags.key_open, self.pending == self.tags.end);
        if (is_key || is_end) && !context.sink.in_call() {
            // A word between tags is a call without arguments only if a tool has that name.
            if is_end && context.tool(&self.name).is_none() {
                return CallStep::Invalid;
            }
            context.start_call(&self.name);
        }
        if is_key || is_end {
            self.pending.clear();
        }
        if is_key {
            self.state = State::Key;
        } else if is_end {
            context.sink.arguments(if self.count == 0 { "{}" } else { "}" });
            context.sink.complete_arguments();
            return CallStep::Last;
        } else if ![self.tags.key_open, self.tags.end].iter().any(|t| t.starts_with(&self.pending))
        {
            return CallStep::Invalid;
        }
        CallStep::Inside
    }

    fn begin_value(&mut self, key: &str, is_text: Option<bool>, context: &mut Context<'_>) {
        let schema = context.tool(&self.name).map(|tool| (tool, tool.argument(key)));
        let value = match is_text {
            None => ValueReader::new(schema),
            Some(true) => ValueReader::text(),
            Some(false) => ValueReader::json(schema),
        };
        let separator = if self.count == 0 { "{" } else { ", " };
        self.count += 1;
        context.sink.arguments(separator);
        context.sink.arguments(&serde_json::Value::from(key).to_string());
        context.sink.arguments(": ");
        self.state = State::Value { value, first: true };
    }

    fn value(&mut self, c: char, context: &mut Context<'_>) -> CallStep {
        let State::Value { value, first } = &mut self.state else { return CallStep::Invalid };
        if std::mem::take(first) {
            value.begin(context.sink);
            if self.tags.lines && c == '\n' {
                return CallStep::Inside;
            }
        }
        self.pending.push(c);
        let close = self.tags.value_close;
        loop {
            let unbroken = self.pending.strip_prefix('\n').filter(|_| self.tags.lines);
            if self.pending == close || unbroken == Some(close) {
                self.pending.clear();
                value.end(context.sink);
                self.state = State::Between;
                return CallStep::Inside;
            }
            let may_close =
                close.starts_with(&self.pending) || unbroken.is_some_and(|p| close.starts_with(p));
            if may_close {
                return CallStep::Inside;
            }
            let released = self.pending.remove(0);
            value.push(released, context.sink);
        }
    }
}
