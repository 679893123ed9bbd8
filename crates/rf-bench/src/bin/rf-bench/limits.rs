//! What the machine can do at most.
//!
//! Measured at the start of every run, and kept below target/ for each hardware: a limit is the most that was ever
//! seen, so that a busy start does not make shares of it look good.

use std::{fs, path::Path};

use anyhow::Result;
use rf_bench::{Target, compute_bound};
use rf_cpu::Isa;
use rf_profile::{baseline::Hardware, roofline::Limits};

use crate::{
    machine,
    options::Options,
    output, plan,
    results::{Arithmetic, MachineLimits},
};

/// Measures, and remembers.
pub(crate) fn measure(
    root: &Path,
    options: &Options,
    target: &Target,
    hardware: &Hardware,
) -> Result<MachineLimits> {
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

fn of_host(options: &Options, target: &Target) -> Result<MachineLimits> {
    let threads = target.threads().unwrap_or(1);
    let memory = Limits::measure_host(threads)?;
    let peak = machine::isa(options)?.unwrap_or_else(Isa::best).measure_peak(threads);
    Ok(MachineLimits {
        source: format!(
            "the most that {threads} threads were seen to read, and to compute in registers"
        ),
        bandwidth_bytes_per_s: memory.bandwidth_bytes_per_s,
        operations_per_s: [
            (Arithmetic::F32, peak.f32_operations_per_s),
            (Arithmetic::I8, peak.int8_operations_per_s),
        ]
        .into(),
    })
}

/// What its matrix units do at most no program can ask for: the fastest products stand for it.
fn of_device(target: &Target) -> Result<MachineLimits> {
    const RUNS: usize = 8;
    let context = rf_hip::Runtime::load()?.device(0)?.context()?;
    let memory = Limits::measure_device(&context)?;
    let mut limits = MachineLimits {
        source: format!(
            "{}: copies within its memory, the fastest products of 2048 tokens",
            memory.source
        ),
        bandwidth_bytes_per_s: memory.bandwidth_bytes_per_s,
        ..MachineLimits::default()
    };
    for product in compute_bound() {
        // A device that lacks the memory, or the kernel, has no such limit.
        let (Some(work), Ok(mut prepared)) = (plan::work(&product), product.prepare(target)) else {
            continue;
        };
        for _ in 0..RUNS {
            let time = prepared.run()?;
            if !time.is_zero() {
                let limit = limits.operations_per_s.entry(work.arithmetic).or_default();
                *limit = limit.max(work.operations / time.as_secs_f64());
            }
        }
    }
    Ok(limits)
}

/// Takes what is higher in `known`.
fn raise(limits: &mut MachineLimits, known: &MachineLimits) {
    let bandwidth = limits.bandwidth_bytes_per_s.into_iter().chain(known.bandwidth_bytes_per_s);
    limits.bandwidth_bytes_per_s = bandwidth.reduce(f64::max);
    for (arithmetic, speed) in &known.operations_per_s {
        let limit = limits.operations_per_s.entry(*arithmetic).or_default();
        *limit = limit.max(*speed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_the_most_that_was_seen() {
        let seen = |bandwidth: f64, speed: f64| MachineLimits {
            bandwidth_bytes_per_s: Some(bandwidth),
            operations_per_s: [(Arithmetic::I8, speed)].into(),
            ..MachineLimits::default()
        };
        let mut limits = seen(40e9, 1.2e12);
        raise(&mut limits, &seen(45e9, 1.1e12));
        assert_eq!(limits, seen(45e9, 1.2e12));
    }
}
