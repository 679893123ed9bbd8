//! Devices for the commands: opens them, prints warnings, and measures GPUs.

use std::io::{self, IsTerminal as _};

use anyhow::Result;
pub(crate) use rocmforge::device::{OpenGpu, Placement};

use crate::{failure, terminal};

/// Opens the devices that a model may use, and prints what the user should know about the choice.
pub(crate) fn open(options: rocmforge::device::DeviceOptions) -> Result<Placement> {
    let placement = Placement::open(options.with_prober(prober()))?;
    placement.warnings().iter().map(failure::device_warning).for_each(terminal::warn);
    placement.gpu().into_iter().for_each(offer_tuning);
    Ok(placement)
}

/// Says once per card that it can be tuned.
fn offer_tuning(gpu: &OpenGpu) {
    let Some(table) = gpu.untuned.as_deref().filter(|_| io::stderr().is_terminal()) else { return };
    let said = table.with_extension("offered");
    let write = || {
        std::fs::create_dir_all(said.parent()?).ok()?;
        std::fs::File::create_new(&said).ok()
    };
    if write().is_some() {
        terminal::note(format_args!(
            "{gpu} is new: `rf-cli tune --quick` measures in 10 s whether other launches are faster on it"
        ));
    }
}

/// Lists the GPUs in child processes of this program, so that a driver that crashes does not end
/// it.
#[cfg(feature = "gpu")]
pub(crate) fn prober() -> Option<&'static rocmforge::device::Prober> {
    static PROBER: std::sync::OnceLock<Option<rocmforge::device::Prober>> =
        std::sync::OnceLock::new();
    let new = || {
        let program = std::env::current_exe().ok()?;
        Some(rocmforge::device::Prober::new(program, [std::ffi::OsString::from("probe")]))
    };
    PROBER.get_or_init(new).as_ref()
}

#[cfg(not(feature = "gpu"))]
pub(crate) fn prober() -> Option<&'static rocmforge::device::Prober> {
    None
}

/// Measurements of GPUs.
#[cfg(feature = "gpu")]
pub(crate) mod gpus {
    use anyhow::Result;
    use rf_profile::memory::MemoryTracker;
    use rf_profile::roofline::MachineLimits;
    use rocmforge::device::gpu;

    /// Measures the limits of a GPU, except arithmetic.
    pub(crate) fn limits(number: usize) -> Result<MachineLimits> {
        let gpu = gpu::find(Some(number), super::prober())?;
        Ok(MachineLimits::measure_device(&gpu.device()?.context()?)?)
    }

    /// Samples the memory in use on a GPU.
    pub(crate) fn sample_memory(number: usize, tracker: &mut MemoryTracker) -> Result<()> {
        let gpu = gpu::find(Some(number), super::prober())?;
        Ok(tracker.sample_device(&gpu.device()?.context()?)?)
    }
}

/// Replaces the measurements in a program without GPU support.
#[cfg(not(feature = "gpu"))]
pub(crate) mod gpus {
    use anyhow::Result;
    use rf_profile::memory::MemoryTracker;
    use rf_profile::roofline::MachineLimits;

    pub(crate) fn limits(_number: usize) -> Result<MachineLimits> {
        Err(rocmforge::device::Error::WithoutGpuSupport.into())
    }

    pub(crate) fn sample_memory(_number: usize, _tracker: &mut MemoryTracker) -> Result<()> {
        Err(rocmforge::device::Error::WithoutGpuSupport.into())
    }
}
