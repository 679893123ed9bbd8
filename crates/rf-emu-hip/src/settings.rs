//! The environment variables.

use std::path::PathBuf;
use std::{env, fs};

use rf_emu::{Arch, Checks};

use crate::faults::FaultPlan;
use crate::symbols::lists_devices;

/// The values of the environment variables; see the crate's documentation.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) devices: Vec<Arch>,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) checks: Checks,
    pub(crate) seed: u64,
    /// 0 stands for one per processor.
    pub(crate) threads: usize,
    pub(crate) faults: Faults,
    pub(crate) log: Option<PathBuf>,
    pub(crate) counters: Option<PathBuf>,
}

/// The source of the fault plan.
#[derive(Debug, Clone)]
pub(crate) enum Faults {
    Fixed(FaultPlan),
    /// Read again by each call of `hipGetDeviceCount`, so that a test changes it between runs.
    File(PathBuf),
}

impl Settings {
    /// Reads the environment.
    ///
    /// # Errors
    ///
    /// A sentence that names the variable.
    pub(crate) fn from_environment() -> Result<Self, String> {
        let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let mut devices = Vec::new();
        let names = variable("ROCFORGE_EMU_ARCH").unwrap_or_else(|| "gfx1100".to_owned());
        for name in names.split(',').map(str::trim) {
            let arch = Arch::from_name(name).filter(|arch| !arch.is_generic());
            devices.push(arch.ok_or_else(|| {
                let all: Vec<_> = Arch::ALL
                    .iter()
                    .copied()
                    .filter(|arch| !arch.is_generic())
                    .map(Arch::name)
                    .collect();
                format!("ROCFORGE_EMU_ARCH: no device '{name}', only {}", all.join(", "))
            })?);
        }
        if !lists_devices() {
            devices.clear();
        }
        let number = |name: &str| match variable(name) {
            None => Ok(None),
            Some(value) => {
                let number = value.parse::<u64>();
                number.map(Some).map_err(|_| format!("{name}: '{value}' is not a number"))
            }
        };
        let faults = variable("ROCFORGE_EMU_FAIL").unwrap_or_default();
        let faults = match faults.strip_prefix('@') {
            Some(path) => Faults::File(path.into()),
            None => Faults::Fixed(
                faults.parse().map_err(|error| format!("ROCFORGE_EMU_FAIL: {error}"))?,
            ),
        };
        Ok(Self {
            devices,
            memory_bytes: number("ROCFORGE_EMU_MEMORY_MIB")?.map(|mib| mib.saturating_mul(1 << 20)),
            checks: variable("ROCFORGE_EMU_CHECK")
                .map_or(Ok(Checks::ALL), |names| names.parse())
                .map_err(|error| format!("ROCFORGE_EMU_CHECK: {error}"))?,
            seed: number("ROCFORGE_EMU_SEED")?.unwrap_or(0),
            threads: number("ROCFORGE_EMU_THREADS")?.unwrap_or(0) as usize,
            faults,
            log: env::var_os("ROCFORGE_EMU_LOG").map(PathBuf::from),
            counters: env::var_os("ROCFORGE_EMU_COUNTERS").map(PathBuf::from),
        })
    }
}

impl Faults {
    /// The plan at this moment.
    ///
    /// # Errors
    ///
    /// A sentence that names the file.
    pub(crate) fn plan(&self) -> Result<FaultPlan, String> {
        match self {
            Self::Fixed(plan) => Ok(plan.clone()),
            Self::File(path) => {
                let name = path.display();
                let text = fs::read_to_string(path)
                    .map_err(|error| format!("ROCFORGE_EMU_FAIL: {name}: {error}"))?;
                text.parse().map_err(|error| format!("ROCFORGE_EMU_FAIL: {name}: {error}"))
            }
        }
    }
}
