//! Spans in the JSON form of OTLP.

use serde::Serialize;
use serde_json::{Value, json};

use super::ids::SpanContext;

/// The kind of a span: what happens inside, or an answer to a client.
#[derive(Clone, Copy, Debug)]
pub(super) enum SpanKind {
    Internal = 1,
    Server = 2,
}

/// A finished span.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Span {
    trace_id: String,
    #[serde(rename = "spanId")]
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_span_id: Option<String>,
    name: String,
    kind: u8,
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    attributes: Vec<Attribute>,
    status: Status,
}

#[derive(Clone, Debug, Serialize)]
struct Attribute {
    key: &'static str,
    value: Value,
}

/// 2 for an error, 0 for none.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Status {
    code: u8,
}

impl Span {
    /// A span with its start and end, in nanoseconds since 1970.
    pub(super) fn new(
        name: String,
        kind: SpanKind,
        context: SpanContext,
        parent: Option<u64>,
        (start, end): (u128, u128),
    ) -> Self {
        Self {
            trace_id: format!("{:032x}", context.trace),
            id: format!("{:016x}", context.span),
            parent_span_id: parent.map(|parent| format!("{parent:016x}")),
            name,
            kind: kind as u8,
            start_time_unix_nano: start.to_string(),
            end_time_unix_nano: end.max(start).to_string(),
            attributes: Vec::new(),
            status: Status::default(),
        }
    }

    pub(super) fn text(&mut self, key: &'static str, value: &str) {
        self.attributes.push(Attribute { key, value: json!({ "stringValue": value }) });
    }

    pub(super) fn texts(&mut self, key: &'static str, values: &[&str]) {
        let values: Vec<_> = values.iter().map(|value| json!({ "stringValue": value })).collect();
        let value = json!({ "arrayValue": { "values": values } });
        self.attributes.push(Attribute { key, value });
    }

    /// Adds a number. In this form of JSON 64-bit integers are texts.
    pub(super) fn int(&mut self, key: &'static str, value: u64) {
        self.attributes.push(Attribute { key, value: json!({ "intValue": value.to_string() }) });
    }

    /// Marks the span as failed, with the kind of the error.
    pub(super) fn fail(&mut self, kind: &str) {
        self.text("error.type", kind);
        self.status.code = 2;
    }
}

/// The body of a request to a collector.
pub(super) fn body(spans: &[Span]) -> Value {
    let version = env!("CARGO_PKG_VERSION");
    let resource = json!({ "attributes": [
        { "key": "service.name", "value": { "stringValue": "rocmforge" } },
        { "key": "service.version", "value": { "stringValue": version } },
    ] });
    let scope = json!({ "name": env!("CARGO_PKG_NAME"), "version": version });
    let scoped = json!({ "scope": scope, "spans": spans });
    json!({ "resourceSpans": [{ "resource": resource, "scopeSpans": [scoped] }] })
}
