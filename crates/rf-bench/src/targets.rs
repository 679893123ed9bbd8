//! Checks of the performance targets in docs/PERFORMANCE.md.

use rf_profile::baseline::DeviceKind;
use rf_profile::roofline::Bound;

use crate::Suite;
use crate::results::{Measured, Run, TargetCheck, TargetOutcome};
use crate::table::with_unit;

/// The suites that the targets need. Their quick subsets are enough.
pub const SUITES: [Suite; 3] = [Suite::Matmul, Suite::Inference, Suite::Launch];

/// Conditions of the large-model targets.
const LARGE: &str = "a GPU, and a 7B Q4_K_M model";

/// Conditions of the small-model targets.
const SMALL: &str = "the demo model on 2 cores with AVX-512 VNNI";

/// Extracts the measured value of a target from a run, or the reason why there is none.
type Find = fn(&Run) -> Result<f64, String>;

/// A performance target: a bound on one value of a run.
struct Target {
    name: &'static str,
    needs: &'static str,
    /// True if `bound` is a lower bound.
    is_at_least: bool,
    bound: f64,
    unit: &'static str,
    find: Find,
}

const TARGETS: [Target; 8] = [
    Target {
        name: "time to first token, 512 tokens",
        needs: LARGE,
        is_at_least: false,
        bound: 200.0,
        unit: "ms",
        find: |run| large(run).and_then(|()| value_of(run, "inference/ttft/tokens=512")),
    },
    Target {
        name: "decode, 7B Q4_K_M",
        needs: LARGE,
        is_at_least: true,
        bound: 40.0,
        unit: "tokens/s",
        find: |run| large(run).and_then(|()| value_of(run, "inference/decode/batch=1")),
    },
    Target {
        name: "GPU utilisation",
        needs: LARGE,
        is_at_least: true,
        bound: 80.0,
        unit: "%",
        find: |run| large(run).and_then(|()| utilisation(run)),
    },
    Target {
        name: "memory bandwidth of a matmul",
        needs: "a GPU with more than 500 GB/s",
        is_at_least: true,
        bound: 500.0,
        unit: "GB/s",
        find: |run| on_gpu(run).and_then(|()| bandwidth(run)),
    },
    Target {
        name: "device memory, 7B Q4_K_M",
        needs: LARGE,
        is_at_least: false,
        bound: 6.0,
        unit: "GB",
        find: |run| large(run).and_then(|()| device_memory(run)),
    },
    Target {
        name: "time to first token, 128 tokens, demo model",
        needs: SMALL,
        is_at_least: false,
        bound: 20.0,
        unit: "ms",
        find: |run| demo(run).and_then(|()| value_of(run, "inference/ttft/tokens=128")),
    },
    // 1.3 times the throughput of llama.cpp on that machine, 4,500 tokens/s.
    Target {
        name: "decode, demo model",
        needs: "the same cores with memory of 45 GB/s",
        is_at_least: true,
        bound: 5850.0,
        unit: "tokens/s",
        find: |run| {
            demo(run)?;
            fast_memory(run, 45.0)?;
            value_of(run, "inference/decode/batch=1")
        },
    },
    Target {
        name: "taking a time on the CPU",
        needs: "the suite launch",
        is_at_least: false,
        bound: 1.0,
        unit: "us",
        find: |run| value_of(run, "launch/timer/scoped"),
    },
];

/// Checks every target on a run.
pub fn check(run: &Run) -> Vec<TargetCheck> {
    TARGETS.iter().map(|target| target.check(run)).collect()
}

impl Target {
    fn check(&self, run: &Run) -> TargetCheck {
        let Self { name, needs, is_at_least, bound, unit, find } = self;
        let outcome = match find(run) {
            Err(why) => TargetOutcome::NotMeasured(why),
            Ok(value) => {
                let shown = with_unit(value, unit);
                let is_met = if *is_at_least { value > *bound } else { value < *bound };
                if is_met { TargetOutcome::Pass(shown) } else { TargetOutcome::Fail(shown) }
            }
        };
        TargetCheck {
            name: (*name).to_owned(),
            wanted: format!("{} {bound} {unit}", if *is_at_least { ">" } else { "<" }),
            needs: (*needs).to_owned(),
            outcome,
        }
    }
}

fn on_gpu(run: &Run) -> Result<(), String> {
    match run.device {
        DeviceKind::Gpu => Ok(()),
        DeviceKind::Cpu => Err("this run is of the CPU; use --backend gpu".to_owned()),
    }
}

fn large(run: &Run) -> Result<(), String> {
    on_gpu(run)?;
    let name = run.model.as_ref().map_or("none", |model| &model.name);
    if name.ends_with("7B Q4_K_M") {
        Ok(())
    } else {
        Err(format!("the model is {name}; select one with --model"))
    }
}

fn demo(run: &Run) -> Result<(), String> {
    if run.device != DeviceKind::Cpu {
        return Err("this run is of the GPU; use --backend cpu".to_owned());
    }
    if run.hardware.cpu_threads != 2 || !run.backend.contains("avx512-vnni") {
        return Err(format!("this run is of another machine: {}", run.backend));
    }
    let name = run.model.as_ref().map_or("none", |model| &model.name);
    if name.starts_with("stories-7m-Q8_0.gguf") {
        Ok(())
    } else {
        Err(format!("the model is {name}; omit --model"))
    }
}

/// Checks the memory bandwidth. Decode reads every weight once per token, so its target applies to
/// machines with at least this bandwidth.
fn fast_memory(run: &Run, min_gb_per_s: f64) -> Result<(), String> {
    match run.limits.bandwidth_bytes_per_s.map(|bytes_per_s| bytes_per_s / 1e9) {
        Some(here) if here >= min_gb_per_s => Ok(()),
        Some(here) => Err(format!("memory gives {here:.1} GB/s here")),
        None => Err("the memory bandwidth was not measured".to_owned()),
    }
}

fn measured<'a>(run: &'a Run, name: &str) -> Result<&'a Measured, String> {
    let found = run.results.iter().find(|measured| measured.name == name);
    let why = || match run.skipped.iter().find(|skipped| skipped.name == name) {
        Some(skipped) => skipped.why.clone(),
        None => format!("{name} was not part of the run"),
    };
    found.ok_or_else(why)
}

/// The median of a benchmark.
fn value_of(run: &Run, name: &str) -> Result<f64, String> {
    measured(run, name)?.metrics.value().ok_or_else(|| format!("{name} has no result"))
}

fn utilisation(run: &Run) -> Result<f64, String> {
    let busy = run.monitor.iter().filter_map(|watch| watch.busy_percent);
    busy.reduce(f64::max).ok_or_else(|| "no monitor of the GPU reports its utilisation".to_owned())
}

/// The highest bandwidth of the memory-bound matmuls, in GB/s.
fn bandwidth(run: &Run) -> Result<f64, String> {
    let of_memory = run.results.iter().filter_map(|measured| {
        let roofline = measured.roofline?;
        let is_matmul = measured.suite == Suite::Matmul && roofline.bound == Bound::Memory;
        is_matmul.then_some(roofline.bytes_per_s / 1e9)
    });
    of_memory.reduce(f64::max).ok_or_else(|| "no matmul of the run is memory-bound".to_owned())
}

fn device_memory(run: &Run) -> Result<f64, String> {
    let peak = run.monitor.iter().filter_map(|watch| watch.peak_vram_bytes).max();
    let peak = peak.ok_or("no monitor of the GPU reports the device memory in use")?;
    Ok(peak as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/record.json"));

    /// The outcome of a target on a run, with its value or reason.
    fn outcome(run: &Run, name: &str) -> (&'static str, String) {
        let checks = check(run);
        match &checks.iter().find(|check| check.name == name).unwrap().outcome {
            TargetOutcome::Pass(shown) => ("pass", shown.clone()),
            TargetOutcome::Fail(shown) => ("fail", shown.clone()),
            TargetOutcome::NotMeasured(why) => ("not measured", why.clone()),
        }
    }

    #[test]
    fn targets_of_the_demo_model_are_checked_on_their_machine_only() {
        const DECODE: &str = "decode, demo model";
        let mut run: Run = serde_json::from_str(RECORD).unwrap();
        assert_eq!(outcome(&run, "time to first token, 128 tokens, demo model").0, "pass");
        assert_eq!(outcome(&run, "taking a time on the CPU").0, "pass");
        let (slow, why) = outcome(&run, DECODE);
        assert_eq!((slow, why.as_str()), ("not measured", "memory gives 36.6 GB/s here"));
        run.limits.bandwidth_bytes_per_s = Some(45e9);
        assert_eq!(outcome(&run, DECODE).0, "fail");
        run.hardware.cpu_threads = 16;
        assert!(outcome(&run, DECODE).1.contains("another machine"));
        assert!(outcome(&run, "decode, 7B Q4_K_M").1.contains("--backend gpu"));
    }
}
