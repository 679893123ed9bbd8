//! Recording of `tracing` spans.
//!
//! A measured crate opens spans and depends only on `tracing`. [`SpanRecorder`] is a subscriber
//! layer that records when a thread entered and left each span. Without a subscriber, a disabled
//! span costs a load and a branch.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// The maximum number of recorded spans, about 100 MiB. Further spans are only counted.
const MAX_SPANS: usize = 1 << 20;

/// An interval that a thread spent in a span.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SpanEvent {
    /// The name of the span.
    pub name: &'static str,
    /// The module that opened the span.
    pub target: &'static str,
    /// The thread number, in the order of first use.
    pub thread: u64,
    /// The time of entry since the recorder was created.
    pub start: Duration,
    /// The time until the thread left the span.
    pub duration: Duration,
    /// The fields of the span.
    pub fields: Vec<(&'static str, Value)>,
}

/// A layer for a `tracing-subscriber` registry that records spans of level `DEBUG` and above.
///
/// # Examples
///
/// ```
/// use rf_profile::SpanRecorder;
/// use tracing_subscriber::layer::SubscriberExt;
///
/// let (recorder, log) = SpanRecorder::new();
/// let subscriber = tracing_subscriber::registry().with(recorder);
/// tracing::subscriber::with_default(subscriber, || {
///     let _span = tracing::info_span!("prefill", tokens = 3).entered();
/// });
/// let spans = log.spans();
/// assert_eq!((spans[0].name, spans[0].fields[0].0), ("prefill", "tokens"));
/// ```
#[derive(Debug)]
pub struct SpanRecorder {
    shared: Arc<Shared>,
}

/// The spans that a [`SpanRecorder`] recorded.
#[derive(Clone, Debug)]
pub struct SpanLog {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    origin: Instant,
    spans: Mutex<Vec<SpanEvent>>,
    dropped: AtomicU64,
}

/// The recorder's data in an open span.
#[derive(Default)]
struct SpanData {
    entered: Option<Instant>,
    fields: Vec<(&'static str, Value)>,
}

impl SpanRecorder {
    /// Creates a recorder and its log.
    pub fn new() -> (Self, SpanLog) {
        let (spans, dropped) = (Mutex::default(), AtomicU64::new(0));
        let shared = Arc::new(Shared { origin: Instant::now(), spans, dropped });
        (Self { shared: Arc::clone(&shared) }, SpanLog { shared })
    }
}

impl SpanLog {
    /// The recorded spans in the order of their ends.
    pub fn spans(&self) -> Vec<SpanEvent> {
        self.shared.spans.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The number of spans beyond the limit of about a million, which were not recorded.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// The time at which the recorder was created.
    pub fn origin(&self) -> Instant {
        self.shared.origin
    }

    /// Removes the recorded spans.
    pub fn clear(&self) {
        self.shared.spans.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.shared.dropped.store(0, Ordering::Relaxed);
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for SpanRecorder {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if *span.metadata().level() > Level::DEBUG {
            return;
        }
        let mut data = SpanData::default();
        attributes.record(&mut FieldVisitor(&mut data.fields));
        span.extensions_mut().insert(data);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(data) = span.extensions_mut().get_mut::<SpanData>() {
            values.record(&mut FieldVisitor(&mut data.fields));
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(data) = span.extensions_mut().get_mut::<SpanData>() {
            data.entered = Some(Instant::now());
        }
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        let now = Instant::now();
        let Some(span) = context.span(id) else { return };
        let mut extensions = span.extensions_mut();
        let Some(data) = extensions.get_mut::<SpanData>() else { return };
        let Some(entered) = data.entered.take() else { return };
        let event = SpanEvent {
            name: span.metadata().name(),
            target: span.metadata().target(),
            thread: thread_number(),
            start: entered.saturating_duration_since(self.shared.origin),
            duration: now.saturating_duration_since(entered),
            fields: data.fields.clone(),
        };
        let mut spans = self.shared.spans.lock().unwrap_or_else(PoisonError::into_inner);
        if spans.len() < MAX_SPANS {
            spans.push(event);
        } else {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local!(static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed));
    // The thread-local value is gone in destructors at the end of a thread.
    NUMBER.try_with(|number| *number).unwrap_or(0)
}

struct FieldVisitor<'a>(&'a mut Vec<(&'static str, Value)>);

impl FieldVisitor<'_> {
    fn put(&mut self, field: &Field, value: Value) {
        self.0.retain(|(name, _)| *name != field.name());
        self.0.push((field.name(), value));
    }
}

impl Visit for FieldVisitor<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.put(field, Value::String(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, Value::String(value.to_owned()));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }
}

/// The number and the name of this thread.
pub(crate) fn current_thread() -> (u64, String) {
    let number = thread_number();
    let name = thread::current().name().map_or_else(|| format!("thread {number}"), str::to_owned);
    (number, name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::layer::SubscriberExt;

    #[test]
    fn nested_spans_and_their_fields_are_recorded() {
        let (recorder, log) = SpanRecorder::new();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(recorder), || {
            let outer = tracing::info_span!(
                "outer",
                tokens = 7_u64,
                kind = "a",
                late = tracing::field::Empty
            );
            outer.in_scope(|| {
                let _inner = tracing::debug_span!("inner").entered();
                thread::sleep(Duration::from_millis(2));
            });
            outer.record("late", true);
            outer.in_scope(|| ());
            tracing::trace_span!("too fine").in_scope(|| ());
            tracing::info!("an event is not a span");
        });
        let spans = log.spans();
        let names: Vec<_> = spans.iter().map(|span| span.name).collect();
        assert_eq!(
            names,
            ["inner", "outer", "outer"],
            "a span that is entered twice is recorded twice"
        );
        assert!(spans[0].duration >= Duration::from_millis(2));
        assert!(spans[1].start <= spans[0].start && spans[1].duration >= spans[0].duration);
        assert_eq!(spans[1].fields, [("tokens", 7.into()), ("kind", "a".into())]);
        assert_eq!(spans[2].fields[2], ("late", true.into()));
        log.clear();
        assert!(log.spans().is_empty());
    }

    #[test]
    fn spans_without_a_recorder_are_disabled() {
        assert!(tracing::info_span!("off").is_disabled());
    }

    #[test]
    fn threads_have_different_numbers() {
        let (recorder, log) = SpanRecorder::new();
        let dispatch = tracing::Dispatch::new(tracing_subscriber::registry().with(recorder));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    tracing::dispatcher::with_default(&dispatch, || {
                        tracing::info_span!("x").in_scope(|| ());
                    });
                });
            }
        });
        let spans = log.spans();
        assert_ne!(spans[0].thread, spans[1].thread);
    }
}
