//! What a run did when: a timeline for Perfetto, and the way to the first token.

use std::path::{Path, PathBuf};

use anyhow::Result;
use rf_profile::ttft::TtftBreakdown;
use rf_profile::{SpanLog, SpanRecorder, Trace};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::layer::SubscriberExt;

use crate::{log, terminal};

/// Records the spans of this thread while it lives.
pub(crate) struct Recording {
    spans: SpanLog,
    trace: Option<PathBuf>,
    breakdown: bool,
    _until_dropped: DefaultGuard,
}

impl Recording {
    /// Starts where there is something to record for: a file, or a table on stderr.
    pub(crate) fn start(trace: Option<&Path>, breakdown: bool) -> Option<Self> {
        if trace.is_none() && !breakdown {
            return None;
        }
        let (recorder, spans) = SpanRecorder::new();
        let subscriber = tracing_subscriber::registry().with(recorder).with(log::layer());
        let until_dropped = tracing::subscriber::set_default(subscriber);
        let trace = trace.map(Path::to_owned);
        Some(Self { spans, trace, breakdown, _until_dropped: until_dropped })
    }

    /// Prints the table and writes the file.
    pub(crate) fn finish(self) -> Result<()> {
        let spans = self.spans.spans();
        if self.breakdown {
            let ttft = TtftBreakdown::from_spans(&spans);
            terminal::note(format_args!("{}{}", ttft.format_table(), ttft.optimization_summary()));
        }
        let Some(path) = &self.trace else { return Ok(()) };
        if self.spans.dropped() > 0 {
            let dropped = self.spans.dropped();
            terminal::warn(format_args!("{dropped} spans had no room and are not in the trace"));
        }
        let mut trace = Trace::new();
        trace.add_spans("rf-cli", &spans);
        trace.save(path)?;
        terminal::note(format_args!("{}: open it in https://ui.perfetto.dev", path.display()));
        Ok(())
    }
}
