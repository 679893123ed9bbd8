//! The events of a streamed response.

use rocmforge::engine::StopReason;
use rocmforge::messages::Delta;
use schemars::JsonSchema;
use serde::Serialize;

use super::head::{Head, ResponseJson};
use super::items::{ContentPart, Item};
use super::tools::Called;
use crate::api::{NoItems, is_cut_off};
use crate::generation::{Update, Usage};
use crate::request_id::unique;
use crate::stream::{Encoder, Frames};

/// The stream of a response: items one after the other, each added, filled and done.
pub(super) struct Events {
    head: Head,
    sequence: Sequence,
    /// Items that are done.
    output: Vec<Item>,
    open: Option<OpenItem>,
    reason: StopReason,
}

/// The item that grows.
struct OpenItem {
    id: String,
    kind: Kind,
    text: String,
}

#[derive(Clone, PartialEq, Eq)]
enum Kind {
    Message,
    Reasoning,
    Call { id: String, called: Called },
}

/// An event: its type and number, and the fields of its type.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ResponseEvent<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    sequence_number: u64,
    #[serde(flatten)]
    fields: EventFields<'a>,
}

#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
enum EventFields<'a> {
    Response {
        response: Box<ResponseJson<'a>>,
    },
    Item {
        output_index: usize,
        item: &'a Item,
    },
    Part {
        #[serde(flatten)]
        place: Place<'a>,
        part: ContentPart,
    },
    Growth {
        #[serde(flatten)]
        place: Place<'a>,
        delta: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        logprobs: Option<NoItems>,
    },
    Text {
        #[serde(flatten)]
        place: Place<'a>,
        text: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        logprobs: Option<NoItems>,
    },
    Arguments {
        #[serde(flatten)]
        place: Place<'a>,
        arguments: &'a str,
        name: &'a str,
    },
    Input {
        #[serde(flatten)]
        place: Place<'a>,
        input: &'a str,
    },
}

/// The place of the open item, and of the part that it consists of.
#[derive(Serialize, JsonSchema)]
struct Place<'a> {
    item_id: &'a str,
    output_index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_index: Option<usize>,
}

impl OpenItem {
    /// The item with what it has so far.
    fn item(&self, status: &'static str) -> Item {
        let (id, text) = (self.id.clone(), self.text.clone());
        match &self.kind {
            Kind::Message => Item::message(id, Some(text), status),
            Kind::Reasoning => Item::reasoning(id, Some(text), status),
            Kind::Call { id: call_id, called } => {
                Item::call((id, call_id.clone()), called.clone(), text, status)
            }
        }
    }

    /// The item before its first part.
    fn added(&self) -> Item {
        const STATUS: &str = "in_progress";
        match self.kind {
            Kind::Message => Item::message(self.id.clone(), None, STATUS),
            Kind::Reasoning => Item::reasoning(self.id.clone(), None, STATUS),
            Kind::Call { .. } => self.item(STATUS),
        }
    }

    /// The part that a message or a reasoning consists of.
    fn part(&self) -> Option<ContentPart> {
        let text = self.text.clone();
        match self.kind {
            Kind::Message => Some(ContentPart::text(text)),
            Kind::Reasoning => Some(ContentPart::ReasoningText { text }),
            Kind::Call { .. } => None,
        }
    }

    /// The names of the events that fill the item and that have its whole text.
    fn growth(&self) -> (&'static str, &'static str) {
        match &self.kind {
            Kind::Message => ("response.output_text.delta", "response.output_text.done"),
            Kind::Reasoning => ("response.reasoning_text.delta", "response.reasoning_text.done"),
            Kind::Call { called, .. } if called.is_custom => {
                ("response.custom_tool_call_input.delta", "response.custom_tool_call_input.done")
            }
            Kind::Call { .. } => {
                ("response.function_call_arguments.delta", "response.function_call_arguments.done")
            }
        }
    }

    fn place(&self, output_index: usize) -> Place<'_> {
        let has_parts = !matches!(self.kind, Kind::Call { .. });
        Place { item_id: &self.id, output_index, content_index: has_parts.then_some(0) }
    }

    /// The text for a tool that takes one. It is known when the arguments are whole.
    fn custom_input(&self) -> Option<String> {
        match &self.kind {
            Kind::Call { called, .. } if called.is_custom => Some(called.input(self.text.clone())),
            _ => None,
        }
    }

    /// Log probabilities are a field of texts only, and always empty.
    fn logprobs(&self) -> Option<NoItems> {
        (self.kind == Kind::Message).then_some([])
    }
}

/// Counts the events of a stream.
#[derive(Default)]
struct Sequence {
    next: u64,
}

impl Sequence {
    /// Sends an event with its type, number and these fields.
    fn send(&mut self, kind: &'static str, fields: EventFields<'_>, out: &mut Frames) {
        out.event(kind, &ResponseEvent { kind, sequence_number: self.next, fields });
        self.next += 1;
    }
}

impl Events {
    pub(super) fn new(head: Head) -> Self {
        let sequence = Sequence::default();
        Self { head, sequence, output: Vec::new(), open: None, reason: StopReason::Eog }
    }

    fn enter(&mut self, kind: Kind, out: &mut Frames) {
        if self.open.as_ref().is_some_and(|item| item.kind == kind) {
            return;
        }
        self.leave("completed", out);
        let prefix = match kind {
            Kind::Message => "msg_",
            Kind::Reasoning => "rs_",
            Kind::Call { .. } => "fc_",
        };
        let open = OpenItem { id: unique(prefix), kind, text: String::new() };
        let output_index = self.output.len();
        let added = EventFields::Item { output_index, item: &open.added() };
        self.sequence.send("response.output_item.added", added, out);
        if let Some(part) = open.part() {
            let part = EventFields::Part { place: open.place(output_index), part };
            self.sequence.send("response.content_part.added", part, out);
        }
        self.open = Some(open);
    }

    fn grow(&mut self, delta: &str, out: &mut Frames) {
        let Some(open) = &mut self.open else { return };
        open.text += delta;
        if matches!(&open.kind, Kind::Call { called, .. } if called.is_custom) {
            return;
        }
        let (place, logprobs) = (open.place(self.output.len()), open.logprobs());
        let growth = EventFields::Growth { place, delta, logprobs };
        self.sequence.send(open.growth().0, growth, out);
    }

    fn leave(&mut self, status: &'static str, out: &mut Frames) {
        let Some(open) = self.open.take() else { return };
        let output_index = self.output.len();
        let input = open.custom_input();
        if let Some(delta) = &input {
            let place = open.place(output_index);
            let growth = EventFields::Growth { place, delta, logprobs: None };
            self.sequence.send(open.growth().0, growth, out);
        }
        let (place, text) = (open.place(output_index), open.text.as_str());
        let whole = match &open.kind {
            Kind::Call { called, .. } => match &input {
                Some(input) => EventFields::Input { place, input },
                None => EventFields::Arguments { place, arguments: text, name: &called.name },
            },
            Kind::Message | Kind::Reasoning => {
                EventFields::Text { place, text, logprobs: open.logprobs() }
            }
        };
        self.sequence.send(open.growth().1, whole, out);
        if let Some(part) = open.part() {
            let part = EventFields::Part { place: open.place(output_index), part };
            self.sequence.send("response.content_part.done", part, out);
        }
        let item = open.item(status);
        let done = EventFields::Item { output_index, item: &item };
        self.sequence.send("response.output_item.done", done, out);
        self.output.push(item);
    }

    fn end(&mut self, usage: Usage, out: &mut Frames) {
        let cut_off = is_cut_off(self.reason);
        self.leave(if cut_off { "incomplete" } else { "completed" }, out);
        let output = std::mem::take(&mut self.output);
        let response = self.head.ended(output, self.reason, usage);
        let kind = if cut_off { "response.incomplete" } else { "response.completed" };
        self.sequence.send(kind, EventFields::Response { response: Box::new(response) }, out);
    }
}

impl Encoder for Events {
    fn encode(&mut self, update: Update, out: &mut Frames) {
        match update {
            Update::Started { .. } => {
                for kind in ["response.created", "response.in_progress"] {
                    let response = self.head.begun();
                    self.sequence.send(
                        kind,
                        EventFields::Response { response: Box::new(response) },
                        out,
                    );
                }
            }
            Update::Delta { delta, .. } => match delta {
                Delta::Content(text) => {
                    self.enter(Kind::Message, out);
                    self.grow(&text, out);
                }
                Delta::Reasoning(text) => {
                    self.enter(Kind::Reasoning, out);
                    self.grow(&text, out);
                }
                Delta::CallStart { id, name, .. } => {
                    let called = self.head.tools().called(&name);
                    self.enter(Kind::Call { id, called }, out);
                }
                Delta::CallArguments { fragment, .. } => self.grow(&fragment, out),
                Delta::CallEnd { complete, .. } => {
                    self.leave(if complete { "completed" } else { "incomplete" }, out);
                }
            },
            Update::Finished { reason, .. } => self.reason = reason,
            Update::Ended { usage } => self.end(usage, out),
            Update::Failed(error) => {
                let response = self.head.failed(&error.into());
                let fields = EventFields::Response { response: Box::new(response) };
                self.sequence.send("response.failed", fields, out);
            }
            _ => {}
        }
    }
}
