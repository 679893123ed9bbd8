//! Log events of the library crates on stderr, filtered by `RUST_LOG`.

mod queue;

use std::{env, fmt};

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, Layer};

pub(crate) use self::queue::Queue;
use crate::terminal::{self, Palette};

/// The filter without `RUST_LOG`: warnings of our own crates, whose names share this prefix, and
/// the requests of the server.
const DEFAULT_FILTER: &str = "rf_=warn,rf_server=info";

/// Starts to print log events. Warns of a `RUST_LOG` that is not valid.
pub(crate) fn start() {
    if let Err(error) = filter() {
        let value = env::var_os("RUST_LOG").unwrap_or_default();
        terminal::warn(format_args!(
            "RUST_LOG={} is not a valid filter ({error}), so only warnings are shown: use a level, or \
             TARGET=LEVEL as in rf_engine=debug",
            value.display()
        ));
    }
    let subscriber = tracing_subscriber::registry().with(layer());
    // Fails only if there is a global subscriber already.
    drop(tracing::subscriber::set_global_default(subscriber));
}

/// The layer that prints log events, to combine with others in the subscriber of one thread.
pub(crate) fn layer<S>() -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    tracing_subscriber::fmt::layer()
        .with_writer(|| queue::LineWriter)
        .with_ansi(false)
        .event_format(LineFormat)
        // Such errors are printed on stderr, too, and panic if that fails, as on a full disk.
        .log_internal_errors(false)
        .with_filter(filter().unwrap_or_else(|_| EnvFilter::new(DEFAULT_FILTER)))
}

/// The filter of `RUST_LOG`, or the default one if the variable is unset or empty.
fn filter() -> Result<EnvFilter, Box<dyn std::error::Error>> {
    let Some(value) = env::var_os("RUST_LOG").filter(|value| !value.is_empty()) else {
        return Ok(EnvFilter::new(DEFAULT_FILTER));
    };
    let value = value.into_string().map_err(|_| "it is not valid UTF-8")?;
    Ok(EnvFilter::try_new(value)?)
}

/// One line per event: `warning: message field=value`, and `debug rf_engine: message field=value`
/// below warnings. Spans are not shown.
struct LineFormat;

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
