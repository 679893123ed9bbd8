//! Targets: the backends that workloads run on.

use std::fmt;

use rf_cpu::{CpuBackend, CpuOptions, Isa};
use rf_graph::Backend;
#[cfg(feature = "gpu")]
use rf_kernels::{GpuBackend, GpuOptions, GraphMode};
use rf_profile::baseline::DeviceKind;

use crate::Error;

/// An open backend that workloads run on.
pub struct Target {
    device: Device,
    backend: Box<dyn Backend>,
}

#[derive(Clone, Copy)]
enum Device {
    Cpu {
        threads: usize,
        isa: Isa,
    },
    #[cfg(feature = "gpu")]
    Gpu {
        ordinal: Option<usize>,
    },
}

impl Target {
    /// The CPU, by default with one thread per physical core and the best instruction set.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] if the threads cannot be started.
    pub fn cpu(threads: Option<usize>, isa: Option<Isa>) -> Result<Self, Error> {
        let backend = CpuBackend::new(CpuOptions { threads, isa })?;
        let device = Device::Cpu { threads: backend.threads(), isa: backend.isa() };
        Ok(Self { device, backend: Box::new(backend) })
    }

    /// A GPU, by default the one that the backend prefers.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] without a GPU, its runtime, code for it, or the feature `gpu`.
    #[cfg(feature = "gpu")]
    pub fn gpu(ordinal: Option<usize>) -> Result<Self, Error> {
        let backend = Box::new(open(ordinal, GraphMode::On)?);
        Ok(Self { device: Device::Gpu { ordinal }, backend })
    }

    /// A GPU, by default the one that the backend prefers.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`]: this build lacks the feature `gpu`.
    #[cfg(not(feature = "gpu"))]
    pub fn gpu(ordinal: Option<usize>) -> Result<Self, Error> {
        _ = ordinal;
        Err(Error::Unsupported("this program was built without the GPU backend".to_owned()))
    }

    /// The same device with another backend, made from this one: a decorator, for instance.
    #[must_use]
    pub fn map_backend(self, decorate: impl FnOnce(Box<dyn Backend>) -> Box<dyn Backend>) -> Self {
        Self { device: self.device, backend: decorate(self.backend) }
    }

    /// The kind of the device.
    pub fn device(&self) -> DeviceKind {
        match self.device {
            Device::Cpu { .. } => DeviceKind::Cpu,
            #[cfg(feature = "gpu")]
            Device::Gpu { .. } => DeviceKind::Gpu,
        }
    }

    /// The word in names: `cpu` or `gpu`.
    pub fn name(&self) -> &'static str {
        match self.device() {
            DeviceKind::Cpu => "cpu",
            DeviceKind::Gpu => "gpu",
        }
    }

    /// Whether the device is a GPU.
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
            Device::Gpu { .. } => None,
        }
    }

    /// The instruction set of the CPU backend; `None` for a GPU.
    pub fn isa(&self) -> Option<Isa> {
        match self.device {
            Device::Cpu { isa, .. } => Some(isa),
            #[cfg(feature = "gpu")]
            Device::Gpu { .. } => None,
        }
    }

    /// Fails on a GPU, with the reason.
    pub(crate) fn require_cpu(&self, reason: &str) -> Result<(), Error> {
        if self.is_gpu() { Err(Error::Unsupported(reason.to_owned())) } else { Ok(()) }
    }

    /// The same device without captured graphs: every step is a sequence of launches. `None` for
    /// the CPU, which captures no graphs.
    pub(crate) fn without_graphs(&self) -> Result<Option<Box<dyn Backend>>, Error> {
        match self.device {
            Device::Cpu { .. } => Ok(None),
            #[cfg(feature = "gpu")]
            Device::Gpu { ordinal } => Ok(Some(Box::new(open(ordinal, GraphMode::Off)?))),
        }
    }
}

#[cfg(feature = "gpu")]
fn open(ordinal: Option<usize>, graphs: GraphMode) -> Result<GpuBackend, Error> {
    let options = GpuOptions { ordinal, graphs, ..GpuOptions::default() };
    GpuBackend::new(options).map_err(|error| Error::Unsupported(error.to_string()))
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.backend().description())
    }
}
