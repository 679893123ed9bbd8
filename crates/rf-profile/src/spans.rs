//! What ran when, from `tracing` spans.
//!
//! A crate that is to be measured opens spans; it needs `tracing` and nothing of this crate. [`SpanRecorder`] is a layer
//! that keeps when each was entered and left. Without it the spans cost a load and a branch each.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// Spans kept at most: some 100 MiB. Those beyond are counted.
const LIMIT: usize = 1 << 20;

/// A time that a thread spent in a span.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SpanEvent {
    /// The span's name.
    pub name: &'static str,
    /// The module that opened it.
    pub target: &'static str,
    /// The thread, numbered as they come.
    pub thread: u64,
    /// When it was entered, since recording began.
    pub start: Duration,
    /// Until it was left.
    pub duration: Duration,
    /// What the span says of itself.
    pub fields: Vec<(&'static str, Value)>,
}

/// A layer for a `tracing-subscriber` registry that records spans.
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
    level: Level,
}

/// What a [`SpanRecorder`] has recorded.
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

/// What a span carries with it.
#[derive(Default)]
struct Carried {
    entered: Option<Instant>,
    fields: Vec<(&'static str, Value)>,
}

impl SpanRecorder {
    /// A recorder of spans of level `DEBUG` and above, and where they go.
    pub fn new() -> (Self, SpanLog) {
        Self::with_level(Level::DEBUG)
    }

    /// The same of another level.
    pub fn with_level(level: Level) -> (Self, SpanLog) {
        let (spans, dropped) = (Mutex::default(), AtomicU64::new(0));
        let shared = Arc::new(Shared { origin: Instant::now(), spans, dropped });
        (Self { shared: Arc::clone(&shared), level }, SpanLog { shared })
    }

    fn wants(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && *metadata.level() <= self.level
    }
}

impl SpanLog {
    /// What was recorded, in the order in which spans were left.
    pub fn spans(&self) -> Vec<SpanEvent> {
        self.shared.spans.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many there was no room for.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// When recording began.
    pub fn origin(&self) -> Instant {
        self.shared.origin
    }

    /// Forgets what was recorded.
    pub fn clear(&self) {
        self.shared.spans.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.shared.dropped.store(0, Ordering::Relaxed);
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for SpanRecorder {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id).filter(|span| self.wants(span.metadata())) else {
            return;
        };
        let mut carried = Carried::default();
        attributes.record(&mut Fields(&mut carried.fields));
        span.extensions_mut().insert(carried);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(carried) = span.extensions_mut().get_mut::<Carried>() {
            values.record(&mut Fields(&mut carried.fields));
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(carried) = span.extensions_mut().get_mut::<Carried>() {
            carried.entered = Some(Instant::now());
        }
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        let now = Instant::now();
        let Some(span) = context.span(id) else { return };
        let mut extensions = span.extensions_mut();
        let Some(carried) = extensions.get_mut::<Carried>() else { return };
        let Some(entered) = carried.entered.take() else { return };
        let event = SpanEvent {
            name: span.metadata().name(),
            target: span.metadata().target(),
            thread: thread_number(),
            start: entered.saturating_duration_since(self.shared.origin),
            duration: now.saturating_duration_since(entered),
            fields: carried.fields.clone(),
        };
        let mut spans = self.shared.spans.lock().unwrap_or_else(PoisonError::into_inner);
        if spans.len() < LIMIT {
            spans.push(event);
        } else {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local!(static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed));
    // Also asked for while the thread ends.
    NUMBER.try_with(|number| *number).unwrap_or(0)
}

struct Fields<'a>(&'a mut Vec<(&'static str, Value)>);

impl Fields<'_> {
    fn put(&mut self, field: &Field, value: Value) {
        self.0.retain(|(name, _)| *name != field.name());
        self.0.push((field.name(), value));
    }
}

impl Visit for Fields<'_> {
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

/// The name of this thread, for traces.
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
    fn spans_nest_and_name_their_fields() {
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
            tracing::info!("an event is no span");
        });
        let spans = log.spans();
        let names: Vec<_> = spans.iter().map(|span| span.name).collect();
        assert_eq!(names, ["inner", "outer", "outer"], "a span entered twice is two times");
        assert!(spans[0].duration >= Duration::from_millis(2));
        assert!(spans[1].start <= spans[0].start && spans[1].duration >= spans[0].duration);
        assert_eq!(spans[1].fields, [("tokens", 7.into()), ("kind", "a".into())]);
        assert_eq!(spans[2].fields[2], ("late", true.into()));
        log.clear();
        assert!(log.spans().is_empty());
    }

    #[test]
    fn a_span_that_nobody_records_costs_next_to_nothing() {
        const SPANS: u32 = 1000;
        let batch = || {
            let start = Instant::now();
            for position in 0..SPANS {
                tracing::debug_span!("off", position).in_scope(|| std::hint::black_box(position));
            }
            start.elapsed() / SPANS
        };
        // The best of many batches: other programs share the machine.
        let best = (0..50).map(|_| batch()).min().unwrap();
        println!("a span that is off costs {best:?}");
        assert!(best < Duration::from_nanos(500), "{best:?}");
    }

    #[test]
    fn threads_have_their_numbers() {
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
