//! What limits an operation, and how close it comes to the limit.
//!
//! An operation moves bytes and computes. On a machine of bandwidth B and speed C it takes at least max(bytes / B,
//! operations / C): the roofline of Williams, Waterman and Patterson (2009). The share reached is that time over the
//! measured one, and what is far below has another cause: launches, transfers, or too few waves.

use std::fmt::Write;
use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use rf_hip::{Context, DeviceBuffer, PinnedBuffer, Stream};

use crate::{Error, KernelTimer};

/// What a machine can do at most. What is not known is `None`, and no verdict rests on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    /// Where it is from: `measured on …`, or a data sheet.
    pub source: String,
    /// Memory, in bytes per second.
    pub bandwidth_bytes_per_s: Option<f64>,
    /// Arithmetic of the kind that the operations use, in operations per second (a multiply-add is two).
    pub operations_per_s: Option<f64>,
    /// Between host and device, in bytes per second.
    pub transfer_bytes_per_s: Option<f64>,
    /// Least time of a launch on the device.
    pub launch: Option<Duration>,
}

/// An operation: what it has to do, and how long it took.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OpMeasurement {
    /// Its name.
    pub name: String,
    /// How often it ran.
    pub count: u64,
    /// All runs together.
    pub time: Duration,
    /// Bytes read and written, all runs together.
    pub bytes: f64,
    /// Arithmetic operations, all runs together; a multiply-add is two.
    pub operations: f64,
    /// Bytes copied between host and device for it, all runs together.
    pub transfer_bytes: f64,
    /// Launches, all runs together; 0 on the CPU.
    pub launches: u64,
    /// Share of the waves that there is room for, where a profiler counted it.
    pub occupancy: Option<f64>,
}

/// What keeps an operation from being faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bottleneck {
    /// Memory: it runs at [`NEAR_LIMIT`] of the bandwidth or more.
    Bandwidth,
    /// Arithmetic: it runs at [`NEAR_LIMIT`] of the speed or more.
    Compute,
    /// Launches: they take half of its time or more.
    Launch,
    /// Copies between host and device: they take half of its time or more.
    Transfer,
    /// Too few waves at a time: it is far from both limits, with an occupancy below [`LOW_OCCUPANCY`].
    Occupancy,
    /// Far from every limit that is known, without a known cause.
    Unknown,
}

/// Share of a limit from which on it is what limits.
pub const NEAR_LIMIT: f64 = 0.6;

/// Occupancy below which latencies are not hidden.
pub const LOW_OCCUPANCY: f64 = 0.25;

/// Share of the roofline from which on the measurement, or the limit, is in doubt.
const BEYOND: f64 = 1.1;

/// Share of an operation's time from which on launches or transfers are what limits it.
const HALF: f64 = 0.5;

/// An operation against the limits.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Verdict {
    /// The operation.
    pub name: String,
    /// Share of the time of all operations.
    pub time_share: f64,
    /// Operations per byte.
    pub intensity: Option<f64>,
    /// Bytes per second that it moved.
    pub bytes_per_s: f64,
    /// Operations per second that it computed.
    pub operations_per_s: f64,
    /// Share of the roofline: the least possible time over the measured one.
    pub reached: Option<f64>,
    /// What limits it.
    pub bottleneck: Bottleneck,
    /// Why, with figures.
    pub evidence: String,
}

impl Bottleneck {
    /// In reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bandwidth => "bandwidth",
            Self::Compute => "compute",
            Self::Launch => "launch",
            Self::Transfer => "transfer",
            Self::Occupancy => "occupancy",
            Self::Unknown => "unknown",
        }
    }
}

impl Limits {
    /// Measures what this machine's memory gives to `threads` threads that read 256 MiB together or change them in
    /// place, the best of eight passes. The speed of arithmetic depends on the instructions, so that is the caller's to
    /// measure: with its own best kernel.
    ///
    /// # Errors
    ///
    /// [`Error::Samples`] where the clock is too coarse.
    pub fn measure_host(threads: usize) -> Result<Self, Error> {
        const BYTES: usize = 256 << 20;
        const PASSES: usize = 4;
        let threads = threads.max(1);
        let words = BYTES / size_of::<u64>() / threads;
        let together = Barrier::new(threads);
        // Each thread fills its own part, so that it lies near it; all read at the same time.
        let times: Vec<Vec<Duration>> = thread::scope(|scope| {
            let work = || {
                let mut data = vec![1_u64; words];
                let mut pass = |in_place: bool| {
                    together.wait();
                    let start = Instant::now();
                    if in_place {
                        for x in black_box(&mut data) {
                            *x = x.wrapping_add(1);
                        }
                        // As many bytes as one pass of reading: every byte is read and written.
                        return start.elapsed() / 2;
                    }
                    black_box(sum(black_box(&data)));
                    start.elapsed()
                };
                (0..2 * PASSES).map(|number| pass(number % 2 == 1)).collect()
            };
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            workers.into_iter().filter_map(|worker| worker.join().ok()).collect()
        });
        // A pass takes as long as its slowest thread.
        let of_pass = |pass: usize| times.iter().filter_map(|times| times.get(pass)).max();
        let best = (0..2 * PASSES).filter_map(of_pass).min().copied().unwrap_or_default();
        if best.is_zero() {
            return Err(Error::Samples {
                name: "memory bandwidth".to_owned(),
                reason: "the clock did not move",
            });
        }
        let bytes = (words * threads * size_of::<u64>()) as f64;
        Ok(Self {
            source: format!("measured with {threads} threads"),
            bandwidth_bytes_per_s: Some(bytes / best.as_secs_f64()),
            ..Self::default()
        })
    }

    /// Measures a device: its memory by copies within it, the way to it by a copy from pinned memory, and
    /// the least time of something queued. Arithmetic as in [`Limits::measure_host`].
    ///
    /// # Errors
    ///
    /// [`Error::Gpu`].
    pub fn measure_device(context: &Context) -> Result<Self, Error> {
        const LEN: usize = 64 << 20;
        let stream = Stream::new(context)?;
        let (from, to) =
            (DeviceBuffer::<u32>::zeroed(context, LEN)?, DeviceBuffer::new(context, LEN)?);
        let pinned = PinnedBuffer::<u32>::new(context, LEN)?;
        let tiny = DeviceBuffer::<u32>::new(context, 1)?;
        let copy = best_of(&stream, || to.copy_from_device(&stream, 0, &from, 0..LEN))?;
        let upload = best_of(&stream, || to.copy_from_pinned(&stream, 0, &pinned, 0..LEN))?;
        let launch = best_of(&stream, || tiny.fill_zero(&stream))?;
        let bytes = (LEN * size_of::<u32>()) as f64;
        let per_s =
            |bytes: f64, time: Duration| (!time.is_zero()).then(|| bytes / time.as_secs_f64());
        Ok(Self {
            source: format!("measured on {}", context.info().name),
            // Every byte is read and written.
            bandwidth_bytes_per_s: per_s(2.0 * bytes, copy),
            operations_per_s: None,
            transfer_bytes_per_s: per_s(bytes, upload),
            launch: Some(launch),
        })
    }

    /// Holds operations against these limits, the one that takes longest first.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use rf_profile::roofline::{Bottleneck, Limits, OpMeasurement};
    ///
    /// let limits = Limits {
    ///     source: "an example".into(),
    ///     bandwidth_bytes_per_s: Some(800e9),
    ///     operations_per_s: Some(100e12),
    ///     ..Limits::default()
    /// };
    /// let matvec = OpMeasurement {
    ///     name: "matvec".into(),
    ///     count: 1,
    ///     time: Duration::from_micros(20),
    ///     bytes: 12e6,
    ///     operations: 32e6,
    ///     launches: 1,
    ///     ..OpMeasurement::default()
    /// };
    /// let verdict = &limits.judge(&[matvec])[0];
    /// assert_eq!(verdict.bottleneck, Bottleneck::Bandwidth);
    /// assert!((verdict.reached.unwrap() - 0.75).abs() < 1e-9);
    /// ```
    pub fn judge(&self, ops: &[OpMeasurement]) -> Vec<Verdict> {
        let all: f64 = ops.iter().map(|op| op.time.as_secs_f64()).sum();
        let mut verdicts: Vec<Verdict> = ops.iter().map(|op| self.judge_one(op, all)).collect();
        verdicts.sort_by(|a, b| b.time_share.total_cmp(&a.time_share));
        verdicts
    }

    fn judge_one(&self, op: &OpMeasurement, all_s: f64) -> Verdict {
        let time_s = op.time.as_secs_f64();
        let share = |least: Option<f64>| least.filter(|_| time_s > 0.0).map(|least| least / time_s);
        let at = |amount: f64, limit: Option<f64>| limit.filter(|l| *l > 0.0).map(|l| amount / l);
        let bandwidth = share(at(op.bytes, self.bandwidth_bytes_per_s));
        let compute = share(at(op.operations, self.operations_per_s));
        let transfer = share(at(op.transfer_bytes, self.transfer_bytes_per_s));
        let launch = share(self.launch.map(|launch| launch.as_secs_f64() * op.launches as f64));
        let reached = [bandwidth, compute].into_iter().flatten().reduce(f64::max);
        let rate = |amount: f64| if time_s > 0.0 { amount / time_s } else { 0.0 };
        let percent = |share: f64| 100.0 * share;

        let (bottleneck, evidence) = if let Some(share) = transfer.filter(|share| *share >= HALF) {
            let mb = op.transfer_bytes / 1e6;
            let why = format!("copying {mb:.1} MB takes {:.0} % of its time", percent(share));
            (Bottleneck::Transfer, why)
        } else if let Some(share) = launch.filter(|share| *share >= HALF) {
            let why = format!("{} launches take {:.0} % of its time", op.launches, percent(share));
            (Bottleneck::Launch, why)
        } else if let Some(share) = reached.filter(|share| *share >= NEAR_LIMIT) {
            if bandwidth.unwrap_or(0.0) >= compute.unwrap_or(0.0) {
                let (is, of) = (rate(op.bytes), self.bandwidth_bytes_per_s.unwrap_or(0.0));
                let (is, of) = (is / 1e9, of / 1e9);
                let why = format!("{is:.1} of {of:.1} GB/s ({:.0} %)", percent(share));
                (Bottleneck::Bandwidth, why)
            } else {
                let (is, of) = (rate(op.operations), self.operations_per_s.unwrap_or(0.0));
                let (is, of) = (is / 1e12, of / 1e12);
                let why = format!("{is:.2} of {of:.2} Tops/s ({:.0} %)", percent(share));
                (Bottleneck::Compute, why)
            }
        } else if let Some(occupancy) = op.occupancy.filter(|share| *share < LOW_OCCUPANCY) {
            let why = format!("{:.0} % of the waves that there is room for", percent(occupancy));
            (Bottleneck::Occupancy, why)
        } else {
            let known = |what: &str, share: Option<f64>| {
                share.map(|share| format!("{:.0} % of {what}", percent(share)))
            };
            let shares = [known("bandwidth", bandwidth), known("compute", compute)];
            let shares: Vec<String> = shares.into_iter().flatten().collect();
            let why = if shares.is_empty() {
                "no limit is known".to_owned()
            } else {
                format!("only {}", shares.join(", "))
            };
            (Bottleneck::Unknown, why)
        };
        // Nothing beats its limit: the bytes came from a cache, or the limit was measured too low.
        let beaten = reached.is_some_and(|share| share > BEYOND);
        let evidence =
            if beaten { evidence + ", so not the limit: served by caches?" } else { evidence };
        Verdict {
            name: op.name.clone(),
            time_share: if all_s > 0.0 { time_s / all_s } else { 0.0 },
            intensity: (op.bytes > 0.0).then(|| op.operations / op.bytes),
            bytes_per_s: rate(op.bytes),
            operations_per_s: rate(op.operations),
            reached,
            bottleneck,
            evidence,
        }
    }
}

/// Verdicts as a table for terminals.
pub fn table(verdicts: &[Verdict]) -> String {
    let width = verdicts.iter().map(|v| v.name.chars().count()).max().unwrap_or(0).max(9);
    let mut out = format!(
        "{:<width$}  {:>6}  {:>8}  {:>9}  {:>9}  {:>7}  {:<9}  {}\n",
        "operation", "time", "ops/byte", "GB/s", "Gops/s", "reached", "limit", "evidence"
    );
    for verdict in verdicts {
        let intensity = verdict.intensity.map_or("-".to_owned(), |x| format!("{x:.2}"));
        let reached =
            verdict.reached.map_or("-".to_owned(), |share| format!("{:.0} %", 100.0 * share));
        // Writing into a String cannot fail.
        _ = writeln!(
            out,
            "{:<width$}  {:>5.1}%  {intensity:>8}  {:>9.2}  {:>9.2}  {reached:>7}  {:<9}  {}",
            verdict.name,
            100.0 * verdict.time_share,
            verdict.bytes_per_s / 1e9,
            verdict.operations_per_s / 1e9,
            verdict.bottleneck.as_str(),
            verdict.evidence
        );
    }
    out
}

/// The least time of some repetitions.
fn best_of(
    stream: &Stream,
    work: impl Fn() -> Result<(), rf_hip::Error>,
) -> Result<Duration, Error> {
    const REPETITIONS: usize = 10;
    let mut timer: KernelTimer = KernelTimer::for_kernel("limit");
    let mut best = Duration::MAX;
    for _ in 0..REPETITIONS {
        timer.start(stream)?;
        work()?;
        timer.stop(stream)?;
        best = best.min(timer.elapsed()?);
    }
    Ok(best)
}

/// Eight sums side by side, so that adding does not wait for itself.
fn sum(data: &[u64]) -> u64 {
    let mut sums = [0_u64; 8];
    let chunks = data.chunks_exact(8);
    let rest: u64 = chunks.remainder().iter().sum();
    for chunk in chunks {
        for (sum, value) in sums.iter_mut().zip(chunk) {
            *sum = sum.wrapping_add(*value);
        }
    }
    sums.iter().fold(rest, |all, sum| all.wrapping_add(*sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits {
            source: "a test".into(),
            bandwidth_bytes_per_s: Some(100e9),
            operations_per_s: Some(1e12),
            transfer_bytes_per_s: Some(10e9),
            launch: Some(Duration::from_micros(5)),
        }
    }

    fn op(bytes: f64, operations: f64, us: u64) -> OpMeasurement {
        let time = Duration::from_micros(us);
        OpMeasurement {
            name: "op".into(),
            count: 1,
            time,
            bytes,
            operations,
            launches: 1,
            ..OpMeasurement::default()
        }
    }

    fn judge(op: OpMeasurement) -> Verdict {
        limits().judge(&[op]).remove(0)
    }

    #[test]
    fn each_verdict_has_its_cause() {
        // 10 MB at 100 GB/s: 100 us; 100 M operations at 1 T/s: 100 us.
        assert_eq!(judge(op(10e6, 1e6, 125)).bottleneck, Bottleneck::Bandwidth);
        assert_eq!(judge(op(1e6, 100e6, 125)).bottleneck, Bottleneck::Compute);
        assert_eq!(judge(op(1e3, 1e3, 6)).bottleneck, Bottleneck::Launch);
        let copied = OpMeasurement { transfer_bytes: 1e6, ..op(1e6, 1e6, 125) };
        assert_eq!(judge(copied).bottleneck, Bottleneck::Transfer);
        let lonely = OpMeasurement { occupancy: Some(0.1), ..op(10e6, 1e6, 1000) };
        assert_eq!(judge(lonely).bottleneck, Bottleneck::Occupancy);
        let slow = judge(op(10e6, 1e6, 1000));
        assert_eq!(
            (slow.bottleneck, &*slow.evidence),
            (Bottleneck::Unknown, "only 10 % of bandwidth, 0 % of compute")
        );
    }

    #[test]
    fn evidence_and_shares_are_figures() {
        let verdict = judge(op(10e6, 1e6, 125));
        assert_eq!(verdict.evidence, "80.0 of 100.0 GB/s (80 %)");
        assert!((verdict.reached.unwrap() - 0.8).abs() < 1e-9);
        let verdicts = limits().judge(&[op(1.0, 1.0, 100), op(1.0, 1.0, 300)]);
        assert!((verdicts[0].time_share - 0.75).abs() < 1e-9, "the longest comes first");
        assert!(table(&verdicts).lines().count() == 3);
    }

    #[test]
    fn a_limit_that_is_beaten_is_none() {
        let verdict = judge(op(20e6, 1e6, 125));
        assert!(verdict.evidence.ends_with("served by caches?"), "{}", verdict.evidence);
    }

    #[test]
    fn without_limits_there_is_no_verdict() {
        let verdict = Limits::default().judge(&[op(1e6, 1e6, 10)]).remove(0);
        assert_eq!((verdict.reached, verdict.bottleneck), (None, Bottleneck::Unknown));
        assert_eq!(verdict.evidence, "no limit is known");
        assert_eq!(judge(op(1e6, 1e6, 0)).reached, None);
    }

    #[test]
    fn memory_has_a_speed_that_can_be() {
        let limits = Limits::measure_host(1).unwrap();
        let speed = limits.bandwidth_bytes_per_s.unwrap();
        println!("{:.1} GB/s", speed / 1e9);
        assert!(speed > 1e8 && speed < 1e13, "{speed}");
        let values: Vec<u64> = (0..1003).collect();
        assert_eq!(sum(&values), 1002 * 1003 / 2);
    }

    #[test]
    fn a_device_is_measured_where_there_is_one() {
        let context = rf_hip::Runtime::load().and_then(|runtime| runtime.device(0)?.context());
        match context.map_err(Error::from).and_then(|context| Limits::measure_device(&context)) {
            Ok(limits) => assert!(limits.bandwidth_bytes_per_s.unwrap() > 1e9, "{limits:?}"),
            Err(error) => println!("skipped: {error}"),
        }
    }
}
