//! The GPUs of this machine: which there are, which are usable, and which one to take.

use std::cmp::Reverse;
use std::fmt;

use anyhow::{Error, Result, anyhow};
use rf_hip::{DeviceInfo, Platform, Runtime};
use rf_kernels::objects::{self, Choice};
use rf_kernels::{GpuBackend, GpuOptions};
use rf_profile::memory::MemoryTracker;
use rf_profile::roofline::Limits;

use super::OpenGpu;
use crate::failure::sentence;
use crate::terminal;

/// A GPU that a runtime lists.
pub(crate) struct Gpu {
    /// Over all runtimes, AMD's first.
    pub(crate) number: usize,
    pub(crate) runtime: Runtime,
    pub(crate) info: DeviceInfo,
    /// Which code it gets, or why none.
    pub(crate) code: Result<Choice, objects::Error>,
}

/// What there is.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) gpus: Vec<Gpu>,
    /// Runtimes that loaded.
    pub(crate) runtimes: Vec<Runtime>,
    /// Runtimes and devices that did not work, AMD's first.
    pub(crate) failures: Vec<(Platform, rf_hip::Error)>,
}

/// All GPUs of all runtimes that load, as `ROCFORGE_GPU_PLATFORM` allows.
pub(crate) fn find() -> Result<Found, rf_hip::Error> {
    let mut found = Found::default();
    for platform in platforms()? {
        match Runtime::load_platform(platform) {
            Ok(runtime) => {
                found.add(platform, &runtime);
                found.runtimes.push(runtime);
            }
            Err(error) => found.failures.push((platform, error)),
        }
    }
    Ok(found)
}

/// Opens a GPU by its number, or the best one.
///
/// # Errors
///
/// With the cure, if that is not possible.
pub(super) fn open(number: Option<usize>) -> Result<OpenGpu> {
    let gpu = pick(number)?;
    gpu.open().map_err(|error| error.context(format!("{gpu} cannot be used")))
}

/// Opens a GPU by its number, or the best one, to measure it.
///
/// # Errors
///
/// As [`open`].
pub(crate) fn open_for_test(number: Option<usize>) -> Result<(Gpu, GpuBackend)> {
    let gpu = pick(number)?;
    let backend = gpu.backend().map_err(|e| e.context(format!("{gpu} cannot be used")))?;
    Ok((gpu, backend))
}

/// What a GPU can do at most, but for arithmetic.
///
/// # Errors
///
/// If the device cannot be used, or has not the memory to measure with.
pub(crate) fn limits(number: usize) -> Result<Limits> {
    let gpu = pick(Some(number))?;
    Ok(Limits::measure_device(&gpu.runtime.device(gpu.info.ordinal)?.context()?)?)
}

/// Samples the memory of a GPU.
///
/// # Errors
///
/// If the device does not say.
pub(crate) fn sample_memory(number: usize, tracker: &mut MemoryTracker) -> Result<()> {
    let gpu = pick(Some(number))?;
    Ok(tracker.sample_device(&gpu.runtime.device(gpu.info.ordinal)?.context()?)?)
}

fn pick(number: Option<usize>) -> Result<Gpu> {
    let mut found = find()?;
    let place = match number {
        Some(number) => found.gpus.iter().position(|gpu| gpu.number == number),
        None => found.best().map(|gpu| gpu.number).or((!found.gpus.is_empty()).then_some(0)),
    };
    match place {
        Some(place) => Ok(found.gpus.swap_remove(place)),
        None => Err(found.why_none(number)),
    }
}

/// Opens the best GPU if it is worth it; says why not where there is one, or where the user `wanted` one.
pub(super) fn open_if_usable(wanted: bool) -> Option<OpenGpu> {
    let found = match find() {
        Ok(found) => found,
        Err(error) => {
            terminal::warn(format_args!("everything runs on the CPU: {error}"));
            return None;
        }
    };
    let worthwhile = found.best().filter(|gpu| wanted || gpu.is_worthwhile());
    if let Some(gpu) = worthwhile {
        match gpu.open() {
            Ok(open) => return Some(open),
            Err(error) => not_used(gpu, sentence(&error)),
        }
        return None;
    }
    for gpu in &found.gpus {
        match &gpu.code {
            Ok(_) => not_used(gpu, "the CPU is likely faster (--device gpu takes it all the same)"),
            Err(error) => not_used(gpu, error),
        }
    }
    if found.gpus.is_empty() && wanted {
        let why = sentence(&found.why_none(None));
        terminal::warn(format_args!("everything runs on the CPU: {why}"));
    }
    None
}

/// A line on stderr about a GPU that `auto` does not take.
fn not_used(which: impl fmt::Display, why: impl fmt::Display) {
    terminal::warn(format_args!("{which} is not used: {why}"));
}

/// The platforms to look for, in order of preference.
pub(super) fn platforms() -> Result<Vec<Platform>, rf_hip::Error> {
    let asked_for = std::env::var("ROCFORGE_GPU_PLATFORM").unwrap_or_default();
    match asked_for.to_ascii_lowercase().as_str() {
        "" => Ok(vec![Platform::Amd, Platform::Nvidia]),
        "amd" => Ok(vec![Platform::Amd]),
        "nvidia" => Ok(vec![Platform::Nvidia]),
        _ => Err(rf_hip::Error::UnknownPlatform { name: asked_for }),
    }
}

impl Found {
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

    /// The usable GPU to take where none is named: AMD before NVIDIA, cards before what shares the CPU's
    /// memory, then by memory.
    pub(crate) fn best(&self) -> Option<&Gpu> {
        let usable = self.gpus.iter().filter(|gpu| gpu.code.is_ok());
        usable.max_by_key(|gpu| {
            let DeviceInfo { platform, integrated, total_memory_bytes, .. } = gpu.info;
            (platform == Platform::Amd, !integrated, total_memory_bytes, Reverse(gpu.number))
        })
    }

    /// Why there is no such GPU, and what to do.
    fn why_none(&self, number: Option<usize>) -> Error {
        const CURE: &str = "`rf-cli doctor` checks the installation, --device cpu does without";
        if let Some(number) = number.filter(|_| !self.gpus.is_empty()) {
            let last = self.gpus.len() - 1;
            return anyhow!(
                "there is no GPU {number}, the last one is {last}: `rf-cli devices` lists them"
            );
        }
        if let Some(runtime) = self.runtimes.first() {
            let library = runtime.library_path().display();
            return anyhow!("{} ({library}) finds no GPU: {CURE}", runtime.platform());
        }
        let is_absent =
            |error: &rf_hip::Error| matches!(error, rf_hip::Error::LibraryNotFound { .. });
        match self.failures.iter().find(|(_, error)| !is_absent(error)) {
            Some((platform, error)) => {
                anyhow!("the {platform} runtime does not work ({error}): {CURE}")
            }
            None => anyhow!(
                "no GPU runtime is installed (neither ROCm's libamdhip64 nor NVIDIA's libcuda was found): {CURE}"
            ),
        }
    }
}

impl Gpu {
    fn open(&self) -> Result<OpenGpu> {
        Ok(OpenGpu {
            backend: Box::new(self.backend()?),
            number: self.number,
            name: self.info.name.clone(),
            arch: self.info.arch.clone(),
        })
    }

    fn backend(&self) -> Result<GpuBackend> {
        if let Ok(Choice::RunTime { arch }) = &self.code {
            terminal::note(format_args!(
                "kernels for {arch} are compiled by this machine's ROCm: that takes minutes, the first time"
            ));
        }
        let options = GpuOptions { ordinal: Some(self.info.ordinal), ..GpuOptions::default() };
        Ok(GpuBackend::on(self.runtime.clone(), options)?)
    }

    /// Whether it is likely faster than the CPU. Desktop processors carry GPUs of two compute units, for the
    /// screen.
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
