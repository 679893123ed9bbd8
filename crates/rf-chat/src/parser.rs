//! The parser of generated text.
//!
//! It reads character by character, so the answer cannot depend on how the text is split into
//! pieces, and needs only `serde_json`. Other crates were tried: `tool-parser` 1.10 brings 135
//! packages, LGPL ones among them, reads no gpt-oss, and reports calls of Gemma only when they are
//! complete; `reasoning-parser` 1.10 brings 22 packages and reads no tools; `dynamo-parsers` 11.0.1
//! brings 273.

mod body;
mod call;
mod gemma;
mod harmony;
mod json;
mod json_call;
mod marked;
mod python_call;
mod section_call;
mod sink;
mod tagged_call;
mod value;

use std::hash::{BuildHasher, RandomState};

use self::call::Context;
use self::harmony::Harmony;
use self::marked::Marked;
use self::sink::{Channel, Ids, Sink};
use crate::answer::Delta;
use crate::format::syntax::IdForm;
use crate::format::{OutputFormat, ReasoningFormat};
use crate::tool::Tool;

/// Splits generated text into content, reasoning and tool calls while it is generated.
///
/// The text may come in any pieces: the answer is the same. Text that does not parse as a call is
/// content, and no text is an error. White space next to a marker is dropped.
///
/// A call is reported as soon as its name is certain. If the text then stops being a call, the call
/// ends incomplete and the rest is content.
#[derive(Debug)]
pub struct OutputParser {
    tools: Vec<Tool>,
    sink: Sink,
    machine: Machine,
}

#[derive(Debug)]
enum Machine {
    Marked(Marked),
    Harmony(Harmony),
    /// Text that is no message.
    Plain,
}

impl OutputParser {
    /// A parser of one answer. Without `tools` no text is a call. `in_reasoning` says whether the
    /// answer begins within reasoning: [`OutputFormat::prompt_opens_reasoning`].
    pub fn new(format: OutputFormat, tools: &[Tool], in_reasoning: bool) -> Self {
        Self::with_id_seed(format, tools, in_reasoning, RandomState::new().hash_one(0_u8))
    }

    /// [`new`](Self::new) with a seed for the ids of calls. Equal seeds give equal ids.
    pub fn with_id_seed(
        format: OutputFormat,
        tools: &[Tool],
        in_reasoning: bool,
        seed: u64,
    ) -> Self {
        let row = format.tools.row();
        let mut sink = Sink::new(Ids { seed, form: row.ids });
        let machine = if format.reasoning == ReasoningFormat::Harmony {
            Machine::Harmony(Harmony::new(in_reasoning, row.is_bare))
        } else {
            if in_reasoning {
                sink.marker();
            }
            Machine::Marked(Marked::new(format, in_reasoning, !tools.is_empty()))
        };
        Self { tools: tools.to_vec(), sink, machine }
    }

    /// A parser of text that is no message of a conversation: all of it is content, as it is.
    pub fn plain() -> Self {
        let sink = Sink::new(Ids { seed: 0, form: IdForm::Long });
        Self { tools: Vec::new(), sink, machine: Machine::Plain }
    }

    /// Reads generated text and returns what it adds to the answer.
    pub fn push(&mut self, text: &str) -> Vec<Delta> {
        let mut context = Context { sink: &mut self.sink, tools: &self.tools };
        for c in text.chars() {
            match &mut self.machine {
                Machine::Marked(machine) => machine.push(c, &mut context),
                Machine::Harmony(machine) => machine.push(c, &mut context),
                Machine::Plain => context.sink.exact(Channel::Content, c),
            }
        }
        self.sink.take()
    }

    /// Ends the answer: returns text that was held back, and ends an open call. No text may follow.
    pub fn finish(&mut self) -> Vec<Delta> {
        let mut context = Context { sink: &mut self.sink, tools: &self.tools };
        match &mut self.machine {
            Machine::Marked(machine) => machine.finish(&mut context),
            Machine::Harmony(machine) => machine.finish(&mut context),
            Machine::Plain => {}
        }
        self.sink.take()
    }

    /// Returns true if the answer so far asks for tools: it has calls, and all of them are
    /// complete.
    pub fn calls_tools(&self) -> bool {
        self.sink.calls_tools()
    }
}
