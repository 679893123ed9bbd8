//! Targets: the backends that workloads run on.

use std::fmt;

use rf_oracle::rf_graph::Backend;
use rf_profile::baseline::{DeviceKind, Hardware};
use rf_profile::roofline::MachineLimits;
#[cfg(feature = "gpu")]
use rocmforge::device::gpu::{self, Gpu, GraphMode};
use rocmforge::device::{CpuBackend, CpuOptions, Isa};

use crate::Error;

/// An open backend that workloads run on.
pub struct Target {
    device: Device,
    backend: Box<dyn Backend>,
}

enum Device {
    Cpu {
        threads: usize,
        isa: Isa,
    },
    #[cfg(feature = "gpu")]
    Gpu(Box<Gpu>),
}

impl Target {
    /// The CPU, by default with one thread per physical core and the best instruction set.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] if the threads cannot be started.
    pub fn cpu(threads: Option<usize>, isa: Option<Isa>) -> Result<Self, Error> {
        let backend = CpuBackend::new(CpuOptions::default().with_threads(threads).with_isa(isa))?;
        let device = Device::Cpu { threads: backend.threads(), isa: backend.isa() };
        Ok(Self { device, backend: Box::new(backend) })
    }

    /// A GPU by its number in `rf-cli devices`, by default the best one.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] without a GPU, its runtime or code for it.
    #[cfg(feature = "gpu")]
    pub fn gpu(number: Option<usize>) -> Result<Self, Error> {
        let (gpu, backend) = gpu::open_backend(number, None)?;
        Ok(Self { device: Device::Gpu(Box::new(gpu)), backend: Box::new(backend) })
    }

    /// A GPU by its number in `rf-cli devices`, by default the best one.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`]: this build lacks the feature `gpu`.
    #[cfg(not(feature = "gpu"))]
    pub fn gpu(number: Option<usize>) -> Result<Self, Error> {
        _ = number;
        Err(Error::Unsupported("this program was built without the GPU backend".to_owned()))
    }

    /// Replaces the backend by another one, made from this one: a decorator, for instance.
    #[must_use]
    pub fn map_backend(self, decorate: impl FnOnce(Box<dyn Backend>) -> Box<dyn Backend>) -> Self {
        Self { device: self.device, backend: decorate(self.backend) }
    }

    /// The kind of the device.
    pub fn device(&self) -> DeviceKind {
        match self.device {
            Device::Cpu { .. } => DeviceKind::Cpu,
            #[cfg(feature = "gpu")]
            Device::Gpu(_) => DeviceKind::Gpu,
        }
    }

    /// The word in names: `cpu` or `gpu`.
    pub fn name(&self) -> &'static str {
        match self.device() {
            DeviceKind::Cpu => "cpu",
            DeviceKind::Gpu => "gpu",
        }
    }

    /// Returns true if the device is a GPU.
    pub fn is_gpu(&self) -> bool {
        self.device() == DeviceKind::Gpu
    }

    /// The backend.
    pub fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// The number of threads of the CPU backend; `None` for a GPU.
    pub fn threads(&self) -> Option<usize> {
        match self.device {
            Device::Cpu { threads, .. } => Some(threads),
            #[cfg(feature = "gpu")]
            Device::Gpu(_) => None,
        }
    }

    /// Describes the hardware that takes part in a measurement.
    ///
    /// The description includes the number of compute threads and an instruction set other than the
    /// best one: results with other values count as other hardware. It has no GPU for the CPU,
    /// because the detection of a GPU loads its runtime.
    pub fn hardware(&self) -> Hardware {
        let mut hardware = Hardware::cpu_only();
        match &self.device {
            Device::Cpu { threads, isa } => {
                hardware.cpu_threads = *threads;
                if *isa != Isa::best() {
                    hardware.cpu = format!("{} with {} only", hardware.cpu, isa.name());
                }
                hardware
            }
            #[cfg(feature = "gpu")]
            Device::Gpu(gpu) => match gpu.runtime() {
                Ok(runtime) => match runtime.device(gpu.report().ordinal) {
                    Ok(device) => hardware.with_gpu(&runtime, device.info()),
                    Err(_) => hardware,
                },
                Err(_) => hardware,
            },
        }
    }

    /// Measures the bandwidth of the memory.
    pub(crate) fn measure_memory(&self) -> Result<MachineLimits, rf_profile::Error> {
        match &self.device {
            Device::Cpu { threads, .. } => MachineLimits::measure_host(*threads),
            #[cfg(feature = "gpu")]
            Device::Gpu(gpu) => {
                let device = gpu.runtime()?.device(gpu.report().ordinal)?;
                MachineLimits::measure_device(&device.context()?)
            }
        }
    }

    /// Fails on a GPU, with the reason.
    pub(crate) fn require_cpu(&self, reason: &str) -> Result<(), Error> {
        if self.is_gpu() { Err(Error::Unsupported(reason.to_owned())) } else { Ok(()) }
    }

    /// The same device without captured graphs: every step is a sequence of launches. `None` for
    /// the CPU, which captures no graphs.
    #[cfg_attr(
        not(feature = "gpu"),
        expect(clippy::unnecessary_wraps, reason = "a GPU may fail to open")
    )]
    pub(crate) fn without_graphs(&self) -> Result<Option<Box<dyn Backend>>, Error> {
        match &self.device {
            Device::Cpu { .. } => Ok(None),
            #[cfg(feature = "gpu")]
            Device::Gpu(gpu) => {
                let backend = gpu.backend(GraphMode::Off);
                Ok(Some(Box::new(backend.map_err(|error| Error::Unsupported(error.to_string()))?)))
            }
        }
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.backend().description())
    }
}
