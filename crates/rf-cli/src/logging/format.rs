//! The form of a line of the log.

use std::fmt;
use std::sync::OnceLock;

use chrono::{SecondsFormat, Utc};
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::terminal::Palette;

/// The form of the log of a server, whose lines have the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// A line for people
    Text,
    /// A JSON object per line
    Json,
}

/// Set for a server.
static FORMAT: OnceLock<LogFormat> = OnceLock::new();

/// From now on, lines have this form and the time.
pub(crate) fn set_format(format: LogFormat) {
    // A process runs one command.
    let _earlier: Result<(), LogFormat> = FORMAT.set(format);
}

/// One line per event: `warning: message field=value`, and `debug rf_engine: message field=value`
/// below warnings, or an object of JSON. Spans are not shown.
pub(super) struct LineFormat;

impl<S, N> FormatEvent<S, N> for LineFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let palette = Palette::stderr();
        let target = event.metadata().target();
        let time = || Utc::now().to_rfc3339_opts(SecondsFormat::Millis, true);
        match FORMAT.get() {
            Some(LogFormat::Json) => return writeln!(writer, "{}", object(event, time())),
            Some(LogFormat::Text) => write!(writer, "{} ", palette.dim(time()))?,
            None => {}
        }
        match *event.metadata().level() {
            Level::ERROR => write!(writer, "{} ", palette.red("error:"))?,
            Level::WARN => write!(writer, "{} ", palette.yellow("warning:"))?,
            level => {
                let level = level.as_str().to_ascii_lowercase();
                write!(writer, "{} ", palette.dim(format_args!("{level} {target}:")))?;
            }
        }
        context.format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

/// An event as JSON.
fn object(event: &Event<'_>, time: String) -> Value {
    let level = event.metadata().level().as_str().to_ascii_lowercase();
    let mut fields = Fields(Map::new());
    fields.0.insert("time".to_owned(), time.into());
    fields.0.insert("level".to_owned(), level.into());
    fields.0.insert("target".to_owned(), event.metadata().target().into());
    event.record(&mut fields);
    Value::Object(fields.0)
}

/// The fields of an event.
struct Fields(Map<String, Value>);

impl Fields {
    fn add(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format!("{value:?}"));
    }
}
