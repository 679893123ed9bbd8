//! What workloads run on.

use std::fmt;

use rf_cpu::{CpuBackend, CpuOptions, Isa};
use rf_graph::Backend;
#[cfg(feature = "gpu")]
use rf_kernels::{GpuBackend, GpuOptions, GraphMode};

use crate::Error;

/// What workloads run on: an open backend.
pub struct Target(Kind);

enum Kind {
    Cpu(CpuBackend),
    #[cfg(feature = "gpu")]
    Gpu {
        backend: Box<GpuBackend>,
        ordinal: Option<usize>,
    },
}

impl Target {
    /// The CPU, by default with one thread per physical core and the best instruction set.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] where the threads cannot be started.
    pub fn cpu(threads: Option<usize>, isa: Option<Isa>) -> Result<Self, Error> {
        Ok(Self(Kind::Cpu(CpuBackend::new(CpuOptions { threads, isa })?)))
    }

    /// A GPU, by default the one that the backend prefers.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] where there is none, no runtime, no code for it, or this program was built without the
    /// feature `gpu`.
    #[cfg(feature = "gpu")]
    pub fn gpu(ordinal: Option<usize>) -> Result<Self, Error> {
        let backend = Box::new(open(ordinal, GraphMode::On)?);
        Ok(Self(Kind::Gpu { backend, ordinal }))
    }

    /// A GPU, by default the one that the backend prefers.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`]: this program was built without the feature `gpu`.
    #[cfg(not(feature = "gpu"))]
    pub fn gpu(ordinal: Option<usize>) -> Result<Self, Error> {
        _ = ordinal;
        Err(Error::Unsupported("this program was built without the GPU backend".to_owned()))
    }

    /// A word for names: `cpu` or `gpu`.
    pub fn name(&self) -> &'static str {
        match self.0 {
            Kind::Cpu(_) => "cpu",
            #[cfg(feature = "gpu")]
            Kind::Gpu { .. } => "gpu",
        }
    }

    /// Whether it is a GPU.
    pub fn is_gpu(&self) -> bool {
        self.name() == "gpu"
    }

    /// The backend.
    pub fn backend(&self) -> &dyn Backend {
        match &self.0 {
            Kind::Cpu(backend) => backend,
            #[cfg(feature = "gpu")]
            Kind::Gpu { backend, .. } => &**backend,
        }
    }

    /// Of the CPU: how many threads compute.
    pub fn threads(&self) -> Option<usize> {
        match &self.0 {
            Kind::Cpu(backend) => Some(backend.threads()),
            #[cfg(feature = "gpu")]
            Kind::Gpu { .. } => None,
        }
    }

    /// The same device, with every step as launches instead of a captured graph. `None` for the CPU, which has no
    /// graphs.
    pub(crate) fn without_graphs(&self) -> Result<Option<Box<dyn Backend>>, Error> {
        match &self.0 {
            Kind::Cpu(_) => Ok(None),
            #[cfg(feature = "gpu")]
            Kind::Gpu { ordinal, .. } => Ok(Some(Box::new(open(*ordinal, GraphMode::Off)?))),
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
