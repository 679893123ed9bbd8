//! Time to first token (TTFT) by phase.
//!
//! An engine opens a `tracing` span with the name [`Phase::span`] around each phase.
//! [`TtftBreakdown::from_spans`] computes the breakdown from the spans that a
//! [`SpanRecorder`](crate::SpanRecorder) recorded.

use std::fmt::Write;
use std::time::Duration;

use crate::spans::SpanEvent;

/// A phase before the first token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// Reads and packs the weights. A process does this once, so TTFT excludes it.
    ModelLoad,
    /// Converts text to token ids.
    Tokenize,
    /// Looks up embeddings, if that is a separate step.
    Embed,
    /// Processes the prompt.
    Prefill,
    /// Samples the first token.
    FirstSample,
    /// Copies data to the device.
    HostToDevice,
    /// Copies data from the device.
    DeviceToHost,
}

impl Phase {
    /// All phases in order.
    pub const ALL: [Self; 7] = [
        Self::ModelLoad,
        Self::Tokenize,
        Self::Embed,
        Self::Prefill,
        Self::FirstSample,
        Self::HostToDevice,
        Self::DeviceToHost,
    ];

    /// The name of the phase's span.
    pub const fn span(self) -> &'static str {
        match self {
            Self::ModelLoad => "model_load",
            Self::Tokenize => "tokenize",
            Self::Embed => "embed",
            Self::Prefill => "prefill",
            Self::FirstSample => "sample",
            Self::HostToDevice => "h2d",
            Self::DeviceToHost => "d2h",
        }
    }

    /// The name of the phase in reports.
    pub const fn label(self) -> &'static str {
        match self {
            Self::ModelLoad => "model load",
            Self::Tokenize => "tokenise",
            Self::Embed => "embed",
            Self::Prefill => "prefill",
            Self::FirstSample => "first sample",
            Self::HostToDevice => "host to device",
            Self::DeviceToHost => "device to host",
        }
    }

    const fn advice(self) -> &'static str {
        match self {
            Self::ModelLoad => "keep the model loaded between prompts",
            Self::Tokenize => "cache the token ids of a fixed prefix, such as the system prompt",
            Self::Embed => "place the embedding table on the device of the first layer",
            Self::Prefill => {
                "use larger prompt batches, more layers on the GPU, or a cached prompt prefix"
            }
            Self::FirstSample => "use fewer samplers, or a smaller top-k as the first one",
            Self::HostToDevice => {
                "use pinned memory and fewer, larger copies, or move more layers to one device"
            }
            Self::DeviceToHost => "copy only the logits of the last token",
        }
    }
}

/// Time to first token by phase. Phases are disjoint: the time of a nested phase counts only for
/// the inner one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TtftBreakdown {
    times: [Option<Duration>; Phase::ALL.len()],
    /// The known reasons for missing times.
    absences: [Option<&'static str>; Phase::ALL.len()],
    /// The number of prompt tokens: the sum of the field `tokens` of `prefill` spans.
    pub prompt_tokens: u64,
}

impl TtftBreakdown {
    /// Creates a breakdown without times.
    pub fn new() -> Self {
        Self::default()
    }

    /// Computes the breakdown of recorded spans up to the end of the first `sample`. A phase
    /// without a span has no time.
    ///
    /// # Examples
    ///
    /// ```
    /// use rf_profile::SpanRecorder;
    /// use rf_profile::ttft::{Phase, TtftBreakdown};
    /// use tracing_subscriber::layer::SubscriberExt;
    ///
    /// let (recorder, log) = SpanRecorder::new();
    /// tracing::subscriber::with_default(tracing_subscriber::registry().with(recorder), || {
    ///     tracing::info_span!("prefill", tokens = 12).in_scope(|| { /* … */ });
    ///     tracing::info_span!("sample").in_scope(|| { /* … */ });
    /// });
    /// let ttft = TtftBreakdown::from_spans(&log.spans());
    /// assert_eq!(ttft.prompt_tokens, 12);
    /// assert!(ttft.time(Phase::Prefill).is_some() && ttft.time(Phase::Tokenize).is_none());
    /// ```
    pub fn from_spans(spans: &[SpanEvent]) -> Self {
        let phase =
            |span: &SpanEvent| Phase::ALL.into_iter().find(|phase| phase.span() == span.name);
        let first = spans.iter().filter(|span| phase(span) == Some(Phase::FirstSample));
        let end = first.map(|span| span.start + span.duration).min().unwrap_or(Duration::MAX);
        let mut inside: Vec<(&SpanEvent, Phase)> = spans
            .iter()
            .filter(|span| span.start + span.duration <= end)
            .filter_map(|span| Some((span, phase(span)?)))
            .collect();
        // Outer spans come before inner ones.
        inside.sort_by_key(|(span, _)| (span.thread, span.start, std::cmp::Reverse(span.duration)));

        let mut breakdown = Self::new();
        let mut open: Vec<(&SpanEvent, Phase, Duration)> = Vec::new();
        for (span, phase) in inside {
            while let Some((outer, outer_phase, nested)) = open.last().copied() {
                let is_inside = outer.thread == span.thread
                    && span.start + span.duration <= outer.start + outer.duration;
                if is_inside {
                    break;
                }
                breakdown.record(outer_phase, outer.duration.saturating_sub(nested));
                open.pop();
            }
            if let Some((_, _, nested)) = open.last_mut() {
                *nested += span.duration;
            }
            open.push((span, phase, Duration::ZERO));
            if phase == Phase::Prefill {
                let tokens = span.fields.iter().find(|(name, _)| *name == "tokens");
                breakdown.prompt_tokens +=
                    tokens.and_then(|(_, value)| value.as_u64()).unwrap_or(0);
            }
        }
        for (span, phase, nested) in open {
            breakdown.record(phase, span.duration.saturating_sub(nested));
        }
        breakdown
    }

    /// Adds time to a phase.
    pub fn record(&mut self, phase: Phase, time: Duration) {
        *self.times[phase as usize].get_or_insert_default() += time;
    }

    /// Moves `time` from the phase `outer` to `inner`: for copies and ops without a span, whose
    /// times the device or the executor measured. At most the whole time of `outer` moves.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use rf_profile::ttft::{Phase, TtftBreakdown};
    ///
    /// let mut ttft = TtftBreakdown::new();
    /// ttft.record(Phase::Prefill, Duration::from_millis(50));
    /// ttft.record_within(Phase::Prefill, Phase::HostToDevice, Duration::from_millis(2));
    /// assert_eq!(ttft.time(Phase::Prefill), Some(Duration::from_millis(48)));
    /// ```
    pub fn record_within(&mut self, outer: Phase, inner: Phase, time: Duration) {
        let Some(whole) = &mut self.times[outer as usize] else { return };
        let time = time.min(*whole);
        *whole -= time;
        self.record(inner, time);
    }

    /// Sets the reason that tables show for a phase without a time.
    ///
    /// # Examples
    ///
    /// ```
    /// use rf_profile::ttft::{Phase, TtftBreakdown};
    ///
    /// let mut ttft = TtftBreakdown::new();
    /// ttft.explain_absence(Phase::HostToDevice, "the model runs on the CPU");
    /// assert_eq!(ttft.time(Phase::HostToDevice), None);
    /// assert!(ttft.format_table().contains("-  the model runs on the CPU"));
    /// ```
    pub fn explain_absence(&mut self, phase: Phase, why: &'static str) {
        self.absences[phase as usize] = Some(why);
    }

    /// The time of a phase, or `None` if it was not measured.
    pub fn time(&self, phase: Phase) -> Option<Duration> {
        self.times[phase as usize]
    }

    /// Time to first token: the sum of all phases except the model load. `None` without the times
    /// of prefill and the first sample, because the sum would be meaningless.
    pub fn total(&self) -> Option<Duration> {
        self.time(Phase::Prefill).and(self.time(Phase::FirstSample))?;
        let phases = Phase::ALL.into_iter().filter(|phase| *phase != Phase::ModelLoad);
        Some(phases.filter_map(|phase| self.time(phase)).sum())
    }

    /// The longest phase and its fraction of the time to first token.
    pub fn dominant_component(&self) -> Option<(Phase, f64)> {
        let total = self.total()?.as_secs_f64();
        let phases = Phase::ALL.into_iter().filter(|phase| *phase != Phase::ModelLoad);
        let (phase, time) = phases
            .filter_map(|phase| Some((phase, self.time(phase)?)))
            .max_by_key(|(_, time)| *time)?;
        Some((phase, if total > 0.0 { time.as_secs_f64() / total } else { 0.0 }))
    }

    /// Returns true if the time to first token is at most `target`, or `None` if it was not
    /// measured.
    pub fn meets_target(&self, target: Duration) -> Option<bool> {
        Some(self.total()? <= target)
    }

    /// A sentence that names the longest phase and how to shorten it.
    pub fn optimization_summary(&self) -> String {
        let Some((phase, share)) = self.dominant_component() else {
            return "time to first token was not measured".to_owned();
        };
        let percent = 100.0 * share;
        format!(
            "{percent:.0} % of the time to first token is {}: {}",
            phase.label(),
            phase.advice()
        )
    }

    /// Formats the breakdown as a table for terminals.
    pub fn format_table(&self) -> String {
        let total = self.total().unwrap_or_default().as_secs_f64();
        let mut out = format!("{:<22}  {:>10}  {:>6}\n", "phase", "ms", "share");
        for phase in Phase::ALL {
            let Some(time) = self.time(phase) else {
                line(&mut out, phase.label(), "-", self.absences[phase as usize].unwrap_or(""));
                continue;
            };
            let share = match phase {
                Phase::ModelLoad => "once".to_owned(),
                _ if total > 0.0 => format!("{:.1}%", 100.0 * time.as_secs_f64() / total),
                _ => String::new(),
            };
            line(&mut out, phase.label(), &format!("{:.3}", 1e3 * time.as_secs_f64()), &share);
        }
        let shown = self.total().map_or("-".to_owned(), |_| format!("{:.3}", 1e3 * total));
        line(&mut out, "time to first token", &shown, "");
        out
    }
}

fn line(out: &mut String, label: &str, ms: &str, share: &str) {
    let text = format!("{label:<22}  {ms:>10}  {share:>6}");
    // Writing into a String cannot fail.
    _ = writeln!(out, "{}", text.trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(name: &'static str, start_ms: u64, ms: u64) -> SpanEvent {
        SpanEvent {
            name,
            target: "t",
            thread: 1,
            start: Duration::from_millis(start_ms),
            duration: Duration::from_millis(ms),
            fields: if name == "prefill" { vec![("tokens", 8.into())] } else { Vec::new() },
        }
    }

    fn recorded() -> TtftBreakdown {
        // In the order in which the spans end. The last one belongs to the second token.
        TtftBreakdown::from_spans(&[
            span("model_load", 0, 500),
            span("tokenize", 510, 10),
            span("h2d", 530, 20),
            span("something else", 530, 1),
            span("prefill", 520, 60),
            span("prefill", 580, 20),
            span("sample", 600, 5),
            span("sample", 700, 50),
        ])
    }

    #[test]
    fn nested_phases_count_once_and_later_tokens_do_not_count() {
        let ttft = recorded();
        let ms = |phase| ttft.time(phase).map(|time| time.as_millis());
        assert_eq!(ms(Phase::ModelLoad), Some(500));
        assert_eq!((ms(Phase::HostToDevice), ms(Phase::Prefill)), (Some(20), Some(60)));
        assert_eq!((ms(Phase::FirstSample), ms(Phase::Embed)), (Some(5), None));
        assert_eq!(ttft.total(), Some(Duration::from_millis(95)));
        assert_eq!(ttft.prompt_tokens, 16);
    }

    #[test]
    fn targets_and_advice_match_the_breakdown() {
        let ttft = recorded();
        assert_eq!(ttft.dominant_component().unwrap().0, Phase::Prefill);
        assert_eq!(ttft.meets_target(Duration::from_millis(95)), Some(true));
        assert_eq!(ttft.meets_target(Duration::from_millis(94)), Some(false));
        assert!(
            ttft.optimization_summary().starts_with("63 % of the time to first token is prefill: ")
        );
        let expected = "\
phase                           ms   share
model load                 500.000    once
tokenise                    10.000   10.5%
embed                            -
prefill                     60.000   63.2%
first sample                 5.000    5.3%
host to device              20.000   21.1%
device to host                   -
time to first token         95.000
";
        assert_eq!(ttft.format_table(), expected);
    }

    #[test]
    fn unmeasured_phases_are_not_zero() {
        let ttft = TtftBreakdown::from_spans(&[]);
        assert_eq!((ttft.total(), ttft.dominant_component()), (None, None));
        assert_eq!(ttft.meets_target(Duration::from_secs(1)), None);
        assert!(ttft.optimization_summary().contains("not measured"));
        let without_prompt =
            TtftBreakdown::from_spans(&[span("tokenize", 0, 1), span("sample", 1, 1)]);
        assert_eq!(without_prompt.total(), None, "a sum without prefill is meaningless");
    }
}
