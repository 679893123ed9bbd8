//! What a run of benchmarks gave: what tables, files and reports are made from.
//!
//! [`Run`] is what `--format json` prints and what a file of benchmarks/records/ holds (there without samples).

use std::collections::BTreeMap;
use std::time::Duration;

use rf_graph::OpCost;
use rf_profile::baseline::{
    Baseline, BaselineSet, Build, Comparison, DeviceKind, Hardware, Metrics, ModelId, Origin,
    Timestamp,
};
use rf_profile::roofline::{Limits, OpMeasurement, Roofline};
use serde::{Deserialize, Serialize};

use crate::Suite;

/// What [`Run::format`] says.
pub const FORMAT: &str = "rocmforge-bench-run";

/// What [`Run::version`] says.
pub const VERSION: u64 = 2;

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
    /// The limits of the machine, measured before the run.
    pub limits: Limits,
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
    /// The cost of one iteration; zero where bytes and arithmetic are beside the point.
    #[serde(default, with = "CostInFile", skip_serializing_if = "has_no_cost")]
    pub cost: OpCost,
    /// The median on the machine's roofline; `None` if the limits are unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roofline: Option<Roofline>,
    /// Parts of the median iteration, in order: the breakdown of the time to first token.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseTime>,
    /// Anything else: what a figure means, plan beside actual.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
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

/// The place of a cost on the roofline, by the time it took; `None` without a cost, or where the
/// limits are unknown.
pub fn roofline(limits: &Limits, cost: OpCost, seconds: f64) -> Option<Roofline> {
    if cost == OpCost::default() {
        return None;
    }
    limits.roofline(&OpMeasurement {
        time: Duration::try_from_secs_f64(seconds).ok()?,
        bytes: cost.bytes as f64,
        f32_operations: cost.f32_operations as f64,
        int8_operations: cost.int8_operations as f64,
        ..OpMeasurement::default()
    })
}

/// [`OpCost`] in files.
#[derive(Serialize, Deserialize)]
#[serde(remote = "OpCost", deny_unknown_fields)]
struct CostInFile {
    bytes: u64,
    f32_operations: u64,
    int8_operations: u64,
}

fn has_no_cost(cost: &OpCost) -> bool {
    *cost == OpCost::default()
}

impl Run {
    /// The suites in the order of their results.
    pub fn suites(&self) -> Vec<Suite> {
        let mut suites: Vec<Suite> = Vec::new();
        for measured in &self.results {
            if !suites.contains(&measured.suite) {
                suites.push(measured.suite);
            }
        }
        suites
    }

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
    #[must_use]
    pub fn without_samples(&self) -> Self {
        let mut run = self.clone();
        run.results.iter_mut().for_each(|measured| measured.rounds.clear());
        run
    }
}
