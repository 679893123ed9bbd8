//! Devices for the commands: opens them, prints warnings, and measures GPUs.

use anyhow::Result;
pub(crate) use rf_device::{OpenGpu, Placement};

use crate::terminal;

/// Opens the devices that a model may use, and prints what the user should know about the choice.
pub(crate) fn open(options: rf_device::DeviceOptions) -> Result<Placement> {
    let placement = Placement::open(options)?;
    placement.warnings().iter().for_each(terminal::warn);
    Ok(placement)
}

/// Measurements of GPUs.
#[cfg(feature = "gpu")]
pub(crate) mod gpus {
    use anyhow::Result;
    use rf_device::gpu;
    use rf_profile::memory::MemoryTracker;
    use rf_profile::roofline::Limits;

    /// Measures the limits of a GPU, except arithmetic.
    pub(crate) fn limits(number: usize) -> Result<Limits> {
        let gpu = gpu::find(Some(number))?;
        Ok(Limits::measure_device(&gpu.runtime.device(gpu.info.ordinal)?.context()?)?)
    }

    /// Samples the memory in use on a GPU.
    pub(crate) fn sample_memory(number: usize, tracker: &mut MemoryTracker) -> Result<()> {
        let gpu = gpu::find(Some(number))?;
        Ok(tracker.sample_device(&gpu.runtime.device(gpu.info.ordinal)?.context()?)?)
    }
}

/// Replaces the measurements in a program without GPU support.
#[cfg(not(feature = "gpu"))]
pub(crate) mod gpus {
    use anyhow::Result;
    use rf_profile::memory::MemoryTracker;
    use rf_profile::roofline::Limits;

    pub(crate) fn limits(_number: usize) -> Result<Limits> {
        Err(rf_device::Error::WithoutGpuSupport.into())
    }

    pub(crate) fn sample_memory(_number: usize, _tracker: &mut MemoryTracker) -> Result<()> {
        Err(rf_device::Error::WithoutGpuSupport.into())
    }
}
