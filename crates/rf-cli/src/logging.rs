//! Log events of the library crates on stderr, filtered by `RUST_LOG`.

mod format;
mod queue;

use std::env;

use tracing::Subscriber;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, Layer};

use self::format::LineFormat;
pub(crate) use self::format::{LogFormat, set_format};
pub(crate) use self::queue::Queue;
use crate::terminal;

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
