//! State of the GPUs beside a run: utilisation, memory, clocks, temperature, power.
//!
//! [`Monitor::detect`] takes what is there: `amd-smi`, `rocm-smi`, or the kernel's files (sysfs). The tools take some
//! tenths of a second for each sample and know throttling; sysfs costs next to nothing.

mod amd_smi;
mod rocm_smi;
mod sampling;
mod sysfs;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::Error;
use crate::tools::{Installed, Runner, Tool, Toolbox};

pub use sampling::{Record, Sample, Sampling, Throttling};

/// Where the kernel shows its graphics devices.
const DRM: &str = "/sys/class/drm";

/// Time for a tool to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The state of one GPU. What is not stated is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct GpuState {
    /// The GPU: number of the tool, or of the card in sysfs.
    pub gpu: u32,
    /// Share of the time in which shaders were busy, in percent.
    pub busy_percent: Option<f64>,
    /// The same of the memory controller.
    pub memory_busy_percent: Option<f64>,
    /// Device memory in use.
    pub vram_used_bytes: Option<u64>,
    /// Device memory.
    pub vram_total_bytes: Option<u64>,
    /// Clock of the shaders.
    pub clock_mhz: Option<f64>,
    /// Clock of the memory.
    pub memory_clock_mhz: Option<f64>,
    /// Edge of the die.
    pub temperature_c: Option<f64>,
    /// Its hottest point.
    pub hotspot_c: Option<f64>,
    /// Memory.
    pub memory_temperature_c: Option<f64>,
    /// Whole card, or whole package.
    pub power_w: Option<f64>,
    /// Whether the tool says that clocks are held back.
    pub throttled: Option<bool>,
}

/// Something that knows the state of the GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Monitor {
    /// `amd-smi metric --json`.
    AmdSmi(Installed),
    /// `rocm-smi --json`.
    RocmSmi(Installed),
    /// Files below this folder, usually `/sys/class/drm`.
    Sysfs(PathBuf),
}

impl Monitor {
    /// The first of amd-smi, rocm-smi and sysfs that tells of a GPU now.
    ///
    /// # Errors
    ///
    /// [`Error::NoMonitor`] with what was tried.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use rf_profile::monitor::Monitor;
    ///
    /// match Monitor::detect() {
    ///     Ok(monitor) => {
    ///         let sampling = monitor.start(Duration::from_millis(200));
    ///         // … what is to be watched …
    ///         println!("{}", sampling.stop().table());
    ///     }
    ///     Err(error) => println!("skipped: {error}"),
    /// }
    /// ```
    pub fn detect() -> Result<Self, Error> {
        Self::detect_in(&Toolbox::system(), Path::new(DRM))
    }

    /// The same with other folders.
    ///
    /// # Errors
    ///
    /// [`Error::NoMonitor`].
    pub fn detect_in(toolbox: &Toolbox, drm: &Path) -> Result<Self, Error> {
        let candidates = [
            toolbox.find(Tool::AmdSmi).map(Self::AmdSmi),
            toolbox.find(Tool::RocmSmi).map(Self::RocmSmi),
            Ok(Self::Sysfs(drm.to_owned())),
        ];
        let mut tried = Vec::new();
        for candidate in candidates {
            match candidate.and_then(|monitor| monitor.sample().map(|gpus| (monitor, gpus))) {
                Ok((monitor, gpus)) if !gpus.is_empty() => return Ok(monitor),
                Ok((monitor, _)) => tried.push(format!("{} knows no GPU", monitor.name())),
                Err(error) => tried.push(error.to_string()),
            }
        }
        Err(Error::NoMonitor { tried })
    }

    /// Where it looks.
    pub fn name(&self) -> &'static str {
        match self {
            Self::AmdSmi(_) => "amd-smi",
            Self::RocmSmi(_) => "rocm-smi",
            Self::Sysfs(_) => "sysfs",
        }
    }

    /// The state of all GPUs now.
    ///
    /// # Errors
    ///
    /// Those of running the tool, [`Error::Malformed`], or [`Error::Read`] without the folder of sysfs.
    pub fn sample(&self) -> Result<Vec<GpuState>, Error> {
        let ask = |tool: &Installed, arguments: &[&str]| {
            let mut command = Command::new(&tool.path);
            command.args(arguments);
            Runner::new(PATIENCE).run(&mut command).map(|finished| finished.stdout)
        };
        match self {
            Self::AmdSmi(tool) => amd_smi::parse(&ask(tool, &amd_smi::ARGUMENTS)?),
            Self::RocmSmi(tool) => rocm_smi::parse(&ask(tool, &rocm_smi::ARGUMENTS)?),
            Self::Sysfs(folder) => sysfs::read(folder),
        }
    }

    /// Samples every `interval` on a thread of its own, until it is stopped.
    pub fn start(self, interval: Duration) -> Sampling {
        Sampling::start(self, interval)
    }
}
