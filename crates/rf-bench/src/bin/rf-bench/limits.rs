//! What the machine can do at most.
//!
//! Measured at the start of every run, and kept below target/ for each hardware: a limit is the most that was ever
//! seen, so that a busy start does not make shares of it look good.

use std::{fs, path::Path};

use anyhow::Result;
use rf_bench::{Target, compute_bound};
use rf_cpu::Isa;
use rf_profile::{baseline::Hardware, roofline::Limits};

use crate::{machine, options::Options, output};

/// Measures, and remembers.
pub(crate) fn measure(
    root: &Path,
    options: &Options,
    target: &Target,
    hardware: &Hardware,
) -> Result<Limits> {
    let mut limits = if target.is_gpu() { of_device(target)? } else { of_host(options, target)? };
    let slug = machine::slug(hardware, machine::device(options));
    let path = root.join("target/bench/limits").join(format!("{slug}.json"));
    let known = fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok());
    if let Some(known) = known {
        raise(&mut limits, &known);
    }
    // What cannot be kept is measured again next time.
    if let Err(error) = output::replace(&path, &serde_json::to_string_pretty(&limits)?) {
        output::note(format_args!("the limits of this machine were not kept: {error:#}"));
    }
    Ok(limits)
}

fn of_host(options: &Options, target: &Target) -> Result<Limits> {
    let threads = target.threads().unwrap_or(1);
    let memory = Limits::measure_host(threads)?;
    let peak = machine::isa(options)?.unwrap_or_else(Isa::best).measure_peak(threads);
    Ok(Limits {
        source: format!(
            "the most that {threads} threads were seen to read, and to compute in registers"
        ),
        f32_operations_per_s: Some(peak.f32_operations_per_s),
        int8_operations_per_s: Some(peak.int8_operations_per_s),
        ..memory
    })
}

/// No program can ask for the peak of the matrix units, so the fastest matmuls stand for it.
fn of_device(target: &Target) -> Result<Limits> {
    const RUNS: usize = 8;
    let context = rf_hip::Runtime::load()?.device(0)?.context()?;
    let memory = Limits::measure_device(&context)?;
    let source =
        format!("{}: copies within its memory, the fastest matmuls of 2048 tokens", memory.source);
    let mut limits = Limits { source, ..memory };
    for matmul in compute_bound() {
        // A device that lacks the memory, or the kernel, has no such limit.
        let Ok(mut prepared) = matmul.prepare(target) else { continue };
        let limit = if matmul.cost.int8_operations > 0 {
            &mut limits.int8_operations_per_s
        } else {
            &mut limits.f32_operations_per_s
        };
        for _ in 0..RUNS {
            let time = prepared.run()?;
            if !time.is_zero() {
                let speed = matmul.cost.operations() as f64 / time.as_secs_f64();
                *limit = Some(limit.map_or(speed, |best| best.max(speed)));
            }
        }
    }
    Ok(limits)
}

/// Takes the higher limits of `known`.
fn raise(limits: &mut Limits, known: &Limits) {
    let higher = |a: Option<f64>, b: Option<f64>| a.into_iter().chain(b).reduce(f64::max);
    let Limits { bandwidth_bytes_per_s, f32_operations_per_s, int8_operations_per_s, .. } = known;
    limits.bandwidth_bytes_per_s = higher(limits.bandwidth_bytes_per_s, *bandwidth_bytes_per_s);
    limits.f32_operations_per_s = higher(limits.f32_operations_per_s, *f32_operations_per_s);
    limits.int8_operations_per_s = higher(limits.int8_operations_per_s, *int8_operations_per_s);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_the_highest_measured_value() {
        let measured = |bandwidth: f64, speed: f64| Limits {
            bandwidth_bytes_per_s: Some(bandwidth),
            int8_operations_per_s: Some(speed),
            ..Limits::default()
        };
        let mut limits = measured(40e9, 1.2e12);
        raise(&mut limits, &measured(45e9, 1.1e12));
        assert_eq!(limits, measured(45e9, 1.2e12));
    }
}
