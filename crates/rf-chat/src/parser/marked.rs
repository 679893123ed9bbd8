//! Answers in which markers open and close reasoning and calls: all forms but gpt-oss's.

use super::body::Body;
use super::call::{CallStep, Context};
use super::json_call::JsonCall;
use super::sink::Channel;
use crate::format::OutputFormat;
use crate::format::syntax::Opener;

/// The state of an answer.
#[derive(Debug)]
pub(super) struct Marked {
    format: OutputFormat,
    /// The channel of text.
    channel: Channel,
    /// Calls are parsed if true, otherwise they are text.
    calls: bool,
    /// Text that may be the beginning of a marker.
    pending: String,
    /// True if there was no text but white space yet.
    at_start: bool,
    call: Option<OpenCall>,
}

/// A call being read.
#[derive(Debug)]
struct OpenCall {
    body: Body,
    /// Text of the call since the last report: with the opening marker, until the name is certain.
    raw: String,
    /// True if the call is an element of an array.
    array: bool,
}

/// The effect of a marker.
#[derive(Debug, Clone, Copy)]
enum Meaning {
    OpenReasoning,
    CloseReasoning,
    OpenCall(Opener),
    /// The brace of an object that is a call if it names a tool.
    OpenBare,
    Frame,
}

impl Marked {
    pub(super) fn new(format: OutputFormat, in_reasoning: bool, calls: bool) -> Self {
        let channel = if in_reasoning { Channel::Reasoning } else { Channel::Content };
        let pending = String::new();
        Self { format, channel, calls, pending, at_start: !in_reasoning, call: None }
    }

    pub(super) fn push(&mut self, c: char, context: &mut Context<'_>) {
        if let Some(call) = &mut self.call {
            match call.push(c, context) {
                CallStep::Inside => return,
                CallStep::Last => {
                    let array = call.array;
                    let was_separator = matches!(call.body, Body::Separator { .. });
                    self.end_call(array && !was_separator, context);
                    return;
                }
                CallStep::Invalid => self.abandon_call(context),
            }
        }
        self.pending.push(c);
        self.read_pending(context);
    }

    /// Releases what cannot be a marker, and acts on what is one.
    fn read_pending(&mut self, context: &mut Context<'_>) {
        while !self.pending.is_empty() {
            let mut is_prefix = false;
            let mut found = None;
            for (marker, meaning) in self.markers(context) {
                if marker == self.pending {
                    found = Some(meaning);
                    break;
                }
                is_prefix |= marker.starts_with(&self.pending);
            }
            if let Some(meaning) = found {
                let marker = std::mem::take(&mut self.pending);
                return self.act(meaning, marker, context);
            }
            if is_prefix {
                return;
            }
            let c = self.pending.remove(0);
            self.text(c, context);
        }
    }

    /// The markers that count here.
    fn markers(
        &self,
        context: &Context<'_>,
    ) -> impl Iterator<Item = (&'static str, Meaning)> + use<> {
        let (open, close) = self.format.reasoning.markers();
        let boundary = self.at_start || context.sink.at_boundary();
        let in_content = self.channel == Channel::Content;
        let row = self.format.tools.row();
        let when = |condition: bool, marker, meaning| condition.then_some((marker, meaning));
        let (calls, frames) = (self.calls, self.calls && boundary);
        let openers = row.openers.iter().filter(move |_| calls);
        when(boundary && in_content, open, Meaning::OpenReasoning)
            .into_iter()
            .chain(when(boundary || !in_content, close, Meaning::CloseReasoning))
            .chain(openers.map(|(marker, opener)| (*marker, Meaning::OpenCall(*opener))))
            .chain(row.frames.iter().filter(move |_| frames).map(|f| (*f, Meaning::Frame)))
            .chain(when(
                self.calls && self.at_start && in_content && row.is_bare,
                "{",
                Meaning::OpenBare,
            ))
    }

    fn text(&mut self, c: char, context: &mut Context<'_>) {
        self.at_start &= c.is_whitespace();
        context.sink.text(self.channel, c.encode_utf8(&mut [0; 4]));
    }

    fn act(&mut self, meaning: Meaning, marker: String, context: &mut Context<'_>) {
        match meaning {
            Meaning::OpenReasoning => {
                context.sink.marker();
                self.at_start = false;
                self.channel = Channel::Reasoning;
            }
            Meaning::CloseReasoning => {
                context.sink.marker();
                // Calls and bare objects may begin an answer after its reasoning.
                self.at_start = true;
                self.channel = Channel::Content;
            }
            Meaning::Frame => context.sink.marker(),
            Meaning::OpenCall(opener) => {
                let body = Body::new(opener, &marker);
                self.call = Some(OpenCall { body, raw: marker, array: false });
            }
            Meaning::OpenBare => {
                let body = Body::Json(JsonCall::new(true));
                let mut call = OpenCall { body, raw: String::new(), array: false };
                call.push('{', context);
                self.call = Some(call);
            }
        }
    }

    /// After the last character of a call or of the white space and marks between calls.
    fn end_call(&mut self, array: bool, context: &mut Context<'_>) {
        context.sink.end_call();
        context.sink.marker();
        let ended = self.call.take();
        let python = ended.as_ref().is_some_and(|call| matches!(call.body, Body::Python(_)));
        let ended_array = ended.is_some_and(|call| call.array) && !array;
        self.channel = Channel::Content;
        self.at_start = false;
        if array || (self.format.tools.row().is_bare && !ended_array) {
            let body = Body::Separator { read: false, array, python };
            self.call = Some(OpenCall { body, raw: String::new(), array });
        }
    }

    /// The text of the call is none, or no longer one.
    fn abandon_call(&mut self, context: &mut Context<'_>) {
        let Some(call) = self.call.take() else { return };
        if context.sink.in_call() {
            context.sink.end_call();
            context.sink.marker();
            self.channel = Channel::Content;
        }
        // White space alone was between calls and their markers.
        self.at_start &= call.raw.trim().is_empty();
        context.sink.text(self.channel, &call.raw);
    }

    pub(super) fn finish(&mut self, context: &mut Context<'_>) {
        if let Some(call) = &mut self.call {
            if context.sink.in_call() {
                call.body.finish(context);
                // What is left is a part of a tag or of a key.
                call.raw.clear();
            }
            self.abandon_call(context);
        }
        let pending = std::mem::take(&mut self.pending);
        context.sink.text(self.channel, &pending);
        context.sink.flush_space(self.channel);
    }
}

impl OpenCall {
    fn push(&mut self, c: char, context: &mut Context<'_>) -> CallStep {
        let reported_bytes = context.sink.reported_bytes();
        let step = self.body.push(c, context);
        self.array |= matches!(self.body, Body::Mistral { array: true } | Body::Python(_));
        if context.sink.reported_bytes() > reported_bytes {
            self.raw.clear();
        } else if step != CallStep::Invalid {
            self.raw.push(c);
        }
        step
    }
}
