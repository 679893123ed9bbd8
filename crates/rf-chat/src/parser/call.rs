//! Types that the parsers of all call forms share.

use super::sink::Sink;
use crate::tool::Tool;

/// The effect of a character on a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallStep {
    /// The character is part of the call, which continues.
    Inside,
    /// The character is the last one of the call.
    Last,
    /// The character cannot be part of a call, so the text is not a call.
    Invalid,
}

/// The parts of the parser that calls use.
#[derive(Debug)]
pub(super) struct Context<'a> {
    pub(super) sink: &'a mut Sink,
    pub(super) tools: &'a [Tool],
}

impl Context<'_> {
    /// The tool called `name`, perhaps with a namespace before it, as in `functions.f`.
    pub(super) fn tool(&self, name: &str) -> Option<&Tool> {
        find(self.tools, name)
    }

    /// Begins a call of `name`, by the name of the tool that it means.
    pub(super) fn start_call(&mut self, name: &str) {
        let name = find(self.tools, name).map_or(name, |tool| tool.name.as_str());
        self.sink.start_call(name);
    }
}

fn find<'t>(tools: &'t [Tool], name: &str) -> Option<&'t Tool> {
    let named = |name: &str| tools.iter().find(|tool| tool.name == name);
    named(name).or_else(|| named(name.rsplit(['.', ':', '/']).next()?))
}
