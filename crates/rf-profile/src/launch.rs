//! Launch overhead: the CPU time for keeping a GPU busy.

use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, Instant};

use crate::stats::Summary;

/// The highest acceptable fraction of the time in launch calls, or in waits.
const MAX_TIME_FRACTION: f64 = 0.10;

/// The lowest acceptable number of launches per wait.
const MIN_LAUNCHES_PER_WAIT: f64 = 4.0;

/// The average number of repetitions of a launch from which a captured graph pays off.
const MIN_REPETITIONS: f64 = 4.0;

/// Measures launches on the CPU: their number, the duration of each call, and the gaps between
/// calls.
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
    /// The end of the previous launch, unless a wait followed.
    previous: Option<Instant>,
}

/// The results of a [`LaunchOverheadTracker`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LaunchReport {
    /// The number of launches.
    pub launches: usize,
    /// The number of different kernels.
    pub kernels: usize,
    /// Durations of the launch calls in microseconds.
    pub cost_us: Summary,
    /// Times from the end of a call to the next one, without a wait between them, in microseconds.
    pub gap_us: Option<Summary>,
    /// The number of waits for the GPU.
    pub waits: usize,
    /// The time from the first call to the end of the last one.
    pub wall: Duration,
    /// The fraction of the time in launch calls.
    pub launch_share: f64,
    /// The fraction of the time in waits.
    pub wait_share: f64,
    /// The recommended change.
    pub recommendation: Recommendation,
}

/// A recommendation about launch overhead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Recommendation {
    /// Wait less often: there are fewer than 4 launches per wait, and waits take more than 10 % of
    /// the time.
    DeferSynchronization,
    /// Capture the launches into a graph: the calls take more than 10 % of the time, and each
    /// kernel is launched at least 4 times on average.
    UseGraph,
    /// Put more work into each launch: the calls take more than 10 % of the time and do not repeat.
    Batch,
    /// Change nothing: the overhead is low.
    None,
}

impl LaunchOverheadTracker {
    /// Creates a tracker without measurements.
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

    fn record_launch(&mut self, name: &str, start: Instant, end: Instant) {
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

    fn record_wait(&mut self, start: Instant, end: Instant) {
        self.waits_us.push(us(end.saturating_duration_since(start)));
        self.first.get_or_insert(start);
        self.last = Some(end);
        self.previous = None;
    }

    /// The results, or `None` without launches.
    pub fn report(&self) -> Option<LaunchReport> {
        let cost_us = Summary::of(&self.costs_us)?;
        let wall = self.last?.saturating_duration_since(self.first?);
        let share = |total_us: f64| if wall.is_zero() { 0.0 } else { total_us / us(wall) };
        let (launches, kernels) = (self.costs_us.len(), self.names.len());
        let waits = self.waits_us.len();
        let launch_share = share(cost_us.total);
        let wait_share = share(self.waits_us.iter().sum());
        let per_wait = launches as f64 / waits.max(1) as f64;
        let recommendation =
            if waits > 0 && per_wait < MIN_LAUNCHES_PER_WAIT && wait_share > MAX_TIME_FRACTION {
                Recommendation::DeferSynchronization
            } else if launch_share <= MAX_TIME_FRACTION {
                Recommendation::None
            } else if launches as f64 / kernels.max(1) as f64 >= MIN_REPETITIONS {
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
        writeln!(f, "launch call: median {:.2} us, p99 {:.2} us", cost.median, cost.p99)?;
        writeln!(f, "gap between calls: median {:.2} us, p99 {:.2} us", gap.median, gap.p99)?;
        let (launch, wait) = (100.0 * self.launch_share, 100.0 * self.wait_share);
        writeln!(
            f,
            "{launch:.1} % of {:.3} ms in launch calls, {wait:.1} % in waits",
            us(self.wall) / 1e3
        )?;
        write!(f, "{}", self.recommendation)
    }
}

impl fmt::Display for Recommendation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::DeferSynchronization => {
                "wait for the GPU less often: queue more launches before each wait"
            }
            Self::UseGraph => "capture the launches into a graph and replay it",
            Self::Batch => "put more work into each launch: fuse small kernels or batch them",
            Self::None => "launch overhead is low",
        })
    }
}

fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reports on consecutive launches (`Some(name)`), waits (`None`) and gaps (`Some("-")`) with
    /// their durations in microseconds.
    fn report(steps: &[(Option<&str>, u64)]) -> LaunchReport {
        let mut tracker = LaunchOverheadTracker::new();
        let mut now = Instant::now();
        for (launch, duration) in steps {
            let end = now + Duration::from_micros(*duration);
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
    fn each_cause_leads_to_its_recommendation() {
        let waits = report(&[(Some("a"), 5), (None, 50)].repeat(10));
        assert_eq!(waits.recommendation, Recommendation::DeferSynchronization);
        let repeated = report(&[(Some("a"), 5), (Some("b"), 5), (Some("-"), 10)].repeat(10));
        assert_eq!(repeated.recommendation, Recommendation::UseGraph);
        let names: Vec<String> = (0..10).map(|i| format!("k{i}")).collect();
        let once: Vec<_> =
            names.iter().flat_map(|name| [(Some(&**name), 5), (Some("-"), 10)]).collect();
        assert_eq!(report(&once).recommendation, Recommendation::Batch);
        let rare = report(&[(Some("a"), 5), (Some("-"), 1000)].repeat(10));
        assert_eq!(rare.recommendation, Recommendation::None);
    }

    #[test]
    fn durations_gaps_and_fractions_add_up() {
        let report = report(&[(Some("a"), 10), (Some("-"), 30), (Some("a"), 10), (None, 50)]);
        assert!((report.cost_us.total - 20.0).abs() < 1e-6);
        assert!((report.gap_us.unwrap().median - 30.0).abs() < 1e-6);
        assert!((report.launch_share - 0.2).abs() < 1e-6 && (report.wait_share - 0.5).abs() < 1e-6);
        assert_eq!(LaunchOverheadTracker::new().report(), None);
    }
}
