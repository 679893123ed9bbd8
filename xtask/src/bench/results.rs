//! What a run of benchmarks gave: what tables, files and reports are made from.
//!
//! [`Run`] is what `--format json` prints and what a file of benchmarks/records/ holds (there without samples).

use std::collections::BTreeMap;

use rf_profile::baseline::{
    Baseline, BaselineSet, Build, Comparison, DeviceKind, Hardware, Metrics, ModelId, Origin,
    Timestamp,
};
use serde::{Deserialize, Serialize};

use super::suite::Suite;

/// What [`Run::format`] says.
pub(crate) const FORMAT: &str = "rocmforge-bench-run";

/// What [`Run::version`] says.
pub(crate) const VERSION: u64 = 1;

/// Everything that one run measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Run {
    /// [`FORMAT`].
    pub(crate) format: String,
    /// [`VERSION`].
    pub(crate) version: u64,
    /// When it began.
    pub(crate) timestamp: Timestamp,
    /// On what.
    pub(crate) hardware: Hardware,
    /// With which build.
    pub(crate) build: Build,
    /// What computed.
    pub(crate) device: DeviceKind,
    /// What computed, for people: `avx512-vnni, 2 threads`.
    pub(crate) backend: String,
    /// What the suite `inference` ran, if it did.
    pub(crate) model: Option<ModelId>,
    /// Whether only the quick subset ran.
    pub(crate) quick: bool,
    /// What the machine can do at most, as measured before the run.
    pub(crate) limits: MachineLimits,
    /// What was measured, by suite.
    pub(crate) results: Vec<Measured>,
    /// What could not be measured here.
    pub(crate) skipped: Vec<Skipped>,
    /// Names of what Ctrl-C left unmeasured; empty after a whole run.
    pub(crate) missing: Vec<String>,
    /// The GPU beside the run, where there was something to watch.
    pub(crate) monitor: Vec<GpuWatch>,
}

/// One benchmark.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Measured {
    /// Stable, slash-separated: `matmul/q4_k/4096x4096/rows=8`.
    pub(crate) name: String,
    /// Its group.
    pub(crate) suite: Suite,
    /// The figures of all samples.
    pub(crate) metrics: Metrics,
    /// Samples in the unit of `metrics`, one list for each round; not kept in records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) rounds: Vec<Vec<f64>>,
    /// What one iteration has to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) work: Option<Work>,
    /// How close the median comes to the machine's limits; `None` where a limit is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reached: Option<Reached>,
    /// Parts of the median iteration, in order: the breakdown of the time to first token.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) phases: Vec<PhaseTime>,
    /// Anything else: what a figure means, plan beside actual.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) metadata: BTreeMap<String, String>,
}

/// What an iteration moves and computes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Work {
    /// Bytes read and written.
    pub(crate) bytes: f64,
    /// Arithmetic operations; a multiply-add is two.
    pub(crate) operations: f64,
    /// Which arithmetic.
    pub(crate) arithmetic: Arithmetic,
}

/// The arithmetic that limits an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Arithmetic {
    /// Single precision.
    F32,
    /// Half precision, on matrix units where there are any.
    F16,
    /// Products of bytes.
    I8,
}

/// Which limit of the roofline is the nearer one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Limit {
    /// Memory.
    Bandwidth,
    /// Arithmetic.
    Compute,
}

/// A figure against the roofline.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reached {
    /// Least possible time over the median: 1 is the limit. Above 1 caches served the bytes.
    pub(crate) share: f64,
    /// The limit that it is a share of.
    pub(crate) limit: Limit,
    /// At the median.
    pub(crate) bytes_per_s: f64,
    /// At the median.
    pub(crate) operations_per_s: f64,
}

/// What the machine can do at most. What was not measured is `None` or missing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MachineLimits {
    /// How it was found out.
    pub(crate) source: String,
    /// Memory.
    pub(crate) bandwidth_bytes_per_s: Option<f64>,
    /// Each arithmetic, in operations per second.
    pub(crate) operations_per_s: BTreeMap<Arithmetic, f64>,
}

/// Part of an iteration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PhaseTime {
    /// For people: `prefill`.
    pub(crate) name: String,
    /// Its time.
    pub(crate) ms: f64,
}

/// A benchmark that could not run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Skipped {
    /// Which.
    pub(crate) name: String,
    /// Its group.
    pub(crate) suite: Suite,
    /// Why.
    pub(crate) why: String,
}

/// A GPU as sampled beside the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GpuWatch {
    /// Number of the tool, or of the card in sysfs.
    pub(crate) gpu: u32,
    /// Who says so: `amd-smi`.
    pub(crate) source: String,
    /// Median share of the time in which shaders were busy, in percent.
    pub(crate) busy_percent: Option<f64>,
    /// The most memory in use.
    pub(crate) peak_vram_bytes: Option<u64>,
    /// Median clock of the shaders.
    pub(crate) clock_mhz: Option<f64>,
    /// The highest.
    pub(crate) temperature_c: Option<f64>,
    /// Median.
    pub(crate) power_w: Option<f64>,
    /// How clocks were seen to be held back, if they were.
    pub(crate) throttled: Option<String>,
}

/// What a target of the plan came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct TargetCheck {
    /// `TTFT at 512 tokens`.
    pub(crate) name: String,
    /// `< 200 ms`.
    pub(crate) wanted: String,
    /// Model and hardware that it is meant for.
    pub(crate) needs: String,
    /// How it ended.
    pub(crate) outcome: TargetOutcome,
}

/// How a target ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TargetOutcome {
    /// Met, with the figure.
    Pass(String),
    /// Missed, with the figure.
    Fail(String),
    /// Why there is no figure.
    NotMeasured(String),
}

/// What a report shows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report<'a> {
    /// The run.
    pub(crate) run: &'a Run,
    /// Against a baseline, where one was given.
    pub(crate) comparison: Option<&'a Comparison>,
    /// Targets, where they were asked for.
    pub(crate) targets: &'a [TargetCheck],
    /// Earlier runs on this hardware, the oldest first: benchmarks/records/.
    pub(crate) history: &'a [Run],
}

impl MachineLimits {
    /// Work done in `seconds` against these limits; `None` where neither is known.
    pub(crate) fn reached(&self, work: Work, seconds: f64) -> Option<Reached> {
        let bandwidth =
            self.bandwidth_bytes_per_s.map(|limit| (Limit::Bandwidth, work.bytes / limit));
        let speed = self.operations_per_s.get(&work.arithmetic);
        let compute = speed.map(|limit| (Limit::Compute, work.operations / limit));
        let least = [bandwidth, compute].into_iter().flatten();
        let (limit, least_s) = least.max_by(|a, b| a.1.total_cmp(&b.1))?;
        (seconds > 0.0).then(|| Reached {
            share: least_s / seconds,
            limit,
            bytes_per_s: work.bytes / seconds,
            operations_per_s: work.operations / seconds,
        })
    }
}

impl Run {
    /// The figures as baselines.
    pub(crate) fn baselines(&self) -> BaselineSet {
        let entries = self.results.iter().map(|measured| Baseline {
            name: measured.name.clone(),
            device: self.device,
            origin: Origin::Measured,
            timestamp: self.timestamp,
            hardware: self.hardware.clone(),
            build: self.build.clone(),
            model: self.model.clone().filter(|_| measured.suite == Suite::Inference),
            metrics: measured.metrics.clone(),
            metadata: measured.metadata.clone(),
        });
        let description = format!("cargo xtask bench on {}", self.hardware.name(self.device));
        BaselineSet { description, entries: entries.collect() }
    }

    /// The same without samples, as records keep it.
    pub(crate) fn without_samples(&self) -> Self {
        let mut run = self.clone();
        run.results.iter_mut().for_each(|measured| measured.rounds.clear());
        run
    }
}
