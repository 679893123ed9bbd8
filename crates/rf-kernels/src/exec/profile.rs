//! The profiler: times of ops and copies, from events around every launch.
//!
//! Events measure times relative to each other. The first event of a batch relates them to the
//! host's clock: the device is idle before a batch, so it passes this event within microseconds
//! after the host queues it.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rf_graph::{
    BackendExecutionSummary, Batch, Costs, Graph, OpCost, Timeline, TimelineEvent, TimelineTrack,
    TrackKind,
};
use rf_hip::{Event, Stream};

use super::launches::StepLaunches;
use super::sums::SumPlace;
use crate::error::Error;
use crate::launch::Recording;

/// Totals of all batches since profiling started.
pub(super) struct LaunchProfile {
    summary: BackendExecutionSummary,
    /// One event before each launch and one after the last.
    events: Vec<Event>,
    /// One event before each sum over parts.
    sum_events: Vec<Event>,
    copies: Copies,
    timeline: Option<Record>,
}

/// The upload and the download of a batch.
#[derive(Default)]
struct Copies {
    /// Start and end of the upload, start and end of the download.
    events: Option<[Event; 4]>,
    /// Time at which the host queued the first event.
    started: Option<Instant>,
    uploaded_bytes: usize,
    read_bytes: Option<usize>,
}

/// The recorded timeline.
struct Record {
    max_events: usize,
    dropped_batches: u64,
    ops: Vec<TimelineEvent>,
    launches: Vec<TimelineEvent>,
    transfers: Vec<TimelineEvent>,
    /// Calls of the host that queued the launches of the current batch.
    queued: Vec<Range<Instant>>,
}

impl LaunchProfile {
    /// An empty profile of a backend.
    pub(super) fn new(backend: String) -> Self {
        let summary = BackendExecutionSummary { backend, ..BackendExecutionSummary::default() };
        Self {
            summary,
            events: Vec::new(),
            sum_events: Vec::new(),
            copies: Copies::default(),
            timeline: None,
        }
    }

    pub(super) fn summary(&self) -> BackendExecutionSummary {
        self.summary.clone()
    }

    /// Starts to record a timeline.
    pub(super) fn record_timeline(&mut self, max_events: usize) {
        self.timeline = Some(Record {
            max_events,
            dropped_batches: 0,
            ops: Vec::new(),
            launches: Vec::new(),
            transfers: Vec::new(),
            queued: Vec::new(),
        });
    }

    /// The timeline, if one is recorded.
    pub(super) fn timeline(&self) -> Option<Timeline> {
        let record = self.timeline.as_ref()?;
        let track = |name: &str, kind, events: &Vec<TimelineEvent>| TimelineTrack {
            name: name.to_owned(),
            kind,
            events: events.clone(),
        };
        Some(Timeline {
            backend: self.summary.backend.clone(),
            tracks: vec![
                track("launches", TrackKind::Launches, &record.launches),
                track("ops", TrackKind::Ops, &record.ops),
                track("copies", TrackKind::Transfers, &record.transfers),
            ],
            dropped_batches: record.dropped_batches,
        })
    }

    /// Starts a batch, with its upload.
    pub(super) fn start(&mut self, stream: &Stream) -> Result<(), Error> {
        let event = || Event::new(stream.context(), true);
        let events = match self.copies.events.take() {
            Some(events) => events,
            None => [event()?, event()?, event()?, event()?],
        };
        stream.record(&events[0])?;
        self.copies = Copies {
            events: Some(events),
            started: Some(Instant::now()),
            uploaded_bytes: 0,
            read_bytes: None,
        };
        Ok(())
    }

    /// Marks the end of an upload of `bytes`.
    pub(super) fn uploaded(&mut self, stream: &Stream, bytes: usize) -> Result<(), Error> {
        self.copies.uploaded_bytes = bytes;
        self.copies.mark(1, stream)
    }

    /// Queues a download of `bytes`.
    pub(super) fn read_back(
        &mut self,
        stream: &Stream,
        bytes: usize,
        copy: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.copies.mark(2, stream)?;
        copy()?;
        self.copies.read_bytes = Some(bytes);
        self.copies.mark(3, stream)
    }

    /// Queues the launches of ops with an event between them, and before each sum. `queue_sum`
    /// queues a sum.
    pub(super) fn queue(
        &mut self,
        launches: &StepLaunches,
        stream: &Stream,
        queue_sum: &mut dyn FnMut(&SumPlace) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let recording = &launches.ops;
        while self.events.len() <= recording.len() {
            self.events.push(Event::new(stream.context(), true)?);
        }
        while self.sum_events.len() < launches.sums.len() {
            self.sum_events.push(Event::new(stream.context(), true)?);
        }
        let mut sums = launches.sums.iter().zip(&self.sum_events).peekable();
        let mut queue_sums = |at| {
            while let Some((sum, event)) = sums.next_if(|(sum, _)| sum.at == at) {
                stream.record(event)?;
                queue_sum(sum)?;
            }
            Ok(())
        };
        let mut queued = self.timeline.as_mut().map(|record| &mut record.queued);
        if let Some(queued) = &mut queued {
            queued.clear();
        }
        recording.queue_between(stream, &self.events, &mut queue_sums, &mut |time| {
            if let Some(queued) = &mut queued {
                queued.push(time);
            }
        })
    }

    /// Adds the times of a stage of a batch; the last stage counts the batch. The launches of an op
    /// are consecutive.
    pub(super) fn finish(
        &mut self,
        launches: &StepLaunches,
        (graph, costs): (&Graph, &Costs),
        (batch, is_last): (&Batch<'_>, bool),
        started: Instant,
    ) -> Result<(), Error> {
        let recording = &launches.ops;
        let pauses = self.add_sums(launches)?;
        let mut times = Vec::with_capacity(recording.len());
        let mut last = None;
        let between = self.events.windows(2).zip(&pauses[1..]);
        for ((op, _), (between, pause)) in recording.ops().zip(between) {
            let time = elapsed(&between[0], &between[1])?.saturating_sub(*pause);
            times.push(time);
            let (op_of_graph, is_new) = (&graph.ops()[op], last != Some(op));
            let name = op_of_graph.name();
            self.summary.add_op(name, u64::from(is_new), time);
            let cost = if is_new { costs.of(graph, op_of_graph, batch) } else { OpCost::default() };
            self.summary.add_cost(name, cost, 1);
            last = Some(op);
        }
        let launched = self.events.first().filter(|_| !times.is_empty());
        if let (Some(record), Some(first)) = (&mut self.timeline, launched) {
            let has_room = record.has_room(times.len());
            if has_room {
                let launched = self.copies.since_start(first)?;
                let batch = self.summary.batches;
                let lag = record.add(batch, recording, (graph, costs), launched, (&times, &pauses));
                self.copies.add_to(record, batch, lag)?;
            } else {
                record.dropped_batches += 1;
            }
        }
        self.summary.time += started.elapsed();
        if is_last {
            self.summary.batches += 1;
            self.summary.tokens += batch.ids.len() as u64;
        }
        self.summary.input_bytes += batch.input_bytes();
        Ok(())
    }

    /// Adds the times of sums. Returns those between launches: before each, and after the last.
    fn add_sums(&mut self, launches: &StepLaunches) -> Result<Vec<Duration>, Error> {
        let mut pauses = vec![Duration::ZERO; launches.ops.len() + 1];
        for (i, sum) in launches.sums.iter().enumerate() {
            let end = match launches.sums.get(i + 1) {
                Some(next) if next.at == sum.at => &self.sum_events[i + 1],
                _ => &self.events[sum.at],
            };
            let time = elapsed(&self.sum_events[i], end)?;
            self.summary.add_op("all_reduce", 1, time);
            pauses[sum.at] += time;
        }
        Ok(pauses)
    }
}

impl Copies {
    fn mark(&self, place: usize, stream: &Stream) -> Result<(), Error> {
        match &self.events {
            Some(events) => Ok(stream.record(&events[place])?),
            None => Ok(()),
        }
    }

    /// Time at which the device passed an event, on the host's clock.
    fn since_start(&self, event: &Event) -> Result<Option<Instant>, Error> {
        match (&self.events, self.started) {
            (Some(events), Some(started)) => Ok(Some(started + elapsed(&events[0], event)?)),
            _ => Ok(None),
        }
    }

    /// Adds the copies to a timeline, with the `lag` of [`Record::add`].
    fn add_to(&self, record: &mut Record, batch: u64, lag: Duration) -> Result<(), Error> {
        let Some([up, up_end, down, down_end]) = &self.events else { return Ok(()) };
        if let Some(start) = self.started {
            record.copy("h2d", start, elapsed(up, up_end)?, (batch, self.uploaded_bytes));
        }
        if let (Some(bytes), Some(start)) = (self.read_bytes, self.since_start(down)?) {
            down_end.synchronize()?;
            record.copy("d2h", start + lag, elapsed(down, down_end)?, (batch, bytes));
        }
        Ok(())
    }
}

impl Record {
    /// Returns true if a batch with this number of launches fits. Each launch is on two tracks, and
    /// a batch has two copies.
    fn has_room(&self, launches: usize) -> bool {
        let used = self.ops.len() + self.launches.len() + self.transfers.len();
        used + 2 * launches + 2 <= self.max_events
    }

    /// Adds the launches of a batch and returns the lag by which it shifts their start times.
    /// `launched` is the start of the first launch. The clocks of host and device agree only within
    /// microseconds, and the lag ensures that no kernel starts before it is queued.
    fn add(
        &mut self,
        batch: u64,
        recording: &Recording,
        (graph, costs): (&Graph, &Costs),
        launched: Option<Instant>,
        (times, pauses): (&[Duration], &[Duration]),
    ) -> Duration {
        let Some(mut start) = launched else { return Duration::ZERO };
        let mut unshifted = start;
        let mut lag = Duration::ZERO;
        let times = times.iter().zip(&pauses[1..]);
        for (queued, (time, pause)) in self.queued.iter().zip(times.clone()) {
            lag = lag.max(queued.start.saturating_duration_since(unshifted));
            unshifted += *time + *pause;
        }
        start += lag;
        for (((op, kernel), (time, pause)), queued) in recording.ops().zip(times).zip(&self.queued)
        {
            let op = &graph.ops()[op];
            let detail: Arc<str> = costs.detail(op).into();
            let event = |name, start, duration, detail| TimelineEvent {
                name,
                detail,
                start,
                duration,
                batch,
                bytes: 0,
            };
            let call = queued.end - queued.start;
            self.launches.push(event(kernel, queued.start, call, Arc::clone(&detail)));
            self.ops.push(event(op.name(), start, *time, detail));
            start += *time + *pause;
        }
        lag
    }

    fn copy(
        &mut self,
        name: &'static str,
        start: Instant,
        duration: Duration,
        (batch, bytes): (u64, usize),
    ) {
        let (detail, bytes) = ("".into(), bytes as u64);
        self.transfers.push(TimelineEvent { name, detail, start, duration, batch, bytes });
    }
}

fn elapsed(from: &Event, to: &Event) -> Result<Duration, Error> {
    Ok(Duration::from_secs_f64(Event::elapsed_us(from, to)?.max(0.0) * 1e-6))
}
