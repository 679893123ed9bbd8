//! Calls of a name, a separator and a JSON object between control tokens: `DeepSeek` and Kimi.

use super::call::{CallStep, Context};
use super::json_call::ArgumentsReader;
use crate::format::syntax::Section;
use crate::tool::{MAX_NAME_BYTES, is_name};

/// A call of a section.
#[derive(Debug)]
pub(super) struct SectionCall {
    section: &'static Section,
    state: State,
    /// The text since the state began.
    pending: String,
}

#[derive(Debug)]
enum State {
    /// Before the token that opens a call.
    Before,
    Name,
    /// A name, a line break and the fence.
    Fenced,
    Arguments(ArgumentsReader),
}

impl SectionCall {
    /// A call after `marker`: the one that opens it, or the one before all calls.
    pub(super) fn new(section: &'static Section, marker: &str) -> Self {
        let state = if marker == section.open { State::Name } else { State::Before };
        Self { section, state, pending: String::new() }
    }

    pub(super) fn push(&mut self, c: char, context: &mut Context<'_>) -> CallStep {
        match &mut self.state {
            State::Before if self.pending.is_empty() && c.is_whitespace() => CallStep::Inside,
            State::Before => {
                self.pending.push(c);
                if self.pending == self.section.open {
                    self.go(State::Name)
                } else if self.section.open.starts_with(&self.pending) {
                    CallStep::Inside
                } else {
                    CallStep::Invalid
                }
            }
            State::Name => {
                self.pending.push(c);
                match self.pending.strip_suffix(self.section.separator) {
                    Some(kind) if kind == self.section.kind => self.go(State::Fenced),
                    Some(name) => {
                        let name = name.trim().to_owned();
                        let name =
                            if self.section.is_numbered { without_number(&name) } else { &name };
                        self.start(name, context)
                    }
                    None => self.limited(),
                }
            }
            State::Fenced if c == '{' => {
                let (name, fence) = self.pending.split_once('\n').unwrap_or_default();
                if fence.trim() != self.section.fence {
                    return CallStep::Invalid;
                }
                let name = name.trim().to_owned();
                match self.start(&name, context) {
                    CallStep::Inside => self.push(c, context),
                    step => step,
                }
            }
            State::Fenced => {
                self.pending.push(c);
                self.limited()
            }
            State::Arguments(arguments) => arguments.push(c, context.sink),
        }
    }

    fn go(&mut self, state: State) -> CallStep {
        self.pending.clear();
        self.state = state;
        CallStep::Inside
    }

    fn start(&mut self, name: &str, context: &mut Context<'_>) -> CallStep {
        if !is_name(name) {
            return CallStep::Invalid;
        }
        context.start_call(name);
        self.go(State::Arguments(ArgumentsReader::default()))
    }

    /// Goes on unless the text is too long for a name with what surrounds it.
    fn limited(&self) -> CallStep {
        const MAX_BYTES: usize = 2 * MAX_NAME_BYTES;
        if self.pending.len() <= MAX_BYTES { CallStep::Inside } else { CallStep::Invalid }
    }
}

/// The name in `functions.f:0`.
fn without_number(text: &str) -> &str {
    let text = text.strip_prefix("functions.").unwrap_or(text);
    match text.rsplit_once(':') {
        Some((name, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => text,
    }
}
