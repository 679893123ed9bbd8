//! What it costs the CPU to keep a GPU busy.

use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, Instant};

use crate::stats::Summary;
use crate::tables::KernelRow;

/// Share of the time spent in launch calls, or waiting, beyond which something should change.
pub const SHARE_THRESHOLD: f64 = 0.10;

/// Launches for each wait, below which waits are too frequent.
pub const LAUNCHES_PER_WAIT_THRESHOLD: f64 = 4.0;

/// How often a launch must repeat, on average, for a captured graph to pay.
pub const REPEATS_THRESHOLD: f64 = 4.0;

/// Measures launches from the CPU's side: how many, what each call costs, and the gaps between.
///
/// # Examples
///
/// ```
/// use rf_profile::launch::{LaunchOverheadTracker, Recommendation};
///
/// let mut tracker = LaunchOverheadTracker::new();
/// for _ in 0..100 {
///     tracker.launch("kernel", || { /* queue it */ });
///     tracker.synchronize(|| std::thread::sleep(std::time::Duration::from_micros(50)));
/// }
/// let report = tracker.report().unwrap();
/// assert_eq!((report.launches, report.waits), (100, 100));
/// assert_eq!(report.recommendation, Recommendation::DeferSynchronization);
/// println!("{report}");
/// ```
#[derive(Clone, Debug, Default)]
pub struct LaunchOverheadTracker {
    names: BTreeSet<String>,
    costs_us: Vec<f64>,
    gaps_us: Vec<f64>,
    waits_us: Vec<f64>,
    first: Option<Instant>,
    last: Option<Instant>,
    /// End of the launch before, if nothing was waited for since.
    previous: Option<Instant>,
}

/// What a [`LaunchOverheadTracker`] found.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LaunchReport {
    /// Launches.
    pub launches: usize,
    /// Different ones.
    pub kernels: usize,
    /// Time of the calls, in microseconds.
    pub cost_us: Summary,
    /// Time between the end of one call and the next, nothing being waited for, in microseconds.
    pub gap_us: Option<Summary>,
    /// How often the CPU waited for the GPU.
    pub waits: usize,
    /// From the first launch to the end of the last one, or of the last wait.
    pub wall: Duration,
    /// Of the time, in launch calls.
    pub launch_share: f64,
    /// Of the time, waiting.
    pub wait_share: f64,
    /// What to do.
    pub recommendation: Recommendation,
}

/// What to do about the cost of launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Recommendation {
    /// Wait less often: fewer than [`LAUNCHES_PER_WAIT_THRESHOLD`] launches come to each wait, and waiting takes more than
    /// [`SHARE_THRESHOLD`] of the time.
    DeferSynchronization,
    /// Capture the launches into a graph: the calls take more than [`SHARE_THRESHOLD`] of the time, and the same
    /// launches come again, [`REPEATS_THRESHOLD`] times on average.
    UseGraph,
    /// Put more work into each launch: the calls take more than [`SHARE_THRESHOLD`] of the time, and do not repeat.
    Batch,
    /// Leave it: none of these.
    Nothing,
}

impl LaunchOverheadTracker {
    /// Nothing measured yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Measures a launch call.
    pub fn launch<T>(&mut self, name: &str, call: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let value = call();
        self.record_launch(name, start, Instant::now());
        value
    }

    /// Measures a wait for the GPU.
    pub fn synchronize<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let value = call();
        self.record_wait(start, Instant::now());
        value
    }

    /// Adds a launch call that was measured elsewhere. Calls come in order.
    pub fn record_launch(&mut self, name: &str, start: Instant, end: Instant) {
        if let Some(previous) = self.previous {
            self.gaps_us.push(us(start.saturating_duration_since(previous)));
        }
        self.costs_us.push(us(end.saturating_duration_since(start)));
        if !self.names.contains(name) {
            self.names.insert(name.to_owned());
        }
        self.first.get_or_insert(start);
        self.last = Some(end);
        self.previous = Some(end);
    }

    /// Adds a wait that was measured elsewhere.
    pub fn record_wait(&mut self, start: Instant, end: Instant) {
        self.waits_us.push(us(end.saturating_duration_since(start)));
        self.first.get_or_insert(start);
        self.last = Some(end);
        self.previous = None;
    }

    /// What was found; `None` where nothing was launched.
    pub fn report(&self) -> Option<LaunchReport> {
        let cost_us = Summary::of(&self.costs_us)?;
        let wall = self.last?.saturating_duration_since(self.first?);
        let share = |total_us: f64| if wall.is_zero() { 0.0 } else { total_us / us(wall) };
        let (launches, kernels) = (self.costs_us.len(), self.names.len());
        let waits = self.waits_us.len();
        let launch_share = share(cost_us.total);
        let wait_share = share(self.waits_us.iter().sum());
        let per_wait = launches as f64 / waits.max(1) as f64;
        let recommendation = if waits > 0
            && per_wait < LAUNCHES_PER_WAIT_THRESHOLD
            && wait_share > SHARE_THRESHOLD
        {
            Recommendation::DeferSynchronization
        } else if launch_share <= SHARE_THRESHOLD {
            Recommendation::Nothing
        } else if launches as f64 / kernels.max(1) as f64 >= REPEATS_THRESHOLD {
            Recommendation::UseGraph
        } else {
            Recommendation::Batch
        };
        let gap_us = Summary::of(&self.gaps_us);
        Some(LaunchReport {
            launches,
            kernels,
            cost_us,
            gap_us,
            waits,
            wall,
            launch_share,
            wait_share,
            recommendation,
        })
    }
}

impl fmt::Display for LaunchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cost, gap) = (&self.cost_us, self.gap_us.unwrap_or_default());
        writeln!(
            f,
            "{} launches of {} kernels, {} waits",
            self.launches, self.kernels, self.waits
        )?;
        writeln!(f, "a call: median {:.2} us, p99 {:.2} us", cost.median, cost.p99)?;
        writeln!(f, "between calls: median {:.2} us, p99 {:.2} us", gap.median, gap.p99)?;
        let (launch, wait) = (100.0 * self.launch_share, 100.0 * self.wait_share);
        writeln!(
            f,
            "of {:.3} ms: {launch:.1} % launching, {wait:.1} % waiting",
            us(self.wall) / 1e3
        )?;
        write!(f, "{}", self.recommendation)
    }
}

impl fmt::Display for Recommendation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::DeferSynchronization => {
                "wait for the GPU less often: queue more before looking at results"
            }
            Self::UseGraph => "capture the launches into a graph and replay it",
            Self::Batch => "put more work into each launch: fuse small kernels or batch them",
            Self::Nothing => "launches cost little: nothing to do",
        })
    }
}

/// Times that a GPU did nothing between two kernels of a trace, in microseconds; `None` where fewer than two
/// kernels have a start. Kernels of all queues of an agent count together.
pub fn idle_between_us(kernels: &[KernelRow]) -> Option<Summary> {
    let mut spans: Vec<(&str, u64, u64)> = kernels
        .iter()
        .filter_map(|kernel| {
            let start = kernel.start_ns?;
            Some((&*kernel.agent, start, start.saturating_add(kernel.duration_ns)))
        })
        .collect();
    spans.sort_unstable();
    let mut idle = Vec::new();
    let mut busy_until: Option<(&str, u64)> = None;
    for (agent, start, end) in spans {
        busy_until = match busy_until {
            Some((before, until)) if before == agent => {
                idle.push(start.saturating_sub(until) as f64 / 1e3);
                Some((agent, until.max(end)))
            }
            _ => Some((agent, end)),
        };
    }
    Summary::of(&idle)
}

fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of `(launch, cost)` and waits in microseconds, one after the other.
    fn report(steps: &[(Option<&str>, u64)]) -> LaunchReport {
        let mut tracker = LaunchOverheadTracker::new();
        let mut now = Instant::now();
        for (launch, cost) in steps {
            let end = now + Duration::from_micros(*cost);
            match launch {
                Some("-") => {}
                Some(name) => tracker.record_launch(name, now, end),
                None => tracker.record_wait(now, end),
            }
            now = end;
        }
        tracker.report().unwrap()
    }

    #[test]
    fn each_recommendation_has_its_cause() {
        let waits = report(&[(Some("a"), 5), (None, 50)].repeat(10));
        assert_eq!(waits.recommendation, Recommendation::DeferSynchronization);
        let repeated = report(&[(Some("a"), 5), (Some("b"), 5), (Some("-"), 10)].repeat(10));
        assert_eq!(repeated.recommendation, Recommendation::UseGraph);
        let names: Vec<String> = (0..10).map(|i| format!("k{i}")).collect();
        let once: Vec<_> =
            names.iter().flat_map(|name| [(Some(&**name), 5), (Some("-"), 10)]).collect();
        assert_eq!(report(&once).recommendation, Recommendation::Batch);
        let rare = report(&[(Some("a"), 5), (Some("-"), 1000)].repeat(10));
        assert_eq!(rare.recommendation, Recommendation::Nothing);
    }

    #[test]
    fn costs_gaps_and_shares_add_up() {
        let report = report(&[(Some("a"), 10), (Some("-"), 30), (Some("a"), 10), (None, 50)]);
        assert!((report.cost_us.total - 20.0).abs() < 1e-6);
        assert!((report.gap_us.unwrap().median - 30.0).abs() < 1e-6);
        assert!((report.launch_share - 0.2).abs() < 1e-6 && (report.wait_share - 0.5).abs() < 1e-6);
        assert_eq!(LaunchOverheadTracker::new().report(), None);
    }

    #[test]
    fn idle_times_of_overlapping_kernels() {
        let kernel = |agent: &str, start, duration_ns| KernelRow {
            agent: agent.into(),
            start_ns: Some(start),
            duration_ns,
            ..KernelRow::default()
        };
        let kernels = [
            kernel("1", 0, 1000),
            kernel("1", 500, 100),
            kernel("1", 3000, 10),
            kernel("2", 9000, 1),
        ];
        let idle = idle_between_us(&kernels).unwrap();
        assert_eq!((idle.count, idle.total), (2, 2.0));
        assert_eq!(idle_between_us(&kernels[..1]), None);
    }
}
