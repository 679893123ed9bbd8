//! Times of steps.
//!
//! A step lasts from the end of the previous step until its last piece is done; the member that
//! completes it records the time. A timeline records the work of each member, without its waits. A
//! member that got nothing of a step has no event for it.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rf_graph::{
    BackendExecutionSummary, Batch, Costs, Graph, OpCost, Timeline, TimelineEvent, TimelineTrack,
    TrackKind,
};

/// Sums over all batches since the profile was created.
pub(super) struct StepProfile {
    made: Instant,
    /// Nanoseconds by step.
    steps_ns: Vec<AtomicU64>,
    /// The end of the last step, or the start of the batch, in nanoseconds since `made`.
    mark_ns: AtomicU64,
    costs: Mutex<Vec<OpCost>>,
    time_ns: AtomicU64,
    batches: AtomicU64,
    tokens: AtomicU64,
    input_bytes: AtomicU64,
    /// One lane per member; empty without a timeline.
    lanes: Vec<Mutex<Lane>>,
    dropped_batches: AtomicU64,
}

/// The events of one member.
struct Lane {
    laps: Vec<Lap>,
    /// The maximum number of events.
    max_laps: usize,
}

struct Lap {
    step: usize,
    batch: u64,
    start: Instant,
    duration: Duration,
}

/// The timer of one batch.
pub(super) struct BatchClock<'a> {
    profile: &'a StepProfile,
    started: Instant,
    has_laps: bool,
}

/// Records the times of steps in a profile.
#[derive(Clone, Copy)]
pub(super) struct StepTimes<'a> {
    profile: &'a StepProfile,
    /// True if the timeline has room for the batch.
    has_laps: bool,
}

/// Times what one member does of a step.
pub(super) struct Stopwatch<'a> {
    lane: &'a Mutex<Lane>,
    batch: u64,
    start: Instant,
}

impl StepProfile {
    pub(super) fn new(steps: usize) -> Self {
        Self {
            made: Instant::now(),
            mark_ns: AtomicU64::new(0),
            steps_ns: (0..steps).map(|_| AtomicU64::new(0)).collect(),
            costs: Mutex::new(vec![OpCost::default(); steps]),
            time_ns: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            tokens: AtomicU64::new(0),
            input_bytes: AtomicU64::new(0),
            lanes: Vec::new(),
            dropped_batches: AtomicU64::new(0),
        }
    }

    /// Starts to record a timeline.
    pub(super) fn record_timeline(&mut self, max_events: usize, members: usize) {
        let lane = || Lane { laps: Vec::new(), max_laps: max_events / members.max(1) };
        self.lanes = (0..members).map(|_| Mutex::new(lane())).collect();
        *self.dropped_batches.get_mut() = 0;
    }

    /// Starts to time a batch of `phases` phases.
    pub(super) fn start(&self, phases: usize) -> BatchClock<'_> {
        // Allocates before the first step, so that no step includes it.
        let has_room = |lane: &Mutex<Lane>| {
            let mut lane = lock(lane);
            let has_room = lane.laps.len() + phases <= lane.max_laps;
            if has_room {
                lane.laps.reserve(phases);
            }
            has_room
        };
        // All members drop the same batches.
        let has_laps = !self.lanes.is_empty() && self.lanes.iter().all(has_room);
        if !self.lanes.is_empty() && !has_laps {
            add(&self.dropped_batches, 1);
        }
        self.mark_ns.store(nanoseconds(self.made), Ordering::Relaxed);
        BatchClock { profile: self, started: Instant::now(), has_laps }
    }

    /// Summarises the profile. `graph` is the graph of the steps.
    pub(super) fn summary(&self, backend: String, graph: &Graph) -> BackendExecutionSummary {
        let load = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
        let batches = load(&self.batches);
        let mut summary = BackendExecutionSummary {
            backend,
            batches,
            tokens: load(&self.tokens),
            time: Duration::from_nanos(load(&self.time_ns)),
            input_bytes: load(&self.input_bytes),
            ..BackendExecutionSummary::default()
        };
        let costs = self.costs.lock().unwrap_or_else(PoisonError::into_inner);
        for ((op, step_ns), cost) in graph.ops().iter().zip(&self.steps_ns).zip(&*costs) {
            summary.add_op(op.name(), batches, Duration::from_nanos(load(step_ns)));
            summary.add_cost(op.name(), *cost, 0);
        }
        summary
    }

    /// The recorded timeline, if recording is on.
    pub(super) fn timeline(
        &self,
        backend: String,
        graph: &Graph,
        costs: &Costs,
    ) -> Option<Timeline> {
        if self.lanes.is_empty() {
            return None;
        }
        let details: Vec<Arc<str>> = graph.ops().iter().map(|op| costs.detail(op).into()).collect();
        let event = |lap: &Lap| TimelineEvent {
            name: graph.ops()[lap.step].name(),
            detail: Arc::clone(&details[lap.step]),
            start: lap.start,
            duration: lap.duration,
            batch: lap.batch,
            bytes: 0,
        };
        let track = |(member, lane): (usize, &Mutex<Lane>)| TimelineTrack {
            name: format!("thread {member}"),
            kind: TrackKind::Ops,
            events: lock(lane).laps.iter().map(event).collect(),
        };
        Some(Timeline {
            backend,
            tracks: self.lanes.iter().enumerate().map(track).collect(),
            dropped_batches: self.dropped_batches.load(Ordering::Relaxed),
        })
    }
}

impl<'a> BatchClock<'a> {
    pub(super) fn step_times(&self) -> StepTimes<'a> {
        StepTimes { profile: self.profile, has_laps: self.has_laps }
    }

    /// Adds the stage of a batch whose ops are `ops`. The last stage counts the batch.
    pub(super) fn stop(
        self,
        (graph, costs): (&Graph, &Costs),
        ops: Range<usize>,
        is_last: bool,
        batch: &Batch<'_>,
    ) {
        let profile = self.profile;
        add(&profile.time_ns, nanoseconds(self.started));
        if is_last {
            add(&profile.batches, 1);
            add(&profile.tokens, batch.ids.len() as u64);
        }
        add(&profile.input_bytes, batch.input_bytes());
        let mut sums = profile.costs.lock().unwrap_or_else(PoisonError::into_inner);
        for (sum, op) in sums[ops.clone()].iter_mut().zip(&graph.ops()[ops]) {
            *sum += costs.of(graph, op, batch);
        }
    }
}

impl<'a> StepTimes<'a> {
    /// Adds the time since the last call to `step`. No member runs a step meanwhile.
    pub(super) fn add_to(self, step: usize) {
        let now_ns = nanoseconds(self.profile.made);
        let before_ns = self.profile.mark_ns.swap(now_ns, Ordering::Relaxed);
        add(&self.profile.steps_ns[step], now_ns.saturating_sub(before_ns));
    }

    /// Starts to time a member, if a timeline is recorded and has room.
    pub(super) fn stopwatch(self, member: usize) -> Option<Stopwatch<'a>> {
        if !self.has_laps {
            return None;
        }
        let lane = self.profile.lanes.get(member)?;
        let batch = self.profile.batches.load(Ordering::Relaxed);
        Some(Stopwatch { lane, batch, start: Instant::now() })
    }
}

impl Stopwatch<'_> {
    /// Records that the member has done its part of `step`.
    pub(super) fn stop(self, step: usize) {
        let Self { batch, start, .. } = self;
        lock(self.lane).laps.push(Lap { step, batch, start, duration: start.elapsed() });
    }
}

fn lock(lane: &Mutex<Lane>) -> MutexGuard<'_, Lane> {
    lane.lock().unwrap_or_else(PoisonError::into_inner)
}

fn add(sum: &AtomicU64, value: u64) {
    sum.fetch_add(value, Ordering::Relaxed);
}

fn nanoseconds(since: Instant) -> u64 {
    since.elapsed().as_nanos().try_into().unwrap_or(u64::MAX)
}
