//! From the text of a model to the parts of a message: the one place that knows how a model writes
//! reasoning and tool calls.

use rf_chat::{OutputParser, Prompt};

pub(crate) use rf_chat::Delta;

/// Turns the text of one choice into pieces of its message.
#[derive(Debug)]
pub(crate) struct Deltas {
    /// `None` for a text that is no message.
    parser: Option<OutputParser>,
    calls: usize,
    complete_calls: usize,
}

impl Deltas {
    /// For an answer to `prompt`, or for a text without one.
    pub(crate) fn new(prompt: Option<&Prompt>) -> Self {
        Self { parser: prompt.map(Prompt::parser), calls: 0, complete_calls: 0 }
    }

    /// The pieces that `text` completes.
    pub(crate) fn push(&mut self, text: String) -> Vec<Delta> {
        match &mut self.parser {
            _ if text.is_empty() => Vec::new(),
            None => vec![Delta::Content(text)],
            Some(parser) => {
                let deltas = parser.push(&text);
                self.count(deltas)
            }
        }
    }

    /// The pieces held back, at the end of the text.
    pub(crate) fn finish(&mut self) -> Vec<Delta> {
        let deltas = self.parser.take().map(OutputParser::finish).unwrap_or_default();
        self.count(deltas)
    }

    /// Returns true if the message, which is complete, asks for tools: it has calls, and none is
    /// cut off.
    pub(crate) fn calls_tools(&self) -> bool {
        self.calls > 0 && self.calls == self.complete_calls
    }

    fn count(&mut self, deltas: Vec<Delta>) -> Vec<Delta> {
        for delta in &deltas {
            match delta {
                Delta::CallStart { .. } => self.calls += 1,
                Delta::CallEnd { complete: true, .. } => self.complete_calls += 1,
                _ => {}
            }
        }
        deltas
    }
}
