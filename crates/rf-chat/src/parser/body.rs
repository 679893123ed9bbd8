//! The text of one tool call, after the marker that opens it.

use super::call::{CallStep, Context};
use super::gemma::GemmaCall;
use super::json_call::{ArgumentsReader, JsonCall, NamedCall};
use super::python_call::PythonCall;
use super::section_call::SectionCall;
use super::tagged_call::TaggedCall;
use crate::format::syntax::{Opener, Tags};
use crate::format::table::GLM_TAGS;
use crate::tool::is_name_char;

/// A call being read, by its form.
#[derive(Debug)]
pub(super) enum Body {
    /// After `<tool_call>`: the next character determines the form.
    Tag {
        /// True if a name may follow, as GLM writes it.
        names: bool,
        /// The tags, if one follows.
        tags: &'static Tags,
    },
    /// After `[TOOL_CALLS]`: an array of objects, one object, or a name and its arguments.
    Mistral {
        /// True after a `[`.
        array: bool,
    },
    /// Between calls: `,` in an array, `;` or `,` for Llama.
    Separator {
        /// True after the text was read.
        read: bool,
        /// True if the calls are in an array, which `]` ends.
        array: bool,
        /// True if the calls are those of Python, otherwise objects.
        python: bool,
    },
    Json(JsonCall),
    Named(NamedCall),
    Tagged(TaggedCall),
    Gemma(GemmaCall),
    Section(SectionCall),
    Python(PythonCall),
    /// The arguments alone; the call has begun.
    Arguments(ArgumentsReader),
}

impl Body {
    /// The reader of a call after `marker`, which opens it.
    pub(super) fn new(opener: Opener, marker: &str) -> Self {
        match opener {
            Opener::Object => Self::Json(JsonCall::new(false)),
            Opener::Tag { names, tags } => Self::Tag { names, tags },
            Opener::Name(tags) => Self::Tagged(TaggedCall::new(tags)),
            Opener::Section(section) => Self::Section(SectionCall::new(section, marker)),
            Opener::Mistral => Self::Mistral { array: false },
            Opener::Gemma(quote) => Self::Gemma(GemmaCall::new(quote)),
            Opener::Python => Self::Python(PythonCall::new(true)),
        }
    }

    /// Reads a character. A call that ends has been reported to the sink, except for its end.
    pub(super) fn push(&mut self, c: char, context: &mut Context<'_>) -> CallStep {
        match self {
            Self::Tag { .. } | Self::Mistral { .. } | Self::Separator { .. }
                if c.is_whitespace() =>
            {
                CallStep::Inside
            }
            Self::Tag { names, tags } => match c {
                '{' => self.become_and_push(Self::Json(JsonCall::new(false)), c, context),
                '<' => {
                    let call = TaggedCall::before_name(tags);
                    self.become_and_push(Self::Tagged(call), c, context)
                }
                _ if *names && is_name_char(c) => {
                    self.become_and_push(Self::Tagged(TaggedCall::new(&GLM_TAGS)), c, context)
                }
                _ => CallStep::Invalid,
            },
            Self::Mistral { array } => match c {
                '{' => self.become_and_push(Self::Json(JsonCall::new(false)), c, context),
                '[' if !*array => {
                    *array = true;
                    CallStep::Inside
                }
                _ if is_name_char(c) && !*array => {
                    self.become_and_push(Self::Named(NamedCall::default()), c, context)
                }
                _ => CallStep::Invalid,
            },
            Self::Separator { read, array, python } => match c {
                ',' if !*read => {
                    *read = true;
                    CallStep::Inside
                }
                ';' if !*read && !*array => {
                    *read = true;
                    CallStep::Inside
                }
                ']' if *array && !*read => CallStep::Last,
                _ if *read && *python => {
                    self.become_and_push(Self::Python(PythonCall::new(false)), c, context)
                }
                '{' if *read => {
                    // Bare objects count as calls only if they name a tool.
                    let call = JsonCall::new(!*array);
                    self.become_and_push(Self::Json(call), c, context)
                }
                _ => CallStep::Invalid,
            },
            Self::Json(call) => call.push(c, context),
            Self::Named(call) => call.push(c, context),
            Self::Tagged(call) => call.push(c, context),
            Self::Gemma(call) => call.push(c, context),
            Self::Section(call) => call.push(c, context),
            Self::Python(call) => call.push(c, context),
            Self::Arguments(arguments) => arguments.push(c, context.sink),
        }
    }

    /// At the end of the text: reports the part of the arguments that was held back.
    pub(super) fn finish(&mut self, context: &mut Context<'_>) {
        match self {
            Self::Tagged(call) => call.finish(context),
            Self::Gemma(call) => call.finish(context),
            Self::Python(call) => call.finish(context),
            _ => {}
        }
    }

    fn become_and_push(&mut self, body: Self, c: char, context: &mut Context<'_>) -> CallStep {
        *self = body;
        self.push(c, context)
    }
}
