//! Types that the parsers of all call forms share.

use super::sink::Sink;
use crate::tool::Tool;

/// The effect of a character on a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// A part of it. It goes on.
    Inside,
    /// Its last character.
    Last,
    /// Not a part of it: the call is not one.
    Invalid,
}

/// The parts of the parser that calls use.
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
