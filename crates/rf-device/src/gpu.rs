//! The GPUs of this machine: which there are, which are usable, and which one is the best.
//!
//! With a [`Prober`], a child process lists them, so a driver that crashes or hangs takes only the
//! child with it, and a GPU that is not used is not touched in this process.

use std::fmt;

use rf_hip::Platform;
pub use rf_hip::{Device, Error as RuntimeError, Runtime};
use rf_kernels::GpuOptions;
pub use rf_kernels::{GpuBackend, GraphMode};

use crate::error::{Error, Warning, sentence};
use crate::open_gpu::OpenGpu;
use crate::options::Graphs;
use crate::probe::{self, DeviceReport, PlatformReport, Prober};
use crate::tuning::{self, TuningTable};

/// A GPU that a runtime lists.
#[derive(Clone, Debug)]
pub struct Gpu {
    report: DeviceReport,
}

/// The reports on all platforms, in order of preference.
struct GpuInventory {
    reports: Vec<PlatformReport>,
}

/// Opens a GPU by its number, or the best one, with its own type of backend.
///
/// # Errors
///
/// If there is no such GPU or it cannot be used; the message has the cure.
pub fn open_backend(
    number: Option<usize>,
    prober: Option<&Prober>,
) -> Result<(Gpu, GpuBackend), Error> {
    let gpu = find(number, prober)?;
    let backend = gpu.backend(GraphMode::Auto)?;
    Ok((gpu, backend))
}

/// Finds a GPU by its number, or the best one. With none usable, the first one.
///
/// # Errors
///
/// If there is no such GPU; the message has the cure.
pub fn find(number: Option<usize>, prober: Option<&Prober>) -> Result<Gpu, Error> {
    let inventory = GpuInventory::new(prober)?;
    let gpu = match number {
        Some(number) => inventory.gpus().find(|gpu| gpu.number == number),
        None => probe::best(&inventory.reports).or_else(|| inventory.gpus().next()),
    };
    match gpu {
        Some(report) => Ok(Gpu { report: report.clone() }),
        None => Err(inventory.absence(number)),
    }
}

pub(crate) fn open(
    number: Option<usize>,
    prober: Option<&Prober>,
    graphs: Graphs,
) -> Result<OpenGpu, Error> {
    find(number, prober)?.open(graphs)
}

/// Opens the other usable GPUs: those of the same platform that are likely faster than the
/// CPU. One that fails is a warning.
pub(crate) fn open_others(
    first: &OpenGpu,
    prober: Option<&Prober>,
    graphs: Graphs,
    warnings: &mut Vec<Warning>,
) -> Result<Vec<OpenGpu>, Error> {
    let inventory = GpuInventory::new(prober)?;
    let platform = |number| inventory.gpus().find(|gpu| gpu.number == number).map(|g| &g.platform);
    let of_first = platform(first.number);
    let mut others = Vec::new();
    for report in inventory.gpus() {
        let gpu = Gpu { report: report.clone() };
        let is_other = report.number != first.number && Some(&report.platform) == of_first;
        if !is_other || report.problem.is_some() || !gpu.is_worthwhile() {
            continue;
        }
        match gpu.open(graphs) {
            Ok(open) => others.push(open),
            Err(error) => {
                let reason = sentence(&error);
                warnings.push(Warning::GpuNotUsed { gpu: gpu.to_string(), reason });
            }
        }
    }
    Ok(others)
}

/// Opens the best GPU if it is likely faster than the CPU, or if the user requires one.
pub(crate) fn open_if_usable(
    required: bool,
    prober: Option<&Prober>,
    graphs: Graphs,
    warnings: &mut Vec<Warning>,
) -> Option<OpenGpu> {
    let inventory = match GpuInventory::new(prober) {
        Ok(inventory) => inventory,
        Err(error) => {
            warnings.push(Warning::EverythingOnCpu { reason: sentence(&error) });
            return None;
        }
    };
    let best = probe::best(&inventory.reports).map(|report| Gpu { report: report.clone() });
    if let Some(gpu) = best.filter(|gpu| required || gpu.is_worthwhile()) {
        return match gpu.open(graphs) {
            Ok(open) => Some(open),
            Err(error) => {
                let reason = std::error::Error::source(&error).map(sentence);
                let reason = reason.unwrap_or_else(|| error.to_string());
                warnings.push(Warning::GpuNotUsed { gpu: gpu.to_string(), reason });
                None
            }
        };
    }
    for report in inventory.gpus() {
        let gpu = Gpu { report: report.clone() }.to_string();
        warnings.push(match report.problem.clone() {
            None => Warning::CpuIsFaster { gpu },
            Some(reason) => Warning::GpuNotUsed { gpu, reason },
        });
    }
    let is_broken = inventory.reports.iter().any(|report| report.is_broken);
    if inventory.gpus().next().is_none() && (required || is_broken) {
        let reason = inventory.absence(None).to_string();
        warnings.push(Warning::EverythingOnCpu { reason });
    }
    None
}

impl GpuInventory {
    /// Lists the GPUs of all runtimes that load, as `ROCFORGE_GPU_PLATFORM` allows.
    ///
    /// # Errors
    ///
    /// If that variable names no platform. A runtime that does not load has an error in its report.
    fn new(prober: Option<&Prober>) -> Result<Self, Error> {
        let reports = match prober {
            Some(prober) => prober.survey()?,
            None => probe::numbered(probe::platforms()?.into_iter().map(probe::list).collect()),
        };
        Ok(Self { reports })
    }

    fn gpus(&self) -> impl Iterator<Item = &DeviceReport> {
        self.reports.iter().flat_map(|report| &report.devices)
    }

    /// The reason why there is no GPU, or none with this number.
    fn absence(&self, number: Option<usize>) -> Error {
        let last = self.gpus().last();
        if let (Some(number), Some(last)) = (number, last) {
            return Error::NoSuchGpu { number, last: last.number };
        }
        let works = |report: &&PlatformReport| report.error.is_none();
        if let Some(report) = self.reports.iter().find(works) {
            let library = report.library.as_deref().unwrap_or_default();
            return Error::NoGpu { runtime: format!("{} ({library})", report.platform) };
        }
        match self.reports.iter().find(|report| !report.is_absent) {
            Some(report) => Error::RuntimeFailed {
                platform: report.platform.clone(),
                reason: report.error.clone().unwrap_or_default(),
            },
            None => Error::NoRuntime,
        }
    }
}

impl Gpu {
    /// Number of the GPU over all runtimes, AMD's first.
    pub fn number(&self) -> usize {
        self.report.number
    }

    /// Properties of the GPU.
    pub fn report(&self) -> &DeviceReport {
        &self.report
    }

    /// Loads the runtime, and opens this device and no other.
    ///
    /// # Errors
    ///
    /// [`Error::GpuUnusable`] if the driver fails.
    pub fn device(&self) -> Result<Device, Error> {
        self.runtime()
            .and_then(|runtime| runtime.device(self.report.ordinal))
            .map_err(|error| self.unusable(error))
    }

    /// Opens the backend on it.
    ///
    /// # Errors
    ///
    /// [`Error::GpuUnusable`] if the driver fails, or there is no code for the device.
    pub fn backend(&self, graphs: GraphMode) -> Result<GpuBackend, Error> {
        if self.report.code_kind.as_deref() == Some(probe::RUN_TIME) {
            tracing::warn!(
                "ROCm compiles the kernels for {} on this machine: that takes minutes the first time",
                self.report.arch
            );
        }
        let ordinal = Some(self.report.ordinal);
        let options = GpuOptions::default().with_ordinal(ordinal).with_graphs(graphs);
        let runtime = self.runtime().map_err(|error| self.unusable(error))?;
        let backend = GpuBackend::on(&runtime, options).map_err(|error| self.unusable(error))?;
        Ok(tuning::apply(&self.report, backend))
    }

    fn open(&self, graphs: Graphs) -> Result<OpenGpu, Error> {
        let graphs = match graphs {
            Graphs::Auto => GraphMode::Auto,
            Graphs::On => GraphMode::On,
            Graphs::Off => GraphMode::Off,
        };
        Ok(OpenGpu {
            backend: Box::new(self.backend(graphs)?),
            number: self.report.number,
            name: self.report.name.clone(),
            arch: self.report.arch.clone(),
            untuned: TuningTable::path(&self.report).ok().filter(|path| !path.exists()),
        })
    }

    /// Loads the runtime that lists it, unless it is loaded.
    ///
    /// # Errors
    ///
    /// If the runtime fails.
    pub fn runtime(&self) -> Result<Runtime, RuntimeError> {
        let is_amd = self.report.platform == Platform::Amd.to_string();
        Runtime::load_platform(if is_amd { Platform::Amd } else { Platform::Nvidia })
    }

    fn unusable(&self, error: impl std::error::Error + Send + Sync + 'static) -> Error {
        Error::GpuUnusable { gpu: self.to_string(), source: Box::new(error) }
    }

    /// Returns true if the GPU is likely faster than the CPU. Desktop processors have integrated
    /// GPUs of two compute units, which only drive the screen.
    fn is_worthwhile(&self) -> bool {
        const FEW_COMPUTE_UNITS: u32 = 4;
        !self.report.integrated || self.report.compute_units >= FEW_COMPUTE_UNITS
    }
}

impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DeviceReport { number, name, arch, .. } = &self.report;
        write!(f, "GPU {number}, {name} ({arch})")
    }
}
