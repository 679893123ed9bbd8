//! Comparison of current results with stored ones.

use std::fmt;

use serde::Serialize;

use super::{Baseline, BaselineSet, Better, CONTENTION, DeviceKind, Hardware, Origin};

/// Default threshold of a change, as a fraction: 10 %.
pub const DEFAULT_THRESHOLD: f64 = 0.10;

/// Standard deviations of noise that a change must exceed, in addition to the threshold.
const NOISE_SIGMAS: f64 = 3.0;

/// The verdict on a benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum Verdict {
    /// The change is within the threshold and the noise.
    Ok,
    /// The result is better by more than the threshold and the noise.
    Improved,
    /// The result is worse by more than the threshold and the noise.
    Regression,
    /// Noise above the threshold, or CPU contention, hides a possible change.
    Inconclusive,
    /// The baseline is of other hardware.
    HardwareMismatch,
    /// The baseline is of this hardware, and the benchmark was not measured.
    Missing,
    /// The benchmark has no comparable baseline.
    New,
}

impl Verdict {
    /// The name in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "Ok",
            Self::Improved => "Improved",
            Self::Regression => "Regression",
            Self::Inconclusive => "Inconclusive",
            Self::HardwareMismatch => "HardwareMismatch",
            Self::Missing => "Missing",
            Self::New => "New",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The comparison of one benchmark.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BenchmarkComparison {
    /// Name of the benchmark.
    pub name: String,
    /// Kind of the measured device.
    pub device: DeviceKind,
    /// Verdict on the change.
    pub verdict: Verdict,
    /// Unit of `baseline` and `current`.
    pub unit: String,
    /// Stored value.
    pub baseline: Option<f64>,
    /// Current value.
    pub current: Option<f64>,
    /// Change as a fraction of the stored value, positive if the value grew.
    pub change: Option<f64>,
    /// Bound that a change must exceed, as a fraction: the threshold or the noise, whichever is
    /// greater.
    pub allowed: Option<f64>,
    /// Reason for the verdict, for people; may be empty.
    pub note: String,
}

/// The outcome of [`BaselineSet::compare`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BaselineComparison {
    /// Threshold of a change, as a fraction.
    pub threshold: f64,
    /// Hardware of the current results.
    pub hardware: Hardware,
    /// One row per benchmark of either set: current benchmarks in their order, then missing ones.
    pub rows: Vec<BenchmarkComparison>,
}

impl BaselineSet {
    /// Compares `current`, measured on `here`, with this set.
    ///
    /// A change is a regression or an improvement if it exceeds both `threshold` (a fraction: 0.1
    /// is 10 %) and three standard deviations of the combined noise of both results, √(a² + b²).
    /// The best sample (the smallest time, the largest throughput) must also change in the same
    /// direction, by at least half of that bound: load on the machine slows down most samples,
    /// slower code slows down all of them.
    ///
    /// A benchmark is inconclusive if its noise exceeds the threshold and hides a change, or if
    /// either side has the metadata [`CONTENTION`]. Results of different machines or models are not
    /// compared.
    ///
    /// # Examples
    ///
    /// ```
    /// use rf_profile::baseline::*;
    ///
    /// let here = Hardware::cpu_only();
    /// let measured = |ms: f64| -> Result<BaselineSet, rf_profile::Error> {
    ///     let metrics = Metrics::from_samples("ms", Better::Lower, &[ms, ms * 1.01, ms * 0.99])?;
    ///     let entry = Baseline::measured("matmul", DeviceKind::Cpu, here.clone(), metrics);
    ///     Ok(BaselineSet { entries: vec![entry], ..BaselineSet::default() })
    /// };
    /// let stored = measured(10.0)?;
    /// let comparison = stored.compare(&measured(12.0)?, &here, DEFAULT_THRESHOLD);
    /// assert_eq!(comparison.rows[0].verdict, Verdict::Regression);
    /// assert_eq!(comparison.exit_code(false), 1);
    /// # Ok::<(), rf_profile::Error>(())
    /// ```
    pub fn compare(&self, current: &Self, here: &Hardware, threshold: f64) -> BaselineComparison {
        let fresh = current.entries.iter().map(|entry| self.judge(entry, threshold));
        let mut rows: Vec<BenchmarkComparison> = fresh.collect();
        for entry in &self.entries {
            // A measured name has a row already, also for another model or machine.
            let is_of_name = |now: &Baseline| now.name == entry.name && now.device == entry.device;
            if !current.entries.iter().any(is_of_name) {
                rows.push(unmeasured(entry, here));
            }
        }
        BaselineComparison { threshold, hardware: here.clone(), rows }
    }

    /// Compares a current entry with the newest comparable entry of this set.
    fn judge(&self, entry: &Baseline, threshold: f64) -> BenchmarkComparison {
        let row = |verdict, note: String| BenchmarkComparison {
            name: entry.name.clone(),
            device: entry.device,
            verdict,
            unit: entry.metrics.unit.clone(),
            baseline: None,
            current: entry.metrics.value(),
            change: None,
            allowed: None,
            note,
        };
        let of_name = || {
            let entries = self.entries.iter();
            entries.filter(|old| old.name == entry.name && old.device == entry.device)
        };
        let of_model: Vec<_> = of_name().filter(|old| is_same_benchmark(old, entry)).collect();
        if of_model.is_empty() {
            let other_model = of_name().next().is_some();
            let note = if other_model { "the baseline is of another model" } else { "" };
            return row(Verdict::New, note.to_owned());
        }
        let mismatch = |old: &Baseline| entry.hardware.mismatch(&old.hardware, entry.device);
        let here = of_model.iter().filter(|old| mismatch(old).is_none());
        let Some(old) = here.max_by_key(|old| old.timestamp) else {
            let note = of_model.iter().find_map(|old| mismatch(old)).unwrap_or_default();
            return row(Verdict::HardwareMismatch, note);
        };
        let Some((now, before)) = entry.metrics.in_common(&old.metrics) else {
            let note =
                format!("no metric in common (the unit of the baseline is {})", old.metrics.unit);
            return row(Verdict::New, note);
        };
        let (a, b) = (entry.metrics.noise_or_estimate(), old.metrics.noise_or_estimate());
        let allowed = threshold.max(NOISE_SIGMAS * a.hypot(b));
        let change = relative_change(before, now);
        // Load on the machine moves the median only; slower code moves the best sample too.
        let best = entry.metrics.best_in_common(&old.metrics);
        let confirmed = best.is_none_or(|(now, before)| {
            relative_change(before, now) * change.signum() >= allowed / 2.0
        });
        let is_worse = (change > 0.0) == (entry.metrics.better == Better::Lower);
        let mut notes = Vec::new();
        if let Origin::Reference { source } = &old.origin {
            notes.push(format!("reference: {source}"));
        }
        let contended = [("now", entry), ("baseline", old)]
            .into_iter()
            .find_map(|(when, one)| Some((when, one.metadata.get(CONTENTION)?)));
        let verdict = if let Some((when, contention)) = contended {
            notes.push(format!("CPU contention, {when}: {contention}"));
            Verdict::Inconclusive
        } else if change.abs() > allowed && confirmed {
            if is_worse { Verdict::Regression } else { Verdict::Improved }
        } else if change.abs() > allowed {
            notes.push("noise: the best sample did not change".to_owned());
            Verdict::Inconclusive
        } else if allowed > threshold {
            notes.push(format!("noise of {:.0} %", 100.0 * allowed));
            Verdict::Inconclusive
        } else {
            Verdict::Ok
        };
        let compared = row(verdict, notes.join("; "));
        BenchmarkComparison {
            baseline: Some(before),
            current: Some(now),
            change: Some(change),
            allowed: Some(allowed),
            ..compared
        }
    }
}

impl BaselineComparison {
    /// Number of benchmarks with this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.rows.iter().filter(|row| row.verdict == verdict).count()
    }

    /// The exit code of a comparison: 1 with a regression, else 2 with `require_hardware` and a
    /// baseline of other hardware, else 3 with an inconclusive benchmark, else 0.
    pub fn exit_code(&self, require_hardware: bool) -> u8 {
        if self.count(Verdict::Regression) > 0 {
            1
        } else if require_hardware && self.count(Verdict::HardwareMismatch) > 0 {
            2
        } else if self.count(Verdict::Inconclusive) > 0 {
            3
        } else {
            0
        }
    }
}

/// The change as a fraction of `before`; infinite if only `before` is 0.
fn relative_change(before: f64, now: f64) -> f64 {
    let growth = now - before;
    if growth == 0.0 { 0.0 } else { growth / before.abs() }
}

/// Returns true if two entries are of the same benchmark. An entry without a model matches every
/// model.
fn is_same_benchmark(a: &Baseline, b: &Baseline) -> bool {
    let same_model = match (&a.model, &b.model) {
        (Some(a), Some(b)) => a.hash == b.hash,
        _ => true,
    };
    a.name == b.name && a.device == b.device && same_model
}

/// The row of a stored entry that was not measured.
fn unmeasured(entry: &Baseline, here: &Hardware) -> BenchmarkComparison {
    let (verdict, why) = match here.mismatch(&entry.hardware, entry.device) {
        Some(mismatch) => (Verdict::HardwareMismatch, mismatch),
        None => (Verdict::Missing, "not measured".to_owned()),
    };
    // Entries of several models may share a name.
    let note = match &entry.model {
        Some(model) => format!("{}: {why}", model.name),
        None => why,
    };
    BenchmarkComparison {
        name: entry.name.clone(),
        device: entry.device,
        verdict,
        unit: entry.metrics.unit.clone(),
        baseline: entry.metrics.value(),
        current: None,
        change: None,
        allowed: None,
        note,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::{Metrics, ModelId};

    fn machine(cpu: &str) -> Hardware {
        Hardware { cpu: cpu.into(), cpu_threads: 2, ..Hardware::default() }
    }

    fn entry(name: &str, cpu: &str, better: Better, samples: &[f64]) -> Baseline {
        let metrics = Metrics::from_samples("ms", better, samples).unwrap();
        Baseline::measured(name, DeviceKind::Cpu, machine(cpu), metrics)
    }

    fn quiet(value: f64) -> [f64; 3] {
        [value * 0.999, value, value * 1.001]
    }

    fn verdict_of(stored: Baseline, fresh: Baseline) -> Verdict {
        let set = |entry| BaselineSet { entries: vec![entry], ..BaselineSet::default() };
        let here = fresh.hardware.clone();
        let comparison = set(stored).compare(&set(fresh), &here, DEFAULT_THRESHOLD);
        assert_eq!(comparison.rows.len(), 1);
        comparison.rows[0].verdict
    }

    #[test]
    fn longer_times_and_lower_throughputs_are_regressions() {
        let judge = |better, before, now| {
            verdict_of(
                entry("a", "A", better, &quiet(before)),
                entry("a", "A", better, &quiet(now)),
            )
        };
        assert_eq!(judge(Better::Lower, 10.0, 11.5), Verdict::Regression);
        assert_eq!(judge(Better::Lower, 10.0, 8.5), Verdict::Improved);
        assert_eq!(judge(Better::Lower, 10.0, 10.9), Verdict::Ok);
        assert_eq!(judge(Better::Higher, 10.0, 8.5), Verdict::Regression);
        assert_eq!(judge(Better::Higher, 10.0, 11.5), Verdict::Improved);
        assert_eq!(judge(Better::Higher, 0.0, 0.0), Verdict::Ok);
        assert_eq!(judge(Better::Lower, 0.0, 1.0), Verdict::Regression);
    }

    #[test]
    fn a_change_within_the_noise_is_inconclusive() {
        let noisy = |value: f64| [value * 0.9, value, value * 1.1];
        let stored = entry("a", "A", Better::Lower, &noisy(10.0));
        let fresh = entry("a", "A", Better::Lower, &noisy(12.0));
        assert_eq!(verdict_of(stored.clone(), fresh), Verdict::Inconclusive);
        assert_eq!(verdict_of(stored.clone(), stored.clone()), Verdict::Inconclusive);
        let far = entry("a", "A", Better::Lower, &noisy(30.0));
        assert_eq!(verdict_of(stored, far), Verdict::Regression);
    }

    #[test]
    fn a_busy_machine_is_no_regression_and_slower_code_is() {
        let stored = entry("a", "A", Better::Lower, &quiet(10.0));
        let busy = entry("a", "A", Better::Lower, &[10.1, 14.0, 14.0, 14.0, 14.1]);
        assert_eq!(verdict_of(stored.clone(), busy), Verdict::Inconclusive);
        let slower = entry("a", "A", Better::Lower, &[13.9, 14.0, 14.0, 14.0, 14.1]);
        assert_eq!(verdict_of(stored, slower), Verdict::Regression);
    }

    #[test]
    fn contention_is_inconclusive_on_either_side() {
        let stored = entry("a", "A", Better::Lower, &quiet(10.0));
        let mut contended = entry("a", "A", Better::Lower, &quiet(15.0));
        contended.metadata.insert(CONTENTION.to_owned(), "12 %".to_owned());
        assert_eq!(verdict_of(stored.clone(), contended.clone()), Verdict::Inconclusive);
        assert_eq!(verdict_of(contended.clone(), stored), Verdict::Inconclusive);
        let set = |entry| BaselineSet { entries: vec![entry], ..BaselineSet::default() };
        let comparison = set(contended.clone()).compare(&set(contended), &machine("A"), 0.1);
        assert_eq!(comparison.exit_code(false), 3);
    }

    #[test]
    fn other_hardware_and_other_models_are_not_compared() {
        let stored = entry("a", "A", Better::Lower, &quiet(10.0));
        let mut fresh = entry("a", "B", Better::Lower, &quiet(20.0));
        assert_eq!(verdict_of(stored.clone(), fresh.clone()), Verdict::HardwareMismatch);
        fresh.hardware = machine("A");
        let model = |hash: &str| Some(ModelId { name: "m".into(), hash: hash.into() });
        let stored = Baseline { model: model("1"), ..stored };
        let fresh = Baseline { model: model("2"), ..fresh };
        assert_eq!(verdict_of(stored.clone(), fresh.clone()), Verdict::New);
        assert_eq!(verdict_of(stored, Baseline { model: None, ..fresh }), Verdict::Regression);
    }

    #[test]
    fn unmeasured_benchmarks_are_missing_or_of_other_hardware() {
        let mut card = entry("c", "A", Better::Lower, &quiet(1.0));
        card.device = DeviceKind::Gpu;
        card.hardware.gpu = "RX 7900 XT".into();
        let stored = BaselineSet {
            entries: vec![entry("a", "A", Better::Lower, &quiet(1.0)), card],
            ..BaselineSet::default()
        };
        let comparison = stored.compare(&BaselineSet::default(), &machine("A"), 0.1);
        let verdicts: Vec<_> = comparison.rows.iter().map(|row| row.verdict).collect();
        assert_eq!(verdicts, [Verdict::Missing, Verdict::HardwareMismatch]);
        assert_eq!((comparison.exit_code(false), comparison.exit_code(true)), (0, 2));
    }

    #[test]
    fn the_newest_baseline_of_this_machine_counts() {
        let mut old = entry("a", "A", Better::Lower, &quiet(1.0));
        old.timestamp = super::super::Timestamp::from_unix(5);
        let stored = BaselineSet {
            entries: vec![old, entry("a", "A", Better::Lower, &quiet(10.0))],
            ..BaselineSet::default()
        };
        let fresh = BaselineSet {
            entries: vec![entry("a", "A", Better::Lower, &quiet(10.0))],
            ..BaselineSet::default()
        };
        assert_eq!(stored.compare(&fresh, &machine("A"), 0.1).rows[0].verdict, Verdict::Ok);
    }
}
