//! Times of steps.
//!
//! A step lasts from the end of the previous step until the last member of the team has finished
//! it; that member records the time. If the scheduler delays a member after a barrier, the delay
//! counts for the next step. A timeline records the work of each member, without its waits.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rf_graph::{
    BackendExecutionSummary, Batch, Costs, Graph, OpCost, Timeline, TimelineEvent, TimelineTrack,
    TrackKind,
};

/// Sums over all batches since the profile was created.
pub(super) struct Profile {
    made: Instant,
    /// Nanoseconds by step.
    steps_ns: Vec<AtomicU64>,
    /// The end of the last step, or the time at which the first member entered the first step, in
    /// nanoseconds since `made`.
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
    profile: &'a Profile,
    started: Instant,
}

/// Records the ends of steps in a profile.
#[derive(Clone, Copy)]
pub(super) struct StepTimes<'a>(&'a Profile);

/// Records the laps of one member.
pub(super) struct Stopwatch<'a> {
    lane: MutexGuard<'a, Lane>,
    batch: u64,
    last: Instant,
}

impl Profile {
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

    pub(super) fn start(&self) -> BatchClock<'_> {
        self.mark_ns.store(u64::MAX, Ordering::Relaxed);
        BatchClock { profile: self, started: Instant::now() }
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
        StepTimes(self.profile)
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
        add(&profile.input_bytes, batch.input.map_or(0, size_of_val) as u64);
        let mut sums = profile.costs.lock().unwrap_or_else(PoisonError::into_inner);
        for (sum, op) in sums[ops.clone()].iter_mut().zip(&graph.ops()[ops]) {
            *sum += costs.of(graph, op, batch);
        }
    }
}

impl<'a> StepTimes<'a> {
    /// Records that a member enters the first step.
    pub(super) fn enter(self) {
        let Self(profile) = self;
        profile.mark_ns.fetch_min(nanoseconds(profile.made), Ordering::Relaxed);
    }

    /// Records the end of `step`: all members have finished it, and none has begun the next one.
    pub(super) fn step_ended(self, step: usize) {
        let Self(profile) = self;
        let now_ns = nanoseconds(profile.made);
        let before_ns = profile.mark_ns.swap(now_ns, Ordering::Relaxed);
        add(&profile.steps_ns[step], now_ns.saturating_sub(before_ns));
    }

    /// The event buffer of a member, if a timeline is recorded and has room.
    pub(super) fn stopwatch(self, member: usize) -> Option<Stopwatch<'a>> {
        let Self(profile) = self;
        let steps = profile.steps_ns.len();
        let mut lane = profile.lanes.get(member).map(lock)?;
        // All members have the same number of laps, so they drop the same batches.
        if lane.laps.len() + steps > lane.max_laps {
            if member == 0 {
                add(&profile.dropped_batches, 1);
            }
            return None;
        }
        // Allocates before the first step, so that no step includes it.
        lane.laps.reserve(steps);
        let batch = profile.batches.load(Ordering::Relaxed);
        Some(Stopwatch { lane, batch, last: Instant::now() })
    }
}

impl Stopwatch<'_> {
    /// Records that the member finished its part of `step` and waits for the others.
    pub(super) fn part(&mut self, step: usize) {
        let (batch, start) = (self.batch, self.last);
        self.lane.laps.push(Lap { step, batch, start, duration: start.elapsed() });
    }

    /// Records that the member begins the next step.
    pub(super) fn next_lap(&mut self) {
        self.last = Instant::now();
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
