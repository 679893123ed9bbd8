//! The syntax of a call, as data: the parts of a row of the table of formats.

use super::kind::ToolFormat;

/// A format of calls: how it is recognised, read and written.
#[derive(Debug)]
pub(crate) struct ToolFormatRow {
    pub(crate) format: ToolFormat,
    /// A chat template has this format if it has all texts of one of these lists.
    pub(crate) templates: &'static [&'static [&'static str]],
    /// Texts that may be control tokens.
    pub(crate) markers: &'static [&'static str],
    /// Markers that open a call in the text, and how to read on.
    pub(crate) openers: &'static [(&'static str, Opener)],
    /// Markers around calls that have no meaning of their own.
    pub(crate) frames: &'static [&'static str],
    /// True if a bare object at the start of the text may be a call.
    pub(crate) is_bare: bool,
    pub(crate) ids: IdForm,
    pub(crate) syntax: CallSyntax,
}

/// The reader of a call after its opening marker.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Opener {
    /// `{"name": "f", "arguments": {…}}`.
    Object,
    /// An object, the tag before a name, or with `names` a name alone.
    Tag { names: bool, tags: &'static Tags },
    /// The name of a call in tags.
    Name(&'static Tags),
    /// The token that opens a call, or the name if this was that token.
    Section(&'static Section),
    /// An array of objects, one object, or a name and its arguments.
    Mistral,
    /// `call:f{key:value}` with these quotes.
    Gemma(&'static str),
    /// `[f(key=value)]`.
    Python,
}

/// The form of the ids of calls, which templates repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdForm {
    /// `call_` and 24 letters and digits.
    Long,
    /// 9 letters and digits: Mistral.
    Short,
    /// `functions.f:0`, with the name and the index: Kimi.
    Named,
}

/// The text of calls as a model writes them. A grammar that demands calls is made of it. Texts may
/// contain [markers](crate::OutputFormat::markers).
#[derive(Debug)]
#[non_exhaustive]
pub struct CallSyntax {
    /// Before the first call.
    pub first: &'static str,
    /// The pieces of one call.
    pub call: &'static [CallPiece],
    /// Between two calls; `None` if an answer has one call only.
    pub between: Option<CallPiece>,
    /// After the last call.
    pub last: &'static str,
}

/// A part of the text of a call.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum CallPiece {
    /// This text.
    Text(&'static str),
    /// A line break, or nothing.
    LineBreak,
    /// One digit.
    Digit,
    /// The name of the tool.
    Name,
    /// The name of the tool as JSON.
    QuotedName,
    /// The arguments of the call, as one JSON object.
    Arguments,
    /// Each argument in tags.
    Tagged(&'static Tags),
    /// `key=value, key=value`, with values in JSON. The reader takes it instead of Python's.
    Keywords,
}

/// The tags of calls whose arguments are between tags.
#[derive(Debug)]
pub struct Tags {
    /// Precedes the name.
    pub(crate) name_open: &'static str,
    /// Follows the name. Empty if a tag or white space does.
    pub(crate) name_close: &'static str,
    pub(crate) key_open: &'static str,
    pub(crate) key_close: &'static str,
    /// Between a key and `true` for text or `false` for JSON. Empty if only the schema tells.
    pub(crate) text_flag: &'static str,
    /// Precedes the value, after white space. Empty if the value follows the key.
    pub(crate) value_open: &'static str,
    pub(crate) value_close: &'static str,
    /// True if a line break after and before the value's tags is not part of the value.
    pub(crate) lines: bool,
    /// Models write these after a key, and after a value.
    pub(crate) written_gaps: (&'static str, &'static str),
    /// Ends the call.
    pub(crate) end: &'static str,
}

impl Tags {
    /// The text of an argument before its value, which is a text or JSON.
    pub fn before_value(&self, key: &str, is_text: bool) -> String {
        let flag = match self.text_flag {
            "" => String::new(),
            flag => format!("{flag}{is_text}"),
        };
        let Self { key_open, key_close, value_open, written_gaps: (gap, _), .. } = self;
        format!("{key_open}{key}{flag}{key_close}{gap}{value_open}")
    }

    /// The key in the text of a tag, and whether its value is text, if the tag says so.
    pub(crate) fn key(&self, text: &str) -> (String, Option<bool>) {
        let flagged = text.split_once(self.text_flag).filter(|_| !self.text_flag.is_empty());
        let (key, flag) = flagged.map_or((text, None), |(key, flag)| (key, Some(flag == "true")));
        (key.trim().to_owned(), flag)
    }

    /// The text that ends a value. A line break follows it.
    pub fn value_end(&self) -> String {
        format!("{}{}", self.written_gaps.1, self.value_close)
    }
}

/// The control tokens of calls of a name, a separator and a JSON object.
#[derive(Debug)]
pub(crate) struct Section {
    /// Opens a call.
    pub(crate) open: &'static str,
    /// Precedes the arguments, or a fence around them.
    pub(crate) separator: &'static str,
    /// Opens the fence around arguments, after the name and a line break.
    pub(crate) fence: &'static str,
    /// The word instead of the name, where the name follows the separator.
    pub(crate) kind: &'static str,
    /// True if the name is written as `functions.f:0`.
    pub(crate) is_numbered: bool,
}
