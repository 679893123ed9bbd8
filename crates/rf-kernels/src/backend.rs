//! The GPU backend: a device with its code objects.

use std::path::Path;
use std::sync::Arc;

use rf_graph::case::measure_peak;
use rf_graph::{Backend, BackendError, Executor, Fusions, MemoryNeed, Peak, Program, Progress};
use rf_hip::{DeviceInfo, Platform, Runtime, SyncMode};

use crate::error::Error;
use crate::exec::{self, FUSIONS, GpuExecutor};
use crate::graphs::GraphMode;
use crate::launch::Gpu;
use crate::objects::{Choice, CodeObjects};
use crate::params::{MatmulDevice, MatrixUnit};
use crate::system;

/// The choice of a device, and its settings.
#[derive(Clone, Copy, Debug, Default)]
pub struct GpuOptions {
    /// Device number; by default the discrete GPU with the most memory.
    pub ordinal: Option<usize>,
    /// The use of captured graphs.
    pub graphs: GraphMode,
    /// True if the host thread sleeps while it waits for a batch. Sleeping frees its core for other
    /// work and costs about ten microseconds per token.
    pub sleep: bool,
    /// Compute units over which work is divided; by default the number that the runtime reports.
    /// With 1, matmuls of any size use the largest tiles.
    pub compute_units: Option<usize>,
}

/// A kernel of a small unit that every program uses.
const FIRST_KERNEL: &str = "load_step_u32";

/// A backend that runs programs on a GPU.
pub struct GpuBackend {
    gpu: Arc<Gpu>,
    /// True if steps of a few tokens are replayed as captured graphs.
    graphs: bool,
}

impl GpuBackend {
    /// Opens a device of the installed runtime.
    ///
    /// # Errors
    ///
    /// If no runtime is installed, the device does not exist, or the program has no kernels for it.
    pub fn new(options: GpuOptions) -> Result<Self, Error> {
        Self::on(&Runtime::load()?, options)
    }

    /// Opens a device of a loaded runtime.
    ///
    /// # Errors
    ///
    /// If the device does not exist or the program has no kernels for it.
    pub fn on(runtime: &Runtime, options: GpuOptions) -> Result<Self, Error> {
        let device = match options.ordinal {
            // No other device is touched: the driver of one may be broken.
            Some(ordinal) => {
                let count = runtime.device_count()?;
                if ordinal >= count {
                    return Err(Error::NoSuchDevice { ordinal, count });
                }
                runtime.device(ordinal)?
            }
            None => runtime
                .devices()?
                .into_iter()
                .max_by_key(|device| {
                    let info = device.info();
                    (!info.integrated, info.total_memory_bytes, std::cmp::Reverse(info.ordinal))
                })
                .ok_or(Error::NoDevice { platform: runtime.platform() })?,
        };
        let objects = CodeObjects::for_device(&device.info().arch)?;
        let sync = if options.sleep { SyncMode::Sleep } else { SyncMode::Spin };
        let context = device.context_with(sync)?;
        let compute_units =
            options.compute_units.unwrap_or(context.info().compute_units as usize).max(1);
        let gpu = Arc::new(Gpu::new(context, objects, compute_units));
        // A driver that refuses the code does so now.
        gpu.function(FIRST_KERNEL)?;
        Ok(Self { gpu, graphs: options.graphs.is_on(runtime) })
    }

    /// Name, architecture and limits of the device.
    pub fn device(&self) -> &DeviceInfo {
        self.gpu.context().info()
    }

    /// Returns true if the memory of the device is that of the machine, and its runtime counts only
    /// a part of it.
    fn shares_memory(&self) -> bool {
        let DeviceInfo { platform, integrated, .. } = self.device();
        *platform == Platform::Amd && *integrated
    }

    /// The kernels that programs of this backend have used, by name.
    pub fn used_kernels(&self) -> Vec<&'static str> {
        self.gpu.used_kernels()
    }

    /// The origin of the code in use.
    pub fn code(&self) -> Choice {
        self.gpu.choice()
    }
}

impl Backend for GpuBackend {
    fn name(&self) -> &'static str {
        "GPU"
    }

    fn description(&self) -> String {
        let info = self.device();
        format!("{} ({}, {})", info.name, info.arch, self.code())
    }

    fn fusions(&self) -> Fusions {
        FUSIONS
    }

    /// On matrix units, for several rows.
    fn rounds_operands_to_f16(&self) -> bool {
        let info = self.device();
        MatmulDevice::new(self.gpu.compute_units(), &info.arch).matrix_unit != MatrixUnit::None
    }

    /// Free device memory. For an integrated AMD GPU that of the machine: HIP counts only the part
    /// that is reserved for the GPU, and allocates beyond it.
    fn available_memory_bytes(&self) -> Option<u64> {
        let free = self.gpu.context().memory_info().ok().map(|(free, _)| free);
        let shared = self
            .shares_memory()
            .then(|| system::shared_memory_bytes(Path::new("/"), &self.device().pci_bus_id));
        free.max(shared.flatten())
    }

    /// As the method of the trait, but a program that is too large for an integrated AMD GPU is a
    /// warning: the free memory is a guess.
    fn check_memory(&self, program: &Program) -> Result<(), BackendError> {
        let need = self.memory_need(program)?;
        match self.available_memory_bytes() {
            Some(available_bytes) if need.total_bytes() > available_bytes => {
                let error =
                    BackendError::DoesNotFit { backend: self.name(), need, available_bytes };
                if !self.shares_memory() {
                    return Err(error);
                }
                tracing::warn!("{error}; the GPU shares the memory of the machine, so it may fit");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Times the fastest matmuls, because no API reports the peak of the matrix units.
    fn measure_peak(&self) -> Result<Peak, BackendError> {
        measure_peak(self)
    }

    fn memory_need(&self, program: &Program) -> Result<MemoryNeed, BackendError> {
        Ok(exec::memory_need(&self.gpu, program)?)
    }

    fn compile(
        &self,
        program: Program,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Box<dyn Executor>, BackendError> {
        self.check_memory(&program)?;
        let gpu = Arc::clone(&self.gpu);
        Ok(Box::new(GpuExecutor::new(gpu, self.graphs, program, progress)?))
    }
}
