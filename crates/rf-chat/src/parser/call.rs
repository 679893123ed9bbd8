//! What the forms of calls share.

use super::sink::Sink;
use crate::tool::Tool;

/// What a character was to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// A part of it. It goes on.
    Inside,
    /// Its last character.
    Last,
    /// Not a part of it: the call is not one.
    Invalid,
}

/// What calls need of the parser.
#[derive(Debug)]
pub(super) struct Context<'a> {
    pub(super) sink: &'a mut Sink,
    pub(super) tools: &'a [Tool],
}

impl Context<'_> {
    /// The tool called `name`.
    pub(super) fn tool(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| tool.name == name)
    }
}
