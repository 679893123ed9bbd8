//! What a run of benchmarks gave: what tables, files and reports are made from.
//!
//! [`Run`] is what `--format json` prints and what a file of benchmarks/records/ holds (there without samples).

use std::collections::BTreeMap;

use rf_profile::baseline::{
    Baseline, BaselineSet, Build, Comparison, DeviceKind, Hardware, Metrics, ModelId, Origin,
    Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::Suite;

/// What [`Run::format`] says.
pub const FORMAT: &str = "rocmforge-bench-run";

/// What [`Run::version`] says.
pub const VERSION: u64 = 1;

/// Everything that one run measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// [`FORMAT`].
    pub format: String,
    /// [`VERSION`].
    pub version: u64,
    /// When it began.
    pub timestamp: Timestamp,
    /// On what.
    pub hardware: Hardware,
    /// With which build.
    pub build: Build,
    /// What computed.
    pub device: DeviceKind,
    /// What computed, for people: `avx512-vnni, 2 threads`.
    pub backend: String,
    /// What the suite `inference` ran, if it did.
    pub model: Option<ModelId>,
    /// Whether only the quick subset ran.
    pub quick: bool,
    /// What the machine can do at most, as measured before the run.
    pub limits: MachineLimits,
    /// What was measured, by suite.
    pub results: Vec<Measured>,
    /// What could not be measured here.
    pub skipped: Vec<Skipped>,
    /// Names of what Ctrl-C left unmeasured; empty after a whole run.
    pub missing: Vec<String>,
    /// The GPU beside the run, where there was something to watch.
    pub monitor: Vec<GpuWatch>,
}

/// One benchmark.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// Stable, slash-separated: `matmul/q4_k/4096x4096/rows=8`.
    pub name: String,
    /// Its group.
    pub suite: Suite,
    /// The figures of all samples.
    pub metrics: Metrics,
    /// Samples in the unit of `metrics`, one list for each round; not kept in records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rounds: Vec<Vec<f64>>,
    /// What one iteration has to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<Work>,
    /// How close the median comes to the machine's limits; `None` where a limit is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<Reached>,
    /// Parts of the median iteration, in order: the breakdown of the time to first token.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseTime>,
    /// Anything else: what a figure means, plan beside actual.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

/// What an iteration moves and computes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Work {
    /// Bytes read and written.
    pub bytes: f64,
    /// Arithmetic operations; a multiply-add is two.
    pub operations: f64,
    /// Which arithmetic.
    pub arithmetic: Arithmetic,
}

/// The arithmetic that limits an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arithmetic {
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
pub enum Limit {
    /// Memory.
    Bandwidth,
    /// Arithmetic.
    Compute,
}

/// A figure against the roofline.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reached {
    /// Least possible time over the median: 1 is the limit. Above 1 caches served the bytes.
    pub share: f64,
    /// The limit that it is a share of.
    pub limit: Limit,
    /// At the median.
    pub bytes_per_s: f64,
    /// At the median.
    pub operations_per_s: f64,
}

/// What the machine can do at most. What was not measured is `None` or missing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineLimits {
    /// How it was found out.
    pub source: String,
    /// Memory.
    pub bandwidth_bytes_per_s: Option<f64>,
    /// Each arithmetic, in operations per second.
    pub operations_per_s: BTreeMap<Arithmetic, f64>,
}

/// Part of an iteration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseTime {
    /// For people: `prefill`.
    pub name: String,
    /// Its time.
    pub ms: f64,
}

/// A benchmark that could not run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skipped {
    /// Which.
    pub name: String,
    /// Its group.
    pub suite: Suite,
    /// Why.
    pub why: String,
}

/// A GPU as sampled beside the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuWatch {
    /// Number of the tool, or of the card in sysfs.
    pub gpu: u32,
    /// Who says so: `amd-smi`.
    pub source: String,
    /// Median share of the time in which shaders were busy, in percent.
    pub busy_percent: Option<f64>,
    /// The most memory in use.
    pub peak_vram_bytes: Option<u64>,
    /// Median clock of the shaders.
    pub clock_mhz: Option<f64>,
    /// The highest.
    pub temperature_c: Option<f64>,
    /// Median.
    pub power_w: Option<f64>,
    /// How clocks were seen to be held back, if they were.
    pub throttled: Option<String>,
}

/// What a target of the plan came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TargetCheck {
    /// `TTFT at 512 tokens`.
    pub name: String,
    /// `< 200 ms`.
    pub wanted: String,
    /// Model and hardware that it is meant for.
    pub needs: String,
    /// How it ended.
    pub outcome: TargetOutcome,
}

/// How a target ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetOutcome {
    /// Met, with the figure.
    Pass(String),
    /// Missed, with the figure.
    Fail(String),
    /// Why there is no figure.
    NotMeasured(String),
}

/// What a report shows.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// The run.
    pub run: &'a Run,
    /// Against a baseline, where one was given.
    pub comparison: Option<&'a Comparison>,
    /// Targets, where they were asked for.
    pub targets: &'a [TargetCheck],
    /// Earlier runs on this hardware, the oldest first: benchmarks/records/.
    pub history: &'a [Run],
}

impl MachineLimits {
    /// Work done in `seconds` against these limits; `None` where neither is known.
    pub fn reached(&self, work: Work, seconds: f64) -> Option<Reached> {
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
    pub fn baselines(&self) -> BaselineSet {
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
    pub fn without_samples(&self) -> Self {
        let mut run = self.clone();
        run.results.iter_mut().for_each(|measured| measured.rounds.clear());
        run
    }
}
