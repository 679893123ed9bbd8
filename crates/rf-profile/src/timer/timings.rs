//! Times collected by name.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::stats::Summary;

/// The number of samples kept per name. Further samples replace random earlier ones, so that the
/// kept ones are a uniform choice of all (Vitter's algorithm R).
const CAPACITY: usize = 1 << 16;

/// Times by name, recorded from any thread.
///
/// Count, total, minimum and maximum are exact. Median and percentiles are exact for up to 65536
/// times of a name. For more, they are estimates from a uniform choice of 65536.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use rf_profile::Timings;
///
/// let timings = Timings::new();
/// for ms in [1, 2, 3] {
///     timings.record("step", Duration::from_millis(ms));
/// }
/// {
///     let _scope = timings.scope("span");
/// }
/// let (name, summary) = &timings.summaries()[0];
/// assert_eq!((&**name, summary.count, summary.median), ("step", 3, 2000.0));
/// println!("{}", timings.table());
/// ```
#[derive(Debug, Default)]
pub struct Timings {
    by_name: Mutex<HashMap<String, Times>>,
}

/// Records the time from its creation until it is dropped.
#[derive(Debug)]
#[must_use = "the time ends when the timer is dropped"]
pub struct ScopedTimer<'a> {
    timings: &'a Timings,
    name: &'a str,
    start: Instant,
}

#[derive(Debug, Default)]
struct Times {
    count: u64,
    total_ns: u128,
    min_ns: u64,
    max_ns: u64,
    kept_ns: Vec<u64>,
    /// The state of the random generator that chooses the kept samples.
    random: u64,
}

impl Timings {
    /// Creates an empty collection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a time to a name.
    pub fn record(&self, name: &str, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        match by_name.get_mut(name) {
            Some(times) => times.add(ns),
            None => by_name.entry(name.to_owned()).or_default().add(ns),
        }
    }

    /// Starts a timer that records under `name` when it is dropped.
    pub fn scope<'a>(&'a self, name: &'a str) -> ScopedTimer<'a> {
        ScopedTimer { timings: self, name, start: Instant::now() }
    }

    /// Summaries by name in microseconds, in descending order of the total time.
    pub fn summaries(&self) -> Vec<(String, Summary)> {
        let by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        let mut summaries: Vec<_> = by_name
            .iter()
            .filter_map(|(name, times)| Some((name.clone(), times.summary()?)))
            .collect();
        summaries.sort_by(|(a, x), (b, y)| y.total.total_cmp(&x.total).then_with(|| a.cmp(b)));
        summaries
    }

    /// Formats the summaries as a table for terminals.
    pub fn table(&self) -> String {
        let summaries = self.summaries();
        let width =
            summaries.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0).max(4);
        let mut out = format!(
            "{:<width$}  {:>9}  {:>12}  {:>10}  {:>10}  {:>10}  {:>10}\n",
            "name", "count", "total ms", "min us", "median us", "p95 us", "p99 us"
        );
        for (name, s) in summaries {
            // Writing into a String cannot fail.
            _ = writeln!(
                out,
                "{name:<width$}  {:>9}  {:>12.3}  {:>10.2}  {:>10.2}  {:>10.2}  {:>10.2}",
                s.count,
                s.total / 1e3,
                s.min,
                s.median,
                s.p95,
                s.p99
            );
        }
        out
    }
}

impl Drop for ScopedTimer<'_> {
    fn drop(&mut self) {
        self.timings.record(self.name, self.start.elapsed());
    }
}

impl Times {
    fn add(&mut self, ns: u64) {
        self.min_ns = if self.count == 0 { ns } else { self.min_ns.min(ns) };
        self.max_ns = self.max_ns.max(ns);
        self.count += 1;
        self.total_ns += u128::from(ns);
        if self.kept_ns.len() < CAPACITY {
            self.kept_ns.push(ns);
            return;
        }
        // Knuth's MMIX generator. Only its upper bits are random.
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let index = ((u128::from(self.random) * u128::from(self.count)) >> 64) as usize;
        if let Some(kept) = self.kept_ns.get_mut(index) {
            *kept = ns;
        }
    }

    fn summary(&self) -> Option<Summary> {
        let us: Vec<f64> = self.kept_ns.iter().map(|ns| *ns as f64 / 1e3).collect();
        let kept = Summary::of(&us)?;
        let total = self.total_ns as f64 / 1e3;
        Some(Summary {
            count: self.count,
            total,
            mean: total / self.count as f64,
            min: self.min_ns as f64 / 1e3,
            max: self.max_ns as f64 / 1e3,
            ..kept
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time_kernel;

    #[test]
    fn summaries_of_known_times() {
        let timings = Timings::new();
        for us in 1..=100 {
            timings.record("a", Duration::from_micros(us));
        }
        timings.record("b", Duration::from_secs(1));
        let summaries = timings.summaries();
        assert_eq!(summaries[0].0, "b", "the longest total comes first");
        let a = summaries[1].1;
        assert_eq!((a.count, a.total, a.min, a.max), (100, 5050.0, 1.0, 100.0));
        assert!((a.median - 50.5).abs() < 1e-9 && (a.p95 - 95.05).abs() < 1e-9);
    }

    #[test]
    fn percentiles_beyond_the_capacity_are_close() {
        let timings = Timings::new();
        let count = 4 * CAPACITY as u64;
        for us in 0..count {
            timings.record("a", Duration::from_micros(us));
        }
        let a = timings.summaries()[0].1;
        assert_eq!((a.count, a.min, a.max), (count, 0.0, (count - 1) as f64));
        assert!((a.median / count as f64 - 0.5).abs() < 0.02, "{a:?}");
        assert!((a.p99 / count as f64 - 0.99).abs() < 0.01, "{a:?}");
    }

    #[test]
    fn threads_record_concurrently() {
        let timings = Timings::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| drop(timings.scope("x"))));
            }
        });
        assert_eq!(timings.summaries()[0].1.count, 4000);
    }

    #[test]
    fn the_gpu_form_returns_errors_and_values() {
        let timings = Timings::new();
        let outcome = rf_hip::Runtime::load().map_err(crate::Error::from).and_then(|runtime| {
            let context = runtime.device(0)?.context()?;
            let stream = rf_hip::Stream::new(&context)?;
            let buffer: rf_hip::DeviceBuffer<u8> = rf_hip::DeviceBuffer::new(&context, 1 << 20)?;
            time_kernel!(timings, "clear", &stream, buffer.fill_zero(&stream))??;
            Ok(())
        });
        match outcome {
            Ok(()) => assert_eq!(timings.summaries()[0].1.count, 1),
            Err(error) => rf_testing::skip!("{error}"),
        }
    }
}
