//! GPU state during a run: utilisation, memory, clocks, temperatures and power.
//!
//! [`Monitor::detect`] selects the first available source: `amd-smi`, `rocm-smi`, or the files of
//! the amdgpu driver in sysfs. The tools take some tenths of a second per sample and report
//! throttling. Reading sysfs takes well under a millisecond.

mod amd_smi;
mod gpu_state;
mod rocm_smi;
mod sampling;
mod sysfs;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::Error;
use crate::tools::{InstalledTool, Runner, Tool, Toolbox};

pub use gpu_state::GpuState;
pub use sampling::{MonitorRecord, Sample, Sampling, Throttling};

/// The folder of graphics devices in sysfs.
const DRM: &str = "/sys/class/drm";

/// The time limit of a tool for one sample.
const SAMPLE_LIMIT: Duration = Duration::from_secs(10);

/// A source of GPU state.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Monitor {
    /// `amd-smi metric --json`.
    AmdSmi(InstalledTool),
    /// `rocm-smi --json`.
    RocmSmi(InstalledTool),
    /// The files in this folder, usually `/sys/class/drm`.
    Sysfs(PathBuf),
}

impl Monitor {
    /// Selects the first of amd-smi, rocm-smi and sysfs that reports a GPU.
    ///
    /// # Errors
    ///
    /// [`Error::NoMonitor`] with the reason for each source.
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
    ///         // … the workload …
    ///         println!("{}", sampling.stop().table());
    ///     }
    ///     Err(error) => println!("skipped: {error}"),
    /// }
    /// ```
    pub fn detect() -> Result<Self, Error> {
        Self::detect_in(&Toolbox::system(), Path::new(DRM))
    }

    /// Selects a source like [`Monitor::detect`], from other folders.
    ///
    /// # Errors
    ///
    /// [`Error::NoMonitor`].
    fn detect_in(toolbox: &Toolbox, drm: &Path) -> Result<Self, Error> {
        let candidates = [
            toolbox.find(Tool::AmdSmi).map(Self::AmdSmi),
            toolbox.find(Tool::RocmSmi).map(Self::RocmSmi),
            Ok(Self::Sysfs(drm.to_owned())),
        ];
        let mut tried = Vec::new();
        for candidate in candidates {
            match candidate.and_then(|monitor| monitor.sample().map(|gpus| (monitor, gpus))) {
                Ok((monitor, gpus)) if !gpus.is_empty() => return Ok(monitor),
                Ok((monitor, _)) => tried.push(format!("{} reports no GPU", monitor.name())),
                Err(error) => tried.push(error.to_string()),
            }
        }
        Err(Error::NoMonitor { tried })
    }

    /// The name of the source.
    pub fn name(&self) -> &'static str {
        match self {
            Self::AmdSmi(_) => "amd-smi",
            Self::RocmSmi(_) => "rocm-smi",
            Self::Sysfs(_) => "sysfs",
        }
    }

    /// Samples the state of all GPUs.
    ///
    /// # Errors
    ///
    /// The errors of [`Runner::run`], [`Error::Malformed`], and [`Error::Read`] if the sysfs folder
    /// is missing.
    pub fn sample(&self) -> Result<Vec<GpuState>, Error> {
        let query = |tool: &InstalledTool, arguments: &[&str]| {
            let mut command = Command::new(&tool.path);
            command.args(arguments);
            Runner::new(SAMPLE_LIMIT).run(command).map(|output| output.stdout)
        };
        match self {
            Self::AmdSmi(tool) => amd_smi::parse(&query(tool, &amd_smi::ARGUMENTS)?),
            Self::RocmSmi(tool) => rocm_smi::parse(&query(tool, &rocm_smi::ARGUMENTS)?),
            Self::Sysfs(folder) => sysfs::read(folder),
        }
    }

    /// Starts a thread that samples every `interval` until it is stopped.
    pub fn start(self, interval: Duration) -> Sampling {
        Sampling::start(self.name(), interval, move || self.sample())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_samples_are_counted() {
        let nowhere = tempfile::tempdir().unwrap();
        let sampling = Monitor::Sysfs(nowhere.path().join("none")).start(Duration::from_millis(1));
        let record = sampling.stop();
        assert!(record.samples.is_empty() && record.failures.as_ref().unwrap().0 > 0);
        assert!(record.table().contains("failed"));
    }

    #[test]
    fn without_a_source_the_error_names_all_attempts() {
        let empty = tempfile::tempdir().unwrap();
        let toolbox = Toolbox::of([]);
        let error = Monitor::detect_in(&toolbox, empty.path()).unwrap_err().to_string();
        assert!(
            error.contains("amd-smi is not installed") && error.contains("sysfs reports no GPU"),
            "{error}"
        );
    }
}
