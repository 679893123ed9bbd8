//! Measurements of a run: a timeline for Perfetto, and reports of time and memory.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, anyhow};
use rf_profile::memory::{KvSample, MemoryParts, MemoryReport, MemoryTracker};
use rf_profile::roofline::MachineLimits;
use rf_profile::ttft::{Phase, TtftBreakdown};
use rf_profile::{SpanEvent, SpanLog, SpanRecorder, Trace, plot};
use rocmforge::engine::{BackendExecutionSummary, Engine, Timeline, TrackKind, time_of_events};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::layer::SubscriberExt;

use crate::device::{Placement, gpus};
use crate::{limits, logging, picture, prefix_cache, telemetry, terminal};

/// Events of each backend that are recorded: about 50 MB of a file, a thousand tokens of a small
/// model. Later events repeat the pattern of the first ones.
const MAX_EVENTS: usize = 300_000;

/// The destinations of a recording.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outputs {
    /// The file of the timeline.
    pub(crate) trace: Option<PathBuf>,
    /// The picture of the roofline.
    pub(crate) roofline: Option<PathBuf>,
    /// Print reports on stderr.
    pub(crate) reports: bool,
}

/// Records the spans of this thread during its lifetime, and the measurements of the engine.
pub(crate) struct Recording {
    spans: SpanLog,
    outputs: Outputs,
    run: Option<RunMeasurements>,
    _until_dropped: DefaultGuard,
}

/// Measurements of an engine after a run.
struct RunMeasurements {
    timelines: Vec<Timeline>,
    summaries: Vec<(BackendExecutionSummary, Result<MachineLimits>)>,
    memory: MemoryTracker,
    page_tokens: u64,
    total_pages: u64,
    /// A line about the prefix cache.
    prefix_cache: Option<String>,
}

impl Recording {
    /// Starts a recording if it has a destination.
    pub(crate) fn start(outputs: Outputs) -> Option<Self> {
        if outputs.trace.is_none() && outputs.roofline.is_none() && !outputs.reports {
            return None;
        }
        let (recorder, spans) = SpanRecorder::new();
        let subscriber = tracing_subscriber::registry().with(recorder).with(logging::layer());
        let until_dropped = tracing::subscriber::set_default(subscriber);
        Some(Self { spans, outputs, run: None, _until_dropped: until_dropped })
    }

    /// Captures the measurements of the engine and, for reports, the limits of the devices.
    pub(crate) fn capture(&mut self, engine: &mut Engine, placement: &Placement) {
        let memory = memory(engine, placement);
        let limits_of = |summary: &BackendExecutionSummary| {
            let launches: u64 = summary.ops.values().map(|op| op.launches).sum();
            match placement.gpu().filter(|_| launches > 0) {
                Some(gpu) => limits::of_gpu(gpu),
                None => limits::of_cpu(placement),
            }
        };
        let are_judged = self.outputs.reports || self.outputs.roofline.is_some();
        let summaries = if are_judged { engine.summaries() } else { Vec::new() };
        let summaries = summaries.into_iter().map(|summary| {
            let limits = limits_of(&summary);
            (summary, limits)
        });
        self.run = Some(RunMeasurements {
            summaries: summaries.collect(),
            timelines: engine.timelines(),
            memory,
            page_tokens: engine.page_tokens() as u64,
            total_pages: engine.kv_stats().total_pages as u64,
            prefix_cache: prefix_cache::line(engine),
        });
    }

    /// Prints the reports, draws the roofline and writes the trace file.
    pub(crate) fn finish(self) -> Result<()> {
        let spans = self.spans.spans();
        let timelines = self.run.as_ref().map_or(&[][..], |run| &run.timelines);
        if self.outputs.reports {
            if let Some(run) = &self.run {
                for (summary, limits) in &run.summaries {
                    terminal::note(telemetry::report(summary, limits.as_ref()));
                }
            }
            let ttft = breakdown(&spans, self.spans.origin(), timelines);
            terminal::note(format_args!("{}{}", ttft.format_table(), ttft.optimization_summary()));
            if let Some(run) = &self.run {
                terminal::note(format_args!("\n{}", run.memory_report(&spans)));
                if let Some(line) = &run.prefix_cache {
                    terminal::note(line);
                }
            }
        }
        if let Some(path) = &self.outputs.roofline {
            let summaries = self.run.as_ref().map_or(&[][..], |run| &run.summaries);
            show_roofline(path, summaries)?;
        }
        let Some(path) = &self.outputs.trace else { return Ok(()) };
        if self.spans.dropped() > 0 {
            let dropped = self.spans.dropped();
            terminal::warn(format_args!("the trace is full: it lacks the last {dropped} spans"));
        }
        for timeline in timelines.iter().filter(|timeline| timeline.dropped_batches > 0) {
            let Timeline { backend, dropped_batches, .. } = timeline;
            terminal::warn(format_args!(
                "the trace is full after {MAX_EVENTS} events of {backend}: the last {dropped_batches} batches have \
                 spans but no ops"
            ));
        }
        timeline_trace(&spans, self.spans.origin(), timelines).save(path)?;
        terminal::note(format_args!("{}: open it in https://ui.perfetto.dev", path.display()));
        Ok(())
    }
}

/// Draws the ops of the backend that took the most time.
fn show_roofline(
    path: &Path,
    summaries: &[(BackendExecutionSummary, Result<MachineLimits>)],
) -> Result<()> {
    // A run that stopped before its first batch has nothing to draw, and says why by itself.
    let Some((summary, limits)) = summaries.iter().max_by_key(|(summary, _)| summary.time) else {
        return Ok(());
    };
    let limits = limits.as_ref().map_err(|error| anyhow!("no roofline: {error:#}"))?;
    let verdicts = telemetry::verdicts(summary, limits);
    let title = format!("Roofline of {}", summary.backend);
    let nothing =
        || anyhow!("no roofline: the limits of the device or the costs of ops are unknown");
    let svg = plot::roofline_svg(limits, &verdicts, &title).ok_or_else(nothing)?;
    let text = |width| plot::roofline_text(limits, &verdicts, width).unwrap_or_default();
    picture::show(path, || svg, text)
}

/// Starts timing every op.
pub(crate) fn start_profiling(engine: &mut Engine) {
    if !engine.profile(true) {
        terminal::warn("this backend does not time ops");
    } else if !engine.record_timeline(MAX_EVENTS) {
        terminal::warn("this backend records no timeline of ops");
    }
}

/// The memory held now and the memory need computed before loading.
fn memory(engine: &Engine, placement: &Placement) -> MemoryTracker {
    let mut memory = MemoryTracker::new();
    let (need, held) = (engine.memory_need().held, engine.memory());
    memory.plan(MemoryParts {
        weights_bytes: need.weights_bytes,
        kv_bytes: need.kv_bytes,
        states_bytes: need.states_bytes,
        buffers_bytes: need.buffers_bytes,
    });
    memory.actual(MemoryParts {
        weights_bytes: held.weights_bytes,
        kv_bytes: held.kv_bytes,
        states_bytes: held.states_bytes,
        buffers_bytes: held.buffers_bytes,
    });
    // Limits are measured later, since that takes memory, too. Values that the system does not
    // report are left out.
    if let Err(error) = memory.sample_process() {
        tracing::debug!("{error}");
    }
    if let Some(gpu) = placement.gpu()
        && let Err(error) = gpus::sample_memory(gpu.number, &mut memory)
    {
        tracing::debug!("{error}");
    }
    memory
}

impl RunMeasurements {
    /// The memory report, with the use of the cache at each batch.
    fn memory_report(&self, spans: &[SpanEvent]) -> MemoryReport {
        let mut memory = self.memory.clone();
        // The cache is empty at first.
        memory.sample_kv(KvSample { total_pages: self.total_pages, ..KvSample::default() });
        for batch in spans.iter().filter(|span| span.name == "batch") {
            let (Some(used_pages), Some(bytes), Some(unfilled_tokens), Some(allocations)) = (
                field(batch, "kv_pages"),
                field(batch, "kv_bytes"),
                field(batch, "kv_unfilled_tokens"),
                field(batch, "kv_allocations"),
            ) else {
                continue;
            };
            memory.sample_kv(KvSample {
                tokens: (used_pages * self.page_tokens).saturating_sub(unfilled_tokens),
                bytes,
                used_pages,
                total_pages: self.total_pages,
                unfilled_tokens,
                allocations,
            });
        }
        memory.report()
    }
}

fn field(span: &SpanEvent, name: &str) -> Option<u64> {
    span.fields.iter().find(|(field, _)| *field == name)?.1.as_u64()
}

/// The parts of TTFT: from spans and, within prefill, from the timelines of backends.
fn breakdown(spans: &[SpanEvent], origin: Instant, timelines: &[Timeline]) -> TtftBreakdown {
    let mut ttft = TtftBreakdown::from_spans(spans);
    let samples = spans.iter().filter(|span| span.name == Phase::FirstSample.span());
    let Some(first_sample) = samples.map(|span| span.start).min() else { return ttft };
    let first_sample = origin + first_sample;
    let mut add = |phase: Phase, kind, why_not| match time_of_events(
        timelines,
        kind,
        phase.span(),
        first_sample,
    ) {
        Some(time) => ttft.record_within(Phase::Prefill, phase, time),
        None => ttft.explain_absence(phase, why_not),
    };
    add(Phase::Embed, TrackKind::Ops, "part of prefill: the backend does not time it");
    for phase in [Phase::HostToDevice, Phase::DeviceToHost] {
        add(phase, TrackKind::Transfers, "no copies: no device took part");
    }
    ttft
}

/// A trace with the spans of this program and a group of tracks per backend.
fn timeline_trace(spans: &[SpanEvent], origin: Instant, timelines: &[Timeline]) -> Trace {
    let mut trace = Trace::new();
    trace.add_spans("rf-cli", spans);
    let cache = trace.process("KV cache");
    for batch in spans.iter().filter(|span| span.name == "batch") {
        if let Some(pages) = field(batch, "kv_pages") {
            trace.counter(cache, "pages in use", batch.start + batch.duration, pages as f64);
        }
    }
    let checked: Vec<&SpanEvent> = spans.iter().filter(|span| span.name == "verify").collect();
    if !checked.is_empty() {
        let drafts = trace.process("drafts");
        for span in checked {
            let (end, count) = (span.start + span.duration, |name| field(span, name).unwrap_or(0));
            let (drafted, accepted) = (count("drafted"), count("accepted"));
            let share = accepted as f64 / drafted.max(1) as f64;
            trace.counter(drafts, "accepted tokens (%)", end, 100.0 * share);
        }
    }
    for timeline in timelines {
        let group = trace.process(&timeline.backend);
        let mut starts = Vec::new();
        for track in &timeline.tracks {
            let (name, category) = match track.kind {
                TrackKind::Launches => ("launches (host)", "launch"),
                TrackKind::Transfers => ("transfers", "transfer"),
                _ => (&*track.name, "op"),
            };
            let line = trace.track(group, name);
            for event in &track.events {
                let start = event.start.saturating_duration_since(origin);
                let mut arguments = vec![("batch", event.batch.into())];
                if !event.detail.is_empty() {
                    arguments.push(("of", (&*event.detail).into()));
                }
                if track.kind == TrackKind::Transfers {
                    arguments.push(("bytes", event.bytes.into()));
                }
                let time = start..start + event.duration;
                trace.complete(line, event.name, category, time, &arguments);
            }
            let times = track.events.iter().map(|e| e.start.saturating_duration_since(origin));
            starts.push((track.kind, line, times.collect::<Vec<_>>()));
        }
        // A launch on the host and its op on the device have the same index in their tracks.
        let of = |kind| starts.iter().find(|(of, ..)| *of == kind);
        if let (Some((_, host, calls)), Some((_, device, ops))) =
            (of(TrackKind::Launches), of(TrackKind::Ops))
        {
            for (call, op) in calls.iter().zip(ops) {
                trace.arrow((*host, *call), (*device, *op));
            }
        }
    }
    trace
}
