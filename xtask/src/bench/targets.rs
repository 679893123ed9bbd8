//! The targets of the plan, as checks.

use rf_profile::baseline::DeviceKind;

use super::{
    results::{Limit, Measured, Run, TargetCheck, TargetOutcome},
    suite::Suite,
    table::with_unit,
};

/// What the large-model targets are meant for.
const LARGE: &str = "a GPU, and a 7B Q4_K_M model";

/// What the small-model targets are meant for.
const SMALL: &str = "the demo model on 2 cores with AVX-512 VNNI";

/// A figure that a run may have.
type Find = fn(&Run) -> Result<f64, String>;

/// A target: its name, what is wanted, of what.
struct Target {
    name: &'static str,
    needs: &'static str,
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
        find: |run| large(run).and_then(|()| figure(run, "inference/ttft/tokens=512")),
    },
    Target {
        name: "decode, 7B Q4_K_M",
        needs: LARGE,
        is_at_least: true,
        bound: 40.0,
        unit: "tokens/s",
        find: |run| large(run).and_then(|()| figure(run, "inference/decode/batch=1")),
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
        name: "memory bandwidth reached",
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
    // 1.3 times what llama.cpp gives there: 4,500 tokens/s.
    Target {
        name: "decode, demo model",
        needs: SMALL,
        is_at_least: true,
        bound: 5850.0,
        unit: "tokens/s",
        find: |run| demo(run).and_then(|()| figure(run, "inference/decode/batch=1")),
    },
    Target {
        name: "time to first token, 128 tokens, demo model",
        needs: SMALL,
        is_at_least: false,
        bound: 20.0,
        unit: "ms",
        find: |run| demo(run).and_then(|()| figure(run, "inference/ttft/tokens=128")),
    },
    Target {
        name: "taking a time on the CPU",
        needs: "the suite launch",
        is_at_least: false,
        bound: 1.0,
        unit: "us",
        find: |run| figure(run, "launch/timer/scoped"),
    },
];

/// Every target on a run.
pub(super) fn check(run: &Run) -> Vec<TargetCheck> {
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
        DeviceKind::Cpu => Err("this run is of the CPU: --backend gpu".to_owned()),
    }
}

fn large(run: &Run) -> Result<(), String> {
    on_gpu(run)?;
    let name = run.model.as_ref().map_or("none", |model| &model.name);
    if name.ends_with("7B Q4_K_M") { Ok(()) } else { Err(format!("the model is {name}: --model")) }
}

fn demo(run: &Run) -> Result<(), String> {
    if run.device != DeviceKind::Cpu {
        return Err("this run is of the GPU: --backend cpu".to_owned());
    }
    if run.hardware.cpu_threads != 2 || !run.backend.contains("AVX-512") {
        return Err(format!("this run is of another machine: {}", run.backend));
    }
    let name = run.model.as_ref().map_or("none", |model| &model.name);
    if name.starts_with("stories-7m-Q8_0.gguf") {
        Ok(())
    } else {
        Err(format!("the model is {name}: leave --model out"))
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

fn figure(run: &Run, name: &str) -> Result<f64, String> {
    measured(run, name)?.metrics.value().ok_or_else(|| format!("{name} has no figure"))
}

fn utilisation(run: &Run) -> Result<f64, String> {
    let busy = run.monitor.iter().filter_map(|watch| watch.busy_percent);
    busy.reduce(f64::max).ok_or_else(|| "nothing here tells how busy the GPU is".to_owned())
}

/// The best of the products that memory limits.
fn bandwidth(run: &Run) -> Result<f64, String> {
    let of_memory = run.results.iter().filter_map(|measured| {
        let reached = measured.reached?;
        let is_product = measured.suite == Suite::Matmul && reached.limit == Limit::Bandwidth;
        is_product.then_some(reached.bytes_per_s / 1e9)
    });
    of_memory
        .reduce(f64::max)
        .ok_or_else(|| "no product of the run is limited by memory".to_owned())
}

fn device_memory(run: &Run) -> Result<f64, String> {
    let peak = run.monitor.iter().filter_map(|watch| watch.peak_vram_bytes).max();
    let peak = peak.ok_or("nothing here tells how much device memory is in use")?;
    Ok(peak as f64 / 1e9)
}
