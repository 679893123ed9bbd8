//! Requests as spans, and the bounded queue in which these wait for the exporter.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::http::{HeaderMap, HeaderValue};
use tokio::sync::Notify;
use tokio::time::sleep;

use super::export::Collector;
use super::ids::{Parent, SpanContext};
use super::span::{Span, SpanKind};
use super::{PromptPhases, RequestEnd};
use crate::error::Error;

/// The time in which spans are collected before they are sent.
const PERIOD: Duration = Duration::from_millis(500);
/// The most spans of a request to the collector.
const MAX_BATCH: usize = 512;
/// The most spans that wait. More are dropped and counted.
const MAX_SPANS: usize = 8192;

/// Makes spans and sends them to a collector.
#[derive(Clone, Debug)]
pub(crate) struct Tracer {
    collector: Arc<Collector>,
    spans: Arc<SpanQueue>,
}

/// Spans that wait for the exporter.
#[derive(Debug, Default)]
struct SpanQueue {
    inner: Mutex<Inner>,
    filled: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    spans: Vec<Span>,
    dropped: u64,
}

impl SpanQueue {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, span: Span) {
        let mut inner = self.lock();
        if inner.spans.len() < MAX_SPANS {
            inner.spans.push(span);
            drop(inner);
            self.filled.notify_one();
        } else {
            inner.dropped += 1;
        }
    }

    /// Takes all spans.
    fn take(&self) -> Vec<Span> {
        std::mem::take(&mut self.lock().spans)
    }

    /// Counts spans that the collector did not take.
    fn count_dropped(&self, count: usize) {
        self.lock().dropped += count as u64;
    }
}

impl Tracer {
    /// Sends spans to a collector at a URL, if there is one.
    pub(crate) fn new(endpoint: Option<&str>) -> Result<Option<Self>, Error> {
        let Some(endpoint) = endpoint else { return Ok(None) };
        let collector = Arc::new(Collector::new(endpoint)?);
        Ok(Some(Self { collector, spans: Arc::default() }))
    }

    /// Begins the span of a request, if it generates and its parent is recorded.
    pub(crate) fn begin(
        &self,
        route: Option<&str>,
        headers: &HeaderMap,
    ) -> Option<Arc<RequestTrace>> {
        let operation = operation(route?)?;
        let header = headers.get("traceparent").and_then(|header| header.to_str().ok());
        let parent = match header.map_or(Parent::None, Parent::parse) {
            Parent::None => None,
            Parent::Recorded(parent) => Some(parent),
            Parent::Ignored => return None,
        };
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Some(Arc::new(RequestTrace {
            spans: Arc::clone(&self.spans),
            operation,
            context: SpanContext::below(parent),
            parent: parent.map(|parent| parent.span),
            started: Instant::now(),
            started_nanos: since.as_nanos(),
        }))
    }

    /// Sends spans for as long as the server runs.
    pub(crate) async fn run(&self) {
        loop {
            self.spans.filled.notified().await;
            sleep(PERIOD).await;
            self.flush().await;
        }
    }

    /// Sends all spans that wait.
    pub(crate) async fn flush(&self) {
        for spans in self.spans.take().chunks(MAX_BATCH) {
            if let Err(reason) = self.collector.send(spans).await {
                self.spans.count_dropped(spans.len());
                tracing::warn!(spans = spans.len(), reason, "the collector took no spans");
            }
        }
    }

    /// Spans that were dropped so far.
    pub(crate) fn dropped(&self) -> u64 {
        self.spans.lock().dropped
    }
}

/// The operation of a route, with its name in the semantic conventions.
fn operation(route: &str) -> Option<&'static str> {
    match route {
        "/v1/chat/completions"
        | "/chat/completions"
        | "/v1/messages"
        | "/v1/responses"
        | "/api/chat" => Some("chat"),
        "/v1/completions" | "/completion" | "/completions" | "/infill" | "/api/generate" => {
            Some("text_completion")
        }
        "/v1/embeddings" | "/api/embed" | "/api/embeddings" => Some("embeddings"),
        _ => None,
    }
}

/// A request that is traced.
#[derive(Debug)]
pub(crate) struct RequestTrace {
    spans: Arc<SpanQueue>,
    operation: &'static str,
    context: SpanContext,
    /// The span of the client.
    parent: Option<u64>,
    started: Instant,
    started_nanos: u128,
}

impl RequestTrace {
    /// The header of the response that names the span.
    pub(crate) fn header(&self) -> HeaderValue {
        HeaderValue::try_from(self.context.header()).unwrap_or(HeaderValue::from_static(""))
    }

    fn nanos(&self, at: Instant) -> u128 {
        self.started_nanos + at.saturating_duration_since(self.started).as_nanos()
    }

    /// A span below that of the request.
    fn child(&self, name: &str, start: Instant, end: Instant) -> Span {
        let (context, parent) = (SpanContext::below(Some(self.context)), Some(self.context.span));
        let times = (self.nanos(start), self.nanos(end));
        Span::new(name.to_owned(), SpanKind::Internal, context, parent, times)
    }

    /// A prompt has ended. It runs on the thread of the engine.
    pub(crate) fn prompt(&self, phases: &PromptPhases) {
        let now = Instant::now();
        let PromptPhases { submitted, started, first_token, .. } = *phases;
        let mut spans = vec![self.child("queue", submitted, started.unwrap_or(now))];
        if let Some(started) = started {
            let mut prefill = self.child("prefill", started, first_token.unwrap_or(now));
            prefill.int("gen_ai.usage.input_tokens", phases.prompt_tokens as u64);
            prefill.int("gen_ai.usage.cache_read.input_tokens", phases.cached_tokens as u64);
            spans.push(prefill);
        }
        if let Some(first_token) = first_token {
            let mut decode = self.child("decode", first_token, now);
            decode.int("gen_ai.usage.output_tokens", phases.generated_tokens);
            decode.texts("gen_ai.response.finish_reasons", &[phases.finish_reason]);
            spans.push(decode);
        }
        if let (Some(last), "abort" | "error") = (spans.last_mut(), phases.finish_reason) {
            last.fail(phases.finish_reason);
        }
        for span in spans {
            self.spans.push(span);
        }
    }

    /// The response has been written, or the client has left.
    pub(crate) fn end(&self, end: &RequestEnd<'_>) {
        let times = (self.started_nanos, self.nanos(Instant::now()));
        let name = match end.model {
            Some(model) => format!("{} {model}", self.operation),
            None => self.operation.to_owned(),
        };
        let mut span = Span::new(name, SpanKind::Server, self.context, self.parent, times);
        span.text("gen_ai.operation.name", self.operation);
        span.text("gen_ai.provider.name", "rocmforge");
        if let Some(model) = end.model {
            span.text("gen_ai.request.model", model);
            span.text("gen_ai.response.model", model);
        }
        if let Some(usage) = end.usage {
            span.int("gen_ai.usage.input_tokens", usage.prompt_tokens as u64);
            span.int("gen_ai.usage.output_tokens", usage.completion_tokens as u64);
            span.int("gen_ai.usage.cache_read.input_tokens", usage.cached_tokens as u64);
        }
        span.text("http.request.method", "POST");
        span.text("http.route", end.route);
        span.int("http.response.status_code", end.status.into());
        span.text("rocmforge.request.id", end.request_id);
        if let Some(error) = end.error {
            span.fail(error);
        }
        self.spans.push(span);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_beyond_the_queue_are_dropped_and_counted() {
        let tracer = Tracer::new(Some("http://127.0.0.1:9/v1/traces")).unwrap().unwrap();
        let trace = tracer.begin(Some("/v1/completions"), &HeaderMap::new()).unwrap();
        let end = RequestEnd {
            route: "/v1/completions",
            model: None,
            request_id: "r",
            status: 200,
            error: None,
            usage: None,
        };
        for _ in 0..MAX_SPANS + 3 {
            trace.end(&end);
        }
        assert_eq!((tracer.dropped(), tracer.spans.take().len()), (3, MAX_SPANS));
    }

    #[test]
    fn only_what_generates_is_traced_unless_its_parent_is_not_recorded() {
        let tracer = Tracer::new(Some("http://127.0.0.1:9")).unwrap().unwrap();
        let mut headers = HeaderMap::new();
        assert!(tracer.begin(Some("/health"), &headers).is_none());
        assert!(tracer.begin(None, &headers).is_none());
        let ignored = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
        headers.insert("traceparent", HeaderValue::from_static(ignored));
        assert!(tracer.begin(Some("/v1/completions"), &headers).is_none());
        headers.insert("traceparent", HeaderValue::from_static("nonsense"));
        assert!(tracer.begin(Some("/v1/completions"), &headers).is_some());
    }
}
