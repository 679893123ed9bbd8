//! The roofline: what bounds an operation, and how much of the bound it reaches.
//!
//! An operation moves bytes and computes. On a machine of bandwidth B and arithmetic throughput C
//! it takes at least max(bytes / B, operations / C): the roofline of Williams, Waterman and
//! Patterson (2009). The share of the roofline is that time divided by the measured one. An
//! operation far below it is bound by something else: launches, transfers, or too few waves.

mod measure;

use std::fmt::Write;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The limits of a machine. An unknown limit is `None`, and no verdict rests on it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineLimits {
    /// The origin of the values: `measured on ...`, or a data sheet.
    pub source: String,
    /// Memory bandwidth, in bytes per second.
    pub bandwidth_bytes_per_s: Option<f64>,
    /// Floating-point arithmetic, in operations per second. A multiply-add is two operations.
    pub f32_operations_per_s: Option<f64>,
    /// Dot products of int8, in operations per second. A multiply-add is two operations.
    pub int8_operations_per_s: Option<f64>,
    /// Transfers between host and device, in bytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfer_bytes_per_s: Option<f64>,
    /// The least time of a launch on the device, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch_s: Option<f64>,
}

/// The work of an operation, and the time it took. Totals over all its runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OpMeasurement {
    /// Name of the operation.
    pub name: String,
    /// Number of runs.
    pub count: u64,
    /// Time.
    pub time: Duration,
    /// Bytes read and written.
    pub bytes: f64,
    /// Floating-point operations. A multiply-add is two.
    pub f32_operations: f64,
    /// Operations of int8 dot products. A multiply-add is two.
    pub int8_operations: f64,
    /// Bytes copied between host and device.
    pub transfer_bytes: f64,
    /// Launches; 0 on the CPU.
    pub launches: u64,
    /// Share of the wave slots in use, if a profiler counted it.
    pub occupancy: Option<f64>,
}

/// A side of the roofline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// Memory bandwidth.
    Memory,
    /// Arithmetic.
    Compute,
}

/// An operation on the roofline.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Roofline {
    /// Least possible time divided by the measured time: 1 is the roofline. Values above 1 mean
    /// that caches served the bytes, or that the limit was measured too low.
    pub share: f64,
    /// The limit that allows less.
    pub bound: Bound,
    /// Memory throughput, in bytes per second.
    pub bytes_per_s: f64,
    /// Arithmetic throughput, in operations per second.
    pub operations_per_s: f64,
}

/// The cause that keeps an operation from being faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bottleneck {
    /// Memory: the operation reaches [`NEAR_LIMIT`] of the bandwidth or more.
    Bandwidth,
    /// Arithmetic: the operation reaches [`NEAR_LIMIT`] of the throughput or more.
    Compute,
    /// Launches: they take half of its time or more.
    Launch,
    /// Copies between host and device: they take half of its time or more.
    Transfer,
    /// Too few waves: far from both limits, with an occupancy below [`LOW_OCCUPANCY`].
    Occupancy,
    /// Far from every known limit, without a known cause.
    Unknown,
}

/// Share of a limit at which that limit is the bottleneck.
pub const NEAR_LIMIT: f64 = 0.6;

/// Occupancy below which latencies are not hidden.
pub const LOW_OCCUPANCY: f64 = 0.25;

/// Share of the roofline at which the measurement, or the limit, is in doubt.
const BEYOND: f64 = 1.1;

/// Share of an operation's time at which launches or transfers are the bottleneck.
const HALF: f64 = 0.5;

/// An operation compared with the limits.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RooflineVerdict {
    /// Name of the operation.
    pub name: String,
    /// Share of the time of all operations.
    pub time_share: f64,
    /// Operations per byte.
    pub intensity: Option<f64>,
    /// Memory throughput, in bytes per second.
    pub bytes_per_s: f64,
    /// Arithmetic throughput, in operations per second.
    pub operations_per_s: f64,
    /// Place of the operation on the roofline; `None` if neither limit is known.
    pub roofline: Option<Roofline>,
    /// The bottleneck.
    pub bottleneck: Bottleneck,
    /// The reason for the verdict, with numbers.
    pub evidence: String,
}

impl Bound {
    /// The word in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Compute => "compute",
        }
    }
}

impl Bottleneck {
    /// The word in reports.
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

impl OpMeasurement {
    /// Arithmetic operations of all types.
    pub fn operations(&self) -> f64 {
        self.f32_operations + self.int8_operations
    }

    /// A rate of this operation: an amount per second of its time; 0 without a time.
    pub fn rate(&self, amount: f64) -> f64 {
        let seconds = self.time.as_secs_f64();
        if seconds > 0.0 { amount / seconds } else { 0.0 }
    }
}

impl MachineLimits {
    /// The place of an operation on the roofline. `None` if neither limit is known, or no time was
    /// measured.
    pub fn roofline(&self, op: &OpMeasurement) -> Option<Roofline> {
        let seconds = op.time.as_secs_f64();
        let memory = self.memory_s(op).map(|least| (Bound::Memory, least));
        let compute = self.compute_s(op).map(|least| (Bound::Compute, least));
        let least = memory.into_iter().chain(compute);
        let (bound, least) = least.reduce(|a, b| if b.1 > a.1 { b } else { a })?;
        (seconds > 0.0).then(|| Roofline {
            share: least / seconds,
            bound,
            bytes_per_s: op.rate(op.bytes),
            operations_per_s: op.rate(op.operations()),
        })
    }

    /// The known limits of arithmetic, by name.
    pub fn operations_per_s(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let limits = [("f32", self.f32_operations_per_s), ("int8", self.int8_operations_per_s)];
        limits.into_iter().filter_map(|(name, limit)| Some((name, limit?)))
    }

    /// Compares operations with these limits. The operation with the largest share of the time
    /// comes first.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use rf_profile::roofline::{Bottleneck, MachineLimits, OpMeasurement};
    ///
    /// let limits = MachineLimits {
    ///     source: "an example".into(),
    ///     bandwidth_bytes_per_s: Some(800e9),
    ///     int8_operations_per_s: Some(100e12),
    ///     ..MachineLimits::default()
    /// };
    /// let matvec = OpMeasurement {
    ///     name: "matvec".into(),
    ///     count: 1,
    ///     time: Duration::from_micros(20),
    ///     bytes: 12e6,
    ///     int8_operations: 32e6,
    ///     launches: 1,
    ///     ..OpMeasurement::default()
    /// };
    /// let verdict = &limits.judge(&[matvec])[0];
    /// assert_eq!(verdict.bottleneck, Bottleneck::Bandwidth);
    /// assert!((verdict.roofline.unwrap().share - 0.75).abs() < 1e-9);
    /// ```
    pub fn judge(&self, ops: &[OpMeasurement]) -> Vec<RooflineVerdict> {
        let all: f64 = ops.iter().map(|op| op.time.as_secs_f64()).sum();
        let mut verdicts: Vec<RooflineVerdict> =
            ops.iter().map(|op| self.judge_one(op, all)).collect();
        verdicts.sort_by(|a, b| b.time_share.total_cmp(&a.time_share));
        verdicts
    }

    fn judge_one(&self, op: &OpMeasurement, all_s: f64) -> RooflineVerdict {
        let roofline = self.roofline(op);
        let (bottleneck, evidence) = self.bottleneck(op, roofline);
        // Nothing exceeds its limit: a cache served the bytes, or the limit is measured too low.
        let exceeds = roofline.is_some_and(|roofline| roofline.share > BEYOND);
        let evidence =
            if exceeds { evidence + ", so not the limit: served by caches?" } else { evidence };
        RooflineVerdict {
            name: op.name.clone(),
            time_share: if all_s > 0.0 { op.time.as_secs_f64() / all_s } else { 0.0 },
            intensity: (op.bytes > 0.0).then(|| op.operations() / op.bytes),
            bytes_per_s: op.rate(op.bytes),
            operations_per_s: op.rate(op.operations()),
            roofline,
            bottleneck,
            evidence,
        }
    }

    fn bottleneck(&self, op: &OpMeasurement, roofline: Option<Roofline>) -> (Bottleneck, String) {
        let time_s = op.time.as_secs_f64();
        let share = |least: Option<f64>| least.filter(|_| time_s > 0.0).map(|least| least / time_s);
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        let half = |share: &f64| *share >= HALF;
        let transfer = share(at_least(op.transfer_bytes, self.transfer_bytes_per_s));
        if let Some(share) = transfer.filter(half) {
            let mb = op.transfer_bytes / 1e6;
            let why = format!("copying {mb:.1} MB takes {} of its time", percent(share));
            return (Bottleneck::Transfer, why);
        }
        let launch = share(self.launch_s.map(|launch| launch * op.launches as f64));
        if let Some(share) = launch.filter(half) {
            let why = format!("{} launches take {} of its time", op.launches, percent(share));
            return (Bottleneck::Launch, why);
        }
        if let Some(Roofline { share, bound, .. }) = roofline.filter(|it| it.share >= NEAR_LIMIT) {
            // The roof is the throughput over the share of it.
            let share_of_it = percent(share);
            return match bound {
                Bound::Memory => {
                    let is = op.rate(op.bytes) / 1e9;
                    let why = format!("{is:.1} of {:.1} GB/s ({share_of_it})", is / share);
                    (Bottleneck::Bandwidth, why)
                }
                Bound::Compute => {
                    let is = op.rate(op.operations()) / 1e12;
                    let why = format!("{is:.2} of {:.2} Tops/s ({share_of_it})", is / share);
                    (Bottleneck::Compute, why)
                }
            };
        }
        if let Some(occupancy) = op.occupancy.filter(|share| *share < LOW_OCCUPANCY) {
            return (Bottleneck::Occupancy, format!("{} of the wave slots", percent(occupancy)));
        }
        let known = [("bandwidth", self.memory_s(op)), ("compute", self.compute_s(op))];
        let shares = known.into_iter().filter_map(|(name, least)| {
            share(least).map(|share| format!("{} of {name}", percent(share)))
        });
        let shares: Vec<String> = shares.collect();
        let why = if shares.is_empty() {
            "no limit is known".to_owned()
        } else {
            format!("only {}", shares.join(", "))
        };
        (Bottleneck::Unknown, why)
    }

    /// The least time for the bytes.
    fn memory_s(&self, op: &OpMeasurement) -> Option<f64> {
        at_least(op.bytes, self.bandwidth_bytes_per_s)
    }

    /// The least time for the arithmetic; `None` if a limit that it needs is unknown.
    fn compute_s(&self, op: &OpMeasurement) -> Option<f64> {
        let kinds = [
            (op.f32_operations, self.f32_operations_per_s),
            (op.int8_operations, self.int8_operations_per_s),
        ];
        if kinds.iter().all(|(_, limit)| limit.is_none()) {
            return None;
        }
        let mut needed = kinds.into_iter().filter(|(operations, _)| *operations > 0.0);
        // Not by `sum`: the sum of no floats is -0.
        needed.try_fold(0.0, |sum, (operations, limit)| Some(sum + at_least(operations, limit)?))
    }
}

/// The least time of an amount under a limit per second.
fn at_least(amount: f64, limit_per_s: Option<f64>) -> Option<f64> {
    limit_per_s.filter(|limit| *limit > 0.0).map(|limit| amount / limit)
}

/// Verdicts as a table for terminals.
pub fn table(verdicts: &[RooflineVerdict]) -> String {
    let width = verdicts.iter().map(|v| v.name.chars().count()).max().unwrap_or(0).max(9);
    let mut out = format!(
        "{:<width$}  {:>6}  {:>8}  {:>9}  {:>9}  {:>8}  {:<10}  {}\n",
        "operation", "time", "ops/byte", "GB/s", "Gops/s", "roofline", "bottleneck", "evidence"
    );
    for verdict in verdicts {
        let intensity = verdict.intensity.map_or("-".to_owned(), |x| format!("{x:.2}"));
        let share =
            verdict.roofline.map_or("-".to_owned(), |it| format!("{:.0} %", 100.0 * it.share));
        // Writing into a String cannot fail.
        _ = writeln!(
            out,
            "{:<width$}  {:>5.1}%  {intensity:>8}  {:>9.2}  {:>9.2}  {share:>8}  {:<10}  {}",
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

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> MachineLimits {
        MachineLimits {
            source: "a test".into(),
            bandwidth_bytes_per_s: Some(100e9),
            f32_operations_per_s: Some(0.25e12),
            int8_operations_per_s: Some(1e12),
            transfer_bytes_per_s: Some(10e9),
            launch_s: Some(5e-6),
        }
    }

    fn op(bytes: f64, int8_operations: f64, us: u64) -> OpMeasurement {
        let time = Duration::from_micros(us);
        OpMeasurement {
            name: "op".into(),
            count: 1,
            time,
            bytes,
            int8_operations,
            launches: 1,
            ..OpMeasurement::default()
        }
    }

    fn judge(op: OpMeasurement) -> RooflineVerdict {
        limits().judge(&[op]).remove(0)
    }

    #[test]
    fn each_verdict_has_its_cause() {
        // 10 MB at 100 GB/s: 100 us; 100 M int8 operations at 1 T/s: 100 us.
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
    fn evidence_and_shares_are_numbers() {
        let verdict = judge(op(10e6, 1e6, 125));
        assert_eq!(verdict.evidence, "80.0 of 100.0 GB/s (80 %)");
        assert!((verdict.roofline.unwrap().share - 0.8).abs() < 1e-9);
        let verdicts = limits().judge(&[op(1.0, 1.0, 100), op(1.0, 1.0, 300)]);
        assert!((verdicts[0].time_share - 0.75).abs() < 1e-9, "the longest comes first");
        assert_eq!(table(&verdicts).lines().count(), 3);
    }

    #[test]
    fn an_exceeded_limit_is_in_doubt() {
        let verdict = judge(op(20e6, 1e6, 125));
        assert!(verdict.evidence.ends_with("served by caches?"), "{}", verdict.evidence);
    }

    #[test]
    fn without_limits_no_roofline_is_known() {
        let verdict = MachineLimits::default().judge(&[op(1e6, 1e6, 10)]).remove(0);
        assert_eq!((verdict.roofline, verdict.bottleneck), (None, Bottleneck::Unknown));
        assert_eq!(verdict.evidence, "no limit is known");
        assert_eq!(judge(op(1e6, 1e6, 0)).roofline, None);
    }

    #[test]
    fn each_arithmetic_has_its_own_limit() {
        // 100 M int8 operations at 1 T/s, and 25 M f32 operations at a quarter of it.
        let both = OpMeasurement { f32_operations: 25e6, ..op(1e6, 100e6, 400) };
        let roofline = judge(both.clone()).roofline.unwrap();
        assert_eq!(roofline.bound, Bound::Compute);
        assert!((roofline.share - 0.5).abs() < 1e-9, "{roofline:?}");
        // Without the limit of f32 only memory is known to bound it.
        let limits = MachineLimits { f32_operations_per_s: None, ..limits() };
        assert_eq!(limits.roofline(&both).unwrap().bound, Bound::Memory);
    }
}
