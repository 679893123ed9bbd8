//! The events of a streamed response.

use rocmforge::engine::StopReason;
use rocmforge::messages::Delta;
use serde_json::{Value, json};

use super::head::{Head, is_cut_off};
use super::items;
use crate::access::unique;
use crate::error::ApiError;
use crate::generation::{Update, Usage};
use crate::stream::{Encoder, Frames};

/// The stream of a response: items one after the other, each added, filled and done.
pub(super) struct Events {
    head: Head,
    sequence_number: u64,
    /// Items that are done.
    output: Vec<Value>,
    open: Option<Item>,
    reason: StopReason,
}

/// The item that grows.
struct Item {
    id: String,
    kind: Kind,
    text: String,
}

#[derive(Clone, PartialEq, Eq)]
enum Kind {
    Message,
    Reasoning,
    Call { id: String, name: String },
}

impl Item {
    fn json(&self, status: &str) -> Value {
        match &self.kind {
            Kind::Message => items::message(&self.id, &self.text, status),
            Kind::Reasoning => items::reasoning(&self.id, &self.text, status),
            Kind::Call { id, name } => items::function_call(&self.id, id, name, &self.text, status),
        }
    }

    /// The name of the events that fill the item, and of the field with the whole text.
    fn growth(&self) -> (&'static str, &'static str) {
        match self.kind {
            Kind::Message => ("response.output_text", "text"),
            Kind::Reasoning => ("response.reasoning_text", "text"),
            Kind::Call { .. } => ("response.function_call_arguments", "arguments"),
        }
    }

    /// The part that a message or a reasoning consists of.
    fn part(&self) -> Option<Value> {
        match self.kind {
            Kind::Message => Some(items::text_part(&self.text)),
            Kind::Reasoning => Some(items::reasoning_part(&self.text)),
            Kind::Call { .. } => None,
        }
    }
}

impl Events {
    pub(super) fn new(head: Head) -> Self {
        Self { head, sequence_number: 0, output: Vec::new(), open: None, reason: StopReason::Eog }
    }

    /// Sends an event with its type, number and these fields.
    fn send(&mut self, name: &str, fields: Value, out: &mut Frames) {
        let mut data = json!({ "type": name, "sequence_number": self.sequence_number });
        if let (Value::Object(data), Value::Object(fields)) = (&mut data, fields) {
            data.extend(fields);
        }
        self.sequence_number += 1;
        out.event(name, &data);
    }

    /// Fields that name the open item.
    fn place(&self, item: &Item) -> Value {
        let mut place = json!({ "item_id": item.id, "output_index": self.output.len() });
        if item.part().is_some() {
            place["content_index"] = json!(0);
        }
        place
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
        let item = Item { id: unique(prefix), kind, text: String::new() };
        let mut empty = item.json("in_progress");
        if item.part().is_some() {
            empty["content"] = json!([]);
        }
        let fields = json!({ "output_index": self.output.len(), "item": empty });
        self.send("response.output_item.added", fields, out);
        if let Some(part) = item.part() {
            let mut fields = self.place(&item);
            fields["part"] = part;
            self.send("response.content_part.added", fields, out);
        }
        self.open = Some(item);
    }

    fn grow(&mut self, text: &str, out: &mut Frames) {
        let Some(mut item) = self.open.take() else { return };
        item.text += text;
        let mut fields = self.place(&item);
        fields["delta"] = json!(text);
        if item.kind == Kind::Message {
            fields["logprobs"] = json!([]);
        }
        self.send(&format!("{}.delta", item.growth().0), fields, out);
        self.open = Some(item);
    }

    fn leave(&mut self, status: &str, out: &mut Frames) {
        let Some(item) = self.open.take() else { return };
        let (name, field) = item.growth();
        let mut fields = self.place(&item);
        fields[field] = json!(item.text);
        match &item.kind {
            Kind::Message => fields["logprobs"] = json!([]),
            Kind::Reasoning => {}
            Kind::Call { name, .. } => fields["name"] = json!(name),
        }
        self.send(&format!("{name}.done"), fields, out);
        if let Some(part) = item.part() {
            let mut fields = self.place(&item);
            fields["part"] = part;
            self.send("response.content_part.done", fields, out);
        }
        let done = item.json(status);
        let fields = json!({ "output_index": self.output.len(), "item": done });
        self.send("response.output_item.done", fields, out);
        self.output.push(done);
    }

    fn end(&mut self, usage: Usage, out: &mut Frames) {
        let cut_off = is_cut_off(self.reason);
        self.leave(if cut_off { "incomplete" } else { "completed" }, out);
        let output = std::mem::take(&mut self.output);
        let response = self.head.ended(output, self.reason, usage);
        let name = if cut_off { "response.incomplete" } else { "response.completed" };
        self.send(name, json!({ "response": response }), out);
    }

    fn fail(&mut self, error: &ApiError, out: &mut Frames) {
        let mut response = self.head.begun();
        response["status"] = json!("failed");
        response["error"] = json!({ "code": "server_error", "message": error.message });
        self.send("response.failed", json!({ "response": response }), out);
    }
}

impl Encoder for Events {
    fn encode(&mut self, update: Update, out: &mut Frames) {
        match update {
            Update::Started { .. } => {
                for name in ["response.created", "response.in_progress"] {
                    let response = self.head.begun();
                    self.send(name, json!({ "response": response }), out);
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
                Delta::CallStart { id, name, .. } => self.enter(Kind::Call { id, name }, out),
                Delta::CallArguments { fragment, .. } => self.grow(&fragment, out),
                Delta::CallEnd { complete, .. } => {
                    self.leave(if complete { "completed" } else { "incomplete" }, out);
                }
            },
            Update::Finished { reason, .. } => self.reason = reason,
            Update::Ended { usage } => self.end(usage, out),
            Update::Failed(error) => self.fail(&error.into(), out),
            _ => {}
        }
    }
}
