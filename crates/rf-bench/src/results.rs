//! Results of a run of benchmarks, the source of tables, files and reports.
//!
//! `--format json` prints a [`Run`]. A file in `benchmarks/records/` is a [`Run`] without samples.

use std::collections::BTreeMap;
use std::time::Duration;

use rf_oracle::rf_graph::OpCost;
use rf_profile::baseline::{
    Baseline, BaselineComparison, BaselineSet, Build, DeviceKind, Hardware, Metrics, ModelId,
    Origin, Timestamp,
};
use rf_profile::roofline::{MachineLimits, OpMeasurement, Roofline};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{Error, Suite};

/// The value of [`Run::format`].
pub const FORMAT: &str = "rocmforge-bench-run";

/// The value of [`Run::version`] that this version writes.
pub const VERSION: u64 = 2;

/// The results of one run and the conditions of the measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Name of the file format, [`FORMAT`].
    pub format: String,
    /// Version of the file format, at most [`VERSION`].
    pub version: u64,
    /// Start of the run.
    pub timestamp: Timestamp,
    /// Hardware that took part in the run.
    pub hardware: Hardware,
    /// Build of the program.
    pub build: Build,
    /// Kind of the measured device.
    pub device: DeviceKind,
    /// Description of the backend, such as `avx512-vnni, 2 threads`.
    pub backend: String,
    /// Model of the suite `inference`; `None` if that suite did not run.
    pub model: Option<ModelId>,
    /// True if only the quick subset ran.
    pub quick: bool,
    /// Roofline limits of the machine, measured before the run.
    pub limits: MachineLimits,
    /// Results, ordered by suite.
    pub results: Vec<Measured>,
    /// Benchmarks that this target or model does not support.
    pub skipped: Vec<Skipped>,
    /// Names of the benchmarks left unmeasured by Ctrl-C or an error; empty after a whole run.
    pub missing: Vec<String>,
    /// State of each GPU while the model ran; empty on the CPU.
    pub monitor: Vec<GpuWatch>,
}

/// The result of one benchmark.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// Stable slash-separated name, such as `matmul/q4_k/4096x4096/rows=8`.
    pub name: String,
    /// Suite of the benchmark.
    pub suite: Suite,
    /// Statistics of all samples.
    pub metrics: Metrics,
    /// Samples in the unit of `metrics`, one list per round; absent from records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rounds: Vec<Vec<f64>>,
    /// Bytes and operations of one iteration; zero where they do not determine the time.
    #[serde(default, with = "CostInFile", skip_serializing_if = "has_no_cost")]
    pub cost: OpCost,
    /// Place of the median on the roofline; `None` without a cost or if the limits are unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roofline: Option<Roofline>,
    /// Phases of the median iteration, in order: the breakdown of TTFT.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseTime>,
    /// Further values, such as the clock, CPU contention, or planned and held memory.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

/// The time of one phase of an iteration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseTime {
    /// Label of the phase, such as `prefill`.
    pub name: String,
    /// Time in milliseconds.
    pub ms: f64,
}

/// A benchmark that could not run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skipped {
    /// Name of the benchmark.
    pub name: String,
    /// Suite of the benchmark.
    pub suite: Suite,
    /// Reason, for people.
    pub why: String,
}

/// Summary of the state of a GPU during the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuWatch {
    /// Index of the GPU in the source: of the tool, or of the card in sysfs.
    pub gpu: u32,
    /// Source of the samples, such as `amd-smi`.
    pub source: String,
    /// Median share of the time in which shaders were busy, in percent.
    pub busy_percent: Option<f64>,
    /// Peak of the device memory in use.
    pub peak_vram_bytes: Option<u64>,
    /// Median clock of the shaders in megahertz.
    pub clock_mhz: Option<f64>,
    /// Highest temperature in °C.
    pub temperature_c: Option<f64>,
    /// Median power in watts.
    pub power_w: Option<f64>,
    /// Evidence of throttled clocks; `None` if there is none.
    pub throttled: Option<String>,
}

/// The check of a performance target.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TargetCheck {
    /// Name of the target, such as `decode, 7B Q4_K_M`.
    pub name: String,
    /// Bound, such as `< 200 ms`.
    pub wanted: String,
    /// Model and hardware that the target applies to.
    pub needs: String,
    /// Outcome of the check.
    pub outcome: TargetOutcome,
}

/// The outcome of a target.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetOutcome {
    /// Met, with the measured value.
    Pass(String),
    /// Missed, with the measured value.
    Fail(String),
    /// The target was not measured, for this reason.
    NotMeasured(String),
}

/// The contents of a report.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// Results to report.
    pub run: &'a Run,
    /// Comparison with a baseline; `None` without `--compare`.
    pub comparison: Option<&'a BaselineComparison>,
    /// Checked targets; empty without `--targets`.
    pub targets: &'a [TargetCheck],
    /// Earlier runs on this hardware from `benchmarks/records/`, oldest first.
    pub history: &'a [Run],
}

impl Report<'_> {
    /// Formats the run with its samples, the comparison and the targets as JSON.
    ///
    /// # Errors
    ///
    /// [`Error::Json`] if a value cannot be encoded.
    pub fn json(&self) -> Result<String, Error> {
        let comparison = self.comparison.map(BaselineComparison::to_json);
        let all = json!({"run": self.run, "comparison": comparison, "targets": self.targets});
        Ok(serde_json::to_string_pretty(&all)? + "\n")
    }
}

/// The place on the roofline of an iteration with this cost and time; `None` without a cost, or if
/// the limits are unknown.
pub fn roofline(limits: &MachineLimits, cost: OpCost, seconds: f64) -> Option<Roofline> {
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

/// The serialized form of [`OpCost`].
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

    /// The results as baseline entries.
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

    /// A copy without samples, the form of records.
    #[must_use]
    pub fn without_samples(&self) -> Self {
        let mut run = self.clone();
        run.results.iter_mut().for_each(|measured| measured.rounds.clear());
        run
    }
}
