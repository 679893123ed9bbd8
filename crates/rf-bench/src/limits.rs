//! Roofline limits of the machine.
//!
//! Every run measures them at its start and stores them under `target/bench/limits/`, one file per
//! hardware. A limit is the highest value ever measured there, so that a busy start does not
//! inflate the percentages of the roofline.

use std::fs;
use std::path::{Path, PathBuf};

use rf_profile::baseline::{DeviceKind, Hardware};
use rf_profile::replace_file;
use rf_profile::roofline::MachineLimits;

use crate::{Error, Target, machine};

/// Measures the limits of a target and merges them with the stored ones of its hardware, the higher
/// value of each.
///
/// # Errors
///
/// [`Error::Profile`] and [`Error::Backend`] if a measurement fails.
pub fn measure(root: &Path, target: &Target, hardware: &Hardware) -> Result<MachineLimits, Error> {
    let mut limits = of_target(target)?;
    let stored = fs::read(path(root, hardware, target.device()));
    let known = stored.ok().and_then(|text| serde_json::from_slice(&text).ok());
    if let Some(known) = known {
        raise(&mut limits, &known);
    }
    Ok(limits)
}

/// Stores the limits of a hardware for later runs.
///
/// # Errors
///
/// [`Error::Profile`] if the file cannot be written. This costs accuracy only: the next run
/// measures again.
pub fn store(
    root: &Path,
    hardware: &Hardware,
    device: DeviceKind,
    limits: &MachineLimits,
) -> Result<(), Error> {
    let path = path(root, hardware, device);
    Ok(replace_file(&path, |out| Ok(serde_json::to_writer_pretty(out, limits)?))?)
}

fn path(root: &Path, hardware: &Hardware, device: DeviceKind) -> PathBuf {
    let slug = machine::slug(hardware, device);
    root.join("target/bench/limits").join(format!("{slug}.json"))
}

/// Memory bandwidth and peak arithmetic of the target.
fn of_target(target: &Target) -> Result<MachineLimits, Error> {
    let memory = target.measure_memory()?;
    let peak = target.backend().measure_peak()?;
    let arithmetic = if target.is_gpu() {
        "copies within its memory, the fastest matmuls of 2048 tokens"
    } else {
        "reads of 256 MiB, arithmetic in registers"
    };
    Ok(MachineLimits {
        source: format!("{}: {arithmetic}", memory.source),
        f32_operations_per_s: peak.f32_operations_per_s,
        int8_operations_per_s: peak.int8_operations_per_s,
        ..memory
    })
}

/// Raises each limit to the value in `known` where that is higher.
fn raise(limits: &mut MachineLimits, known: &MachineLimits) {
    let higher = |a: Option<f64>, b: Option<f64>| a.into_iter().chain(b).reduce(f64::max);
    let MachineLimits {
        bandwidth_bytes_per_s, f32_operations_per_s, int8_operations_per_s, ..
    } = known;
    limits.bandwidth_bytes_per_s = higher(limits.bandwidth_bytes_per_s, *bandwidth_bytes_per_s);
    limits.f32_operations_per_s = higher(limits.f32_operations_per_s, *f32_operations_per_s);
    limits.int8_operations_per_s = higher(limits.int8_operations_per_s, *int8_operations_per_s);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_the_highest_measured_value() {
        let measured = |bandwidth: f64, speed: f64| MachineLimits {
            bandwidth_bytes_per_s: Some(bandwidth),
            int8_operations_per_s: Some(speed),
            ..MachineLimits::default()
        };
        let mut limits = measured(40e9, 1.2e12);
        raise(&mut limits, &measured(45e9, 1.1e12));
        assert_eq!(limits, measured(45e9, 1.2e12));
    }
}
