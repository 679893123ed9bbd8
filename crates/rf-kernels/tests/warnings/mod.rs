//! Collects warnings.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

/// The texts of warnings.
#[derive(Clone, Default)]
pub(crate) struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    /// Runs `work` and returns its result with the warnings.
    pub(crate) fn of<R>(work: impl FnOnce() -> R) -> (R, Vec<String>) {
        let warnings = Self::default();
        let subscriber = tracing_subscriber::registry().with(warnings.clone());
        let result = tracing::subscriber::with_default(subscriber, work);
        let texts = warnings.0.lock().unwrap().clone();
        (result, texts)
    }
}

impl<S: Subscriber> Layer<S> for Warnings {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if *event.metadata().level() == Level::WARN {
            let mut text = Text(String::new());
            event.record(&mut text);
            self.0.lock().unwrap().push(text.0);
        }
    }
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            write!(self.0, "{value:?}").unwrap();
        }
    }
}
