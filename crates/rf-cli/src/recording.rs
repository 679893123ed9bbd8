//! What a run did when: a timeline for Perfetto, and reports of where time and memory went.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Result;
use rf_engine::{Engine, time_of_events};
use rf_graph::{BackendExecutionSummary, Timeline, TrackKind};
use rf_profile::memory::{KvSample, MemoryParts, MemoryReport, MemoryTracker};
use rf_profile::roofline::Limits;
use rf_profile::ttft::{Phase, TtftBreakdown};
use rf_profile::{SpanEvent, SpanLog, SpanRecorder, Trace};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::layer::SubscriberExt;

use crate::device::{Placement, gpus};
use crate::{limits, log, telemetry, terminal};

/// Events of each backend that are kept: some 50 MB of a file, a thousand tokens of a small model. The first ones, since
/// what comes later repeats the last of them.
const MAX_EVENTS: usize = 300_000;

/// Records the spans of this thread while it lives, and what the engine did.
pub(crate) struct Recording {
    spans: SpanLog,
    trace: Option<PathBuf>,
    reports: bool,
    ran: Option<Ran>,
    _until_dropped: DefaultGuard,
}

/// What an engine says when it has run.
struct Ran {
    timelines: Vec<Timeline>,
    summaries: Vec<(BackendExecutionSummary, Result<Limits>)>,
    memory: MemoryTracker,
    page_tokens: u64,
    total_pages: u64,
    kv_bytes: u64,
}

impl Recording {
    /// Starts where there is something to record for: a file, or reports on stderr.
    pub(crate) fn start(trace: Option<&Path>, reports: bool) -> Option<Self> {
        if trace.is_none() && !reports {
            return None;
        }
        let (recorder, spans) = SpanRecorder::new();
        let subscriber = tracing_subscriber::registry().with(recorder).with(log::layer());
        let until_dropped = tracing::subscriber::set_default(subscriber);
        let trace = trace.map(Path::to_owned);
        Some(Self { spans, trace, reports, ran: None, _until_dropped: until_dropped })
    }

    /// Takes in what the engine has done, and for reports what there is to hold it against.
    pub(crate) fn take_in(&mut self, engine: &Engine, placement: &Placement) {
        let memory = memory(engine, placement);
        let limits_of = |summary: &BackendExecutionSummary| {
            let launches: u64 = summary.ops.values().map(|op| op.launches).sum();
            match placement.gpu().filter(|_| launches > 0) {
                Some(gpu) => limits::of_gpu(gpu),
                None => limits::of_cpu(placement),
            }
        };
        let summaries = if self.reports { engine.summaries() } else { Vec::new() };
        let summaries = summaries.into_iter().map(|summary| {
            let limits = limits_of(&summary);
            (summary, limits)
        });
        self.ran = Some(Ran {
            summaries: summaries.collect(),
            timelines: engine.timelines(),
            memory,
            page_tokens: engine.page_tokens() as u64,
            total_pages: engine.kv_stats().total_pages as u64,
            kv_bytes: engine.memory().kv_bytes,
        });
    }

    /// Prints the reports and writes the file.
    pub(crate) fn finish(self) -> Result<()> {
        let spans = self.spans.spans();
        let timelines = self.ran.as_ref().map_or(&[][..], |ran| &ran.timelines);
        if self.reports {
            if let Some(ran) = &self.ran {
                for (summary, limits) in &ran.summaries {
                    terminal::note(telemetry::report(summary, limits.as_ref()));
                }
            }
            let ttft = breakdown(&spans, self.spans.origin(), timelines);
            terminal::note(format_args!("{}{}", ttft.format_table(), ttft.optimization_summary()));
            if let Some(ran) = &self.ran {
                terminal::note(format_args!("\n{}", ran.memory_report(&spans)));
            }
        }
        let Some(path) = &self.trace else { return Ok(()) };
        if self.spans.dropped() > 0 {
            let dropped = self.spans.dropped();
            terminal::warn(format_args!("{dropped} spans had no room and are not in the trace"));
        }
        for timeline in timelines.iter().filter(|timeline| timeline.dropped_batches > 0) {
            let Timeline { backend, dropped_batches, .. } = timeline;
            terminal::warn(format_args!(
                "the ops of {backend} are in the trace up to {MAX_EVENTS} events: the last {dropped_batches} batches have \
                 their spans alone"
            ));
        }
        timeline_trace(&spans, self.spans.origin(), timelines).save(path)?;
        terminal::note(format_args!("{}: open it in https://ui.perfetto.dev", path.display()));
        Ok(())
    }
}

/// Has the engine take the time of every op from now on.
pub(crate) fn watch(engine: &mut Engine) {
    if !engine.profile(true) {
        terminal::warn("what runs the model takes no times of ops");
    } else if !engine.record_timeline(MAX_EVENTS) {
        terminal::warn("what runs the model keeps no timeline of ops");
    }
}

/// What is held beside what was planned, now.
fn memory(engine: &Engine, placement: &Placement) -> MemoryTracker {
    let mut memory = MemoryTracker::new();
    let (plan, held) = (engine.memory_plan(), engine.memory());
    memory.plan(MemoryParts {
        weights_bytes: plan.weights_bytes,
        kv_bytes: plan.kv_bytes,
        buffers_bytes: plan.buffers_bytes,
    });
    memory.actual(MemoryParts {
        weights_bytes: held.weights_bytes,
        kv_bytes: held.kv_bytes,
        buffers_bytes: held.buffers_bytes,
    });
    // Before limits are measured, which takes memory too. What a system does not say is not reported.
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

impl Ran {
    /// With the cache as it was at each batch.
    fn memory_report(&self, spans: &[SpanEvent]) -> MemoryReport {
        let mut memory = self.memory.clone();
        // An engine begins with an empty cache.
        memory.sample_kv(KvSample { total_pages: self.total_pages, ..KvSample::default() });
        for batch in spans.iter().filter(|span| span.name == "batch") {
            let (Some(used_pages), Some(unfilled_tokens), Some(allocations)) = (
                field(batch, "kv_pages"),
                field(batch, "kv_unfilled_tokens"),
                field(batch, "kv_allocations"),
            ) else {
                continue;
            };
            memory.sample_kv(KvSample {
                tokens: (used_pages * self.page_tokens).saturating_sub(unfilled_tokens),
                bytes: used_pages * self.kv_bytes / self.total_pages.max(1),
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

/// The way to the first token, by spans and, within the prompt, by what backends timed themselves.
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
    add(Phase::Embed, TrackKind::Ops, "part of the prefill: no op took its time");
    for phase in [Phase::HostToDevice, Phase::DeviceToHost] {
        add(phase, TrackKind::Transfers, "nothing was copied: no device took part");
    }
    ttft
}

/// Spans of this program, then a group of tracks for each backend.
fn timeline_trace(spans: &[SpanEvent], origin: Instant, timelines: &[Timeline]) -> Trace {
    let mut trace = Trace::new();
    trace.add_spans("rf-cli", spans);
    let cache = trace.process("KV cache");
    for batch in spans.iter().filter(|span| span.name == "batch") {
        if let Some(pages) = field(batch, "kv_pages") {
            trace.counter(cache, "pages in use", batch.start + batch.duration, pages as f64);
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
        // A launch on the host and what it started on the device have the same place in their tracks.
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
