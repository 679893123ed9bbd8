//! The GPUs of this machine: which there are, which are usable, and which one is the best.

use std::cmp::Reverse;
use std::fmt;

use rf_hip::{DeviceInfo, Platform, Runtime};
use rf_kernels::objects::{self, Choice};
use rf_kernels::{GpuBackend, GpuOptions};

use crate::error::{Error, Warning, sentence};
use crate::open_gpu::OpenGpu;

/// A GPU that a runtime lists.
pub struct Gpu {
    /// Its number over all runtimes, AMD's first.
    pub number: usize,
    /// The runtime that lists it.
    pub runtime: Runtime,
    /// Its properties.
    pub info: DeviceInfo,
    /// The code object for it, or the reason why there is none.
    pub code: Result<Choice, objects::Error>,
}

/// The GPUs of all runtimes that load.
#[derive(Default)]
struct GpuInventory {
    /// GPUs in the order of their numbers.
    gpus: Vec<Gpu>,
    /// Runtimes that loaded.
    runtimes: Vec<Runtime>,
    /// Runtimes and devices that failed, AMD's first.
    failures: Vec<(Platform, rf_hip::Error)>,
}

/// Opens a GPU by its number, or the best one, with its own type of backend.
///
/// # Errors
///
/// If there is no such GPU or it cannot be used; the message has the cure.
pub fn open_backend(number: Option<usize>) -> Result<(Gpu, GpuBackend), Error> {
    let gpu = find(number)?;
    let backend = gpu.backend()?;
    Ok((gpu, backend))
}

/// Finds a GPU by its number, or the best one. With none usable, the first one.
///
/// # Errors
///
/// If there is no such GPU; the message has the cure.
pub fn find(number: Option<usize>) -> Result<Gpu, Error> {
    let mut inventory = GpuInventory::new()?;
    let gpus = &inventory.gpus;
    let index = match number {
        Some(number) => gpus.iter().position(|gpu| gpu.number == number),
        None => inventory.best().map(|gpu| gpu.number).or((!gpus.is_empty()).then_some(0)),
    };
    match index {
        Some(index) => Ok(inventory.gpus.swap_remove(index)),
        None => Err(inventory.absence(number)),
    }
}

/// The platforms that `ROCFORGE_GPU_PLATFORM` allows, in order of preference.
///
/// # Errors
///
/// If the variable names no platform.
pub(crate) fn platforms() -> Result<Vec<Platform>, Error> {
    let name = std::env::var("ROCFORGE_GPU_PLATFORM").unwrap_or_default();
    match name.to_ascii_lowercase().as_str() {
        "" => Ok(vec![Platform::Amd, Platform::Nvidia]),
        "amd" => Ok(vec![Platform::Amd]),
        "nvidia" => Ok(vec![Platform::Nvidia]),
        _ => Err(Error::Platform(Box::new(rf_hip::Error::UnknownPlatform { name }))),
    }
}

pub(crate) fn open(number: Option<usize>) -> Result<OpenGpu, Error> {
    find(number)?.open()
}

/// Opens the best GPU if it is likely faster than the CPU, or if the user requires one.
pub(crate) fn open_if_usable(required: bool, warnings: &mut Vec<Warning>) -> Option<OpenGpu> {
    let inventory = match GpuInventory::new() {
        Ok(inventory) => inventory,
        Err(error) => {
            warnings.push(Warning::EverythingOnCpu { reason: sentence(&error) });
            return None;
        }
    };
    if let Some(gpu) = inventory.best().filter(|gpu| required || gpu.is_worthwhile()) {
        return match gpu.open() {
            Ok(open) => Some(open),
            Err(error) => {
                let reason = std::error::Error::source(&error).map(sentence);
                let reason = reason.unwrap_or_else(|| error.to_string());
                warnings.push(Warning::GpuNotUsed { gpu: gpu.to_string(), reason });
                None
            }
        };
    }
    for gpu in &inventory.gpus {
        let reason = match &gpu.code {
            Ok(_) => "the CPU is likely faster (--device gpu uses it anyway)".to_owned(),
            Err(error) => error.to_string(),
        };
        warnings.push(Warning::GpuNotUsed { gpu: gpu.to_string(), reason });
    }
    if inventory.gpus.is_empty() && required {
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
    /// If that variable names no platform. A runtime that does not load is in `failures`.
    fn new() -> Result<Self, Error> {
        let mut inventory = Self::default();
        for platform in platforms()? {
            match Runtime::load_platform(platform) {
                Ok(runtime) => {
                    inventory.add(platform, &runtime);
                    inventory.runtimes.push(runtime);
                }
                Err(error) => inventory.failures.push((platform, error)),
            }
        }
        Ok(inventory)
    }

    fn add(&mut self, platform: Platform, runtime: &Runtime) {
        let count = match runtime.device_count() {
            Ok(count) => count,
            Err(error) => {
                self.failures.push((platform, error));
                return;
            }
        };
        for ordinal in 0..count {
            match runtime.device(ordinal) {
                Ok(device) => {
                    let info = device.info().clone();
                    let code = objects::choose(&info.arch);
                    let number = self.gpus.len();
                    self.gpus.push(Gpu { number, runtime: runtime.clone(), info, code });
                }
                Err(error) => self.failures.push((platform, error)),
            }
        }
    }

    /// The best usable GPU: AMD before NVIDIA, discrete before integrated, then by memory.
    fn best(&self) -> Option<&Gpu> {
        let usable = self.gpus.iter().filter(|gpu| gpu.code.is_ok());
        usable.max_by_key(|gpu| {
            let DeviceInfo { platform, integrated, total_memory_bytes, .. } = gpu.info;
            (platform == Platform::Amd, !integrated, total_memory_bytes, Reverse(gpu.number))
        })
    }

    /// The reason why there is no GPU, or none with this number.
    fn absence(&self, number: Option<usize>) -> Error {
        if let Some(number) = number.filter(|_| !self.gpus.is_empty()) {
            return Error::NoSuchGpu { number, last: self.gpus.len() - 1 };
        }
        if let Some(runtime) = self.runtimes.first() {
            let library = runtime.library_path().display();
            return Error::NoGpu { runtime: format!("{} ({library})", runtime.platform()) };
        }
        let is_absent =
            |error: &rf_hip::Error| matches!(error, rf_hip::Error::LibraryNotFound { .. });
        match self.failures.iter().find(|(_, error)| !is_absent(error)) {
            Some((platform, error)) => {
                Error::RuntimeFailed { platform: platform.to_string(), reason: error.to_string() }
            }
            None => Error::NoRuntime,
        }
    }
}

impl Gpu {
    fn open(&self) -> Result<OpenGpu, Error> {
        Ok(OpenGpu {
            backend: Box::new(self.backend()?),
            number: self.number,
            name: self.info.name.clone(),
            arch: self.info.arch.clone(),
        })
    }

    fn backend(&self) -> Result<GpuBackend, Error> {
        if let Ok(Choice::RunTime { arch }) = &self.code {
            tracing::warn!(
                "ROCm compiles the kernels for {arch} on this machine: that takes minutes the first time"
            );
        }
        let options = GpuOptions { ordinal: Some(self.info.ordinal), ..GpuOptions::default() };
        GpuBackend::on(&self.runtime, options)
            .map_err(|error| Error::GpuUnusable { gpu: self.to_string(), source: Box::new(error) })
    }

    /// Returns true if the GPU is likely faster than the CPU. Desktop processors have integrated
    /// GPUs of two compute units, which only drive the screen.
    fn is_worthwhile(&self) -> bool {
        const FEW_COMPUTE_UNITS: u32 = 4;
        !self.info.integrated || self.info.compute_units >= FEW_COMPUTE_UNITS
    }
}

impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GPU {}, {} ({})", self.number, self.info.name, self.info.arch)
    }
}
