//! What the library crates log, on stderr: warnings, and more with `RUST_LOG`.

use std::env;
use std::fmt::{Debug, Write};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::terminal;

/// Shows from now on what is logged. `RUST_LOG` may be off, error, warn, info, debug or trace.
pub(crate) fn start() {
    // Nobody else sets one.
    drop(tracing::subscriber::set_global_default(log()));
}

/// The same beside other layers, for a thread whose spans are recorded.
pub(crate) fn layer<S: Subscriber>() -> impl Layer<S> {
    log()
}

fn log() -> Log {
    let asked_for = env::var("RUST_LOG").ok().and_then(|level| level.parse().ok());
    Log { level: asked_for.unwrap_or(LevelFilter::WARN), print }
}

fn print(level: Level, line: &str) {
    if level <= Level::WARN {
        terminal::warn(line);
    } else {
        terminal::note(line);
    }
}

/// One line per event; spans mean nothing.
struct Log {
    level: LevelFilter,
    print: fn(Level, &str),
}

impl Log {
    fn wants(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level && metadata.target().starts_with("rf_")
    }

    fn show(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        (self.print)(*event.metadata().level(), &line.0);
    }
}

impl<S: Subscriber> Layer<S> for Log {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        if self.wants(event.metadata()) {
            self.show(event);
        }
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.wants(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }

    fn event(&self, event: &Event<'_>) {
        self.show(event);
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

/// The message, then the fields: `what is wrong file=x`.
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0.insert_str(0, &format!("{value:?}"));
        } else {
            // Writing into a String cannot fail.
            _ = write!(self.0, " {}={value:?}", field.name());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    static PRINTED: Mutex<Vec<String>> = Mutex::new(Vec::new());

    #[test]
    fn warnings_of_our_crates_are_lines() {
        let print = |level: Level, line: &str| {
            PRINTED.lock().unwrap().push(format!("{level} {line}"));
        };
        let log = Log { level: LevelFilter::WARN, print };
        tracing::subscriber::with_default(log, || {
            tracing::warn!(target: "rf_kernels", units = 3, file = "x", "cannot be {}", "kept");
            tracing::info!(target: "rf_kernels", "of no interest");
            tracing::warn!(target: "somebody", "of no interest");
        });
        assert_eq!(*PRINTED.lock().unwrap(), ["WARN cannot be kept units=3 file=\"x\""]);
    }
}
