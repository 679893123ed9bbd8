//! The limits of the devices in use, which ops are compared with.

use anyhow::Result;
use rf_profile::roofline::MachineLimits;
use rocmforge::engine::Backend;

use crate::device::{OpenGpu, Placement, gpus};

/// The limits of the CPU, with the threads of the model.
pub(crate) fn of_cpu(placement: &Placement) -> Result<MachineLimits> {
    let cpu = placement.cpu()?;
    with_peak(MachineLimits::measure_host(cpu.threads())?, &cpu, "reads of 256 MiB, registers")
}

/// The limits of the GPU in use.
pub(crate) fn of_gpu(gpu: &OpenGpu) -> Result<MachineLimits> {
    with_peak(gpus::limits(gpu.number)?, &*gpu.backend, "copies of 256 MiB, the fastest matmuls")
}

fn with_peak(mut limits: MachineLimits, backend: &dyn Backend, how: &str) -> Result<MachineLimits> {
    let peak = backend.measure_peak()?;
    limits.source = format!("{}: {how}", limits.source);
    limits.f32_operations_per_s = peak.f32_operations_per_s;
    limits.int8_operations_per_s = peak.int8_operations_per_s;
    Ok(limits)
}
